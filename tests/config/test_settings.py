"""The project file: what its settings mean."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from mirrorlake.config import TEMPLATE, load
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.section import PostgresSection
from mirrorlake.sources.postgresql.settings import PostgresSettings
from tests.config.project_files import refused, write


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("tables: ['public.${HOME}']", "source.tables"),
        ("tables: ['public.*', '!${HOME}.secret']", "source.tables"),
        ("columns: {public.users: ['*', '!${HOME}']}", "source.columns.public.users"),
    ],
)
def test_the_environment_does_not_choose_tables_and_columns(
    tmp_path: Path, setting: str, field: str
) -> None:
    text = f"name: a\nroot: b\nsource:\n  type: postgresql\n  url: postgresql://c\n  {setting}\n"
    error = refused(tmp_path, text, HOME="/home/ada")
    assert "${HOME} is not replaced in names of tables and columns" in str(error)
    assert f"line 6, field {field}" in error.where
    assert "write ?{HOME} there" in error.hint
    assert load(write(tmp_path, text.replace("$", "?")), {}).source is not None


def test_the_environment_may_be_part_of_a_condition(tmp_path: Path) -> None:
    text = (
        "name: a\nroot: b\nsource:\n  type: postgresql\n  url: postgresql://c\n"
        '  rows: {public.orders: "tenant = ${TENANT}"}\n'
    )
    source = load(write(tmp_path, text), {"TENANT": "7"}).source
    assert source is not None
    assert source.selection.rows == {"public.orders": "tenant = 7"}


def test_a_full_file_becomes_settings(tmp_path: Path) -> None:
    text = """
name: shop
root: ./lake
default_schema: dbo
source:
  type: postgresql
  url: ${SHOP_URL}
  tables: [public.*, "!public.audit_*"]
  columns: {public.users: ["*", "!password_hash"]}
  rows: {public.orders: "total > 0"}
  extremes: {dates: error}
capture: {roll_bytes: 1MiB, roll_seconds: 2, debounce_seconds: 0}
landing: {strict: true}
spark: {master: null, jars: ./jars, conf: {spark.executor.memory: 2g}}
"""
    project = load(write(tmp_path, text), {"SHOP_URL": "postgresql://u:p@h/d"})
    assert project.root == tmp_path / "lake"
    assert project.source is not None
    assert project.source.url == "postgresql://u:p@h/d"
    assert project.source.slot == "mirrorlake_shop"
    assert project.source.selection.tables == ("public.*", "!public.audit_*")
    assert project.source.extremes.dates == "error"
    assert project.capture.roll_bytes == 1 << 20
    assert project.capture.strict
    assert project.mirror.default_schema == "dbo"
    assert project.spark.master is None
    assert project.spark.jars == tmp_path / "jars"


@pytest.mark.parametrize(("given", "wanted"), [("auto", True), ("false", False)])
def test_binary_values_can_be_turned_off(tmp_path: Path, given: str, wanted: bool) -> None:
    text = f"name: a\nroot: b\nsource: {{type: postgresql, url: x, binary: {given}}}\n"
    source = load(write(tmp_path, text)).source
    assert source is not None
    assert source.binary is wanted
    refused(tmp_path, text.replace(given, "true"))


@pytest.mark.parametrize(("given", "wanted"), [("{dates: error}", "error"), ("{}", "clamp")])
def test_infinite_intervals_of_event_files_are_treated_as_infinite_dates(
    tmp_path: Path, given: str, wanted: str
) -> None:
    text = "name: a\nroot: b\ndestination: [{type: events, url: ./c}, {type: landing}]\n"
    text += f"source: {{type: postgresql, url: x, extremes: {given}}}\n"
    assert [one.infinite for one in load(write(tmp_path, text)).destinations] == [wanted]


def test_the_earlier_name_of_a_setting_works_and_says_so(tmp_path: Path) -> None:
    text = "{name: shop, root: ., capture: {settle_seconds: 3}}"
    with capture_logs() as logs:
        project = load(write(tmp_path, text), {})
    assert project.capture.debounce_seconds == 3
    assert [(line["setting"], line["use"]) for line in logs] == [
        ("capture.settle_seconds", "capture.debounce_seconds")
    ]


@pytest.mark.clause("LZ-278")
def test_the_limits_of_the_original_and_partitions_can_be_set(tmp_path: Path) -> None:
    text = "name: shop\nroot: .\nlanding: {partitions: true}\n"
    text += "mirror: {max_tables: 1000, max_bytes_per_day: 1TB}\n"
    found = load(write(tmp_path, text), {}).mirror
    assert found.partitions
    assert (found.max_tables, found.max_bytes_per_day) == (1000, 10**12)
    for wrong in ("max_tables: 0", "max_bytes_per_day: 0"):
        refused(tmp_path, f"name: shop\nroot: .\nmirror: {{{wrong}}}\n")


@pytest.mark.clause("LZ-040", "LZ-059")
def test_metadata_are_required_and_partitions_off_unless_it_is_said(tmp_path: Path) -> None:
    found = load(write(tmp_path, "name: shop\nroot: .\n"), {}).mirror
    assert (found.metadata_required, found.partitions) == (True, False)
    assert (MirrorSettings().metadata_required, MirrorSettings().partitions) == (True, False)
    text = "name: shop\nroot: .\nlanding: {metadata_required: false, partitions: true}\n"
    found = load(write(tmp_path, text), {}).mirror
    assert (found.metadata_required, found.partitions) == (False, True)


@pytest.mark.clause("LZ-257")
def test_what_rows_must_keep_to_can_be_set(tmp_path: Path) -> None:
    text = "name: shop\nroot: .\nmirror: {strict_keys: true, file_bytes: 16GiB}\n"
    assert load(write(tmp_path, text), {}).mirror.row_checks == RowChecks(True, 16 << 30)
    assert load(write(tmp_path, "name: shop\nroot: .\n"), {}).mirror.row_checks == RowChecks()


@pytest.mark.parametrize(
    ("said", "stops"),
    [
        ("evolve", set()),
        ("stop", set(SchemaChangeKind) - {SchemaChangeKind.TABLE_CREATED}),
        ("{type_widened: evolve}", set()),
        ("{table_recreated: stop}", {"table_recreated"}),
        ("{column_renamed: stop, type_changed: stop}", {"column_renamed", "type_changed"}),
    ],
)
def test_what_a_change_of_columns_does_can_be_set(
    tmp_path: Path, said: str, stops: set[str | SchemaChangeKind]
) -> None:
    found = load(write(tmp_path, f"name: shop\nroot: .\nmirror: {{schema_change: {said}}}\n"), {})
    assert set(found.mirror.stops_at) == set(found.capture.stops_at) == stops


def test_new_columns_may_be_ignored_and_dropped_ones_dropped(tmp_path: Path) -> None:
    for said, expected in [
        ("evolve", (False, False)),
        ("ignore", (True, False)),
        ("{column_added: ignore}", (True, False)),
        ("{drop: true, column_renamed: stop}", (False, True)),
        ("{drop: true, column_dropped: ignore}", (False, False)),
    ]:
        text = f"name: shop\nroot: .\nmirror: {{schema_change: {said}}}\n"
        found = load(write(tmp_path, text), {}).mirror
        assert (found.ignores_new_columns, found.drops_columns) == expected
        assert not found.renames_columns


@pytest.mark.parametrize("kind", SchemaChangeKind)
def test_what_can_be_ignored_is_ignored_and_all_else_says_why_not(
    tmp_path: Path, kind: SchemaChangeKind
) -> None:
    text = "name: shop\nroot: .\nmirror: {{schema_change: {}}}\n"
    every = load(write(tmp_path, text.format("ignore")), {}).capture
    assert every.stops_at == frozenset()
    alone = text.format(f"{{{kind}: ignore}}")
    if kind in every.ignores:
        assert load(write(tmp_path, alone), {}).capture.ignores == {kind}
    else:
        assert f"{kind} can be evolve or stop, and not ignore: " in str(refused(tmp_path, alone))


def test_a_table_that_is_created_has_nothing_to_stop(tmp_path: Path) -> None:
    text = "name: shop\nroot: .\nmirror: {schema_change: {table_created: stop}}\n"
    expected = "table_created can be evolve or ignore, and not stop: "
    assert expected in str(refused(tmp_path, text))


@pytest.mark.parametrize("name", ["drop", "rename", "widen"])
def test_what_readers_have_to_know_is_asked_for_one_by_one(tmp_path: Path, name: str) -> None:
    text = f"name: shop\nroot: .\nmirror: {{schema_change: {{{name}: true}}}}\n"
    found = load(write(tmp_path, text), {}).mirror
    asked = {
        "drop": found.drops_columns,
        "rename": found.renames_columns,
        "widen": found.widens_types,
    }
    assert [key for key, value in asked.items() if value] == [name]
    assert found.stops_at == frozenset()


@pytest.mark.parametrize("said", ["keep", "{column_renamed: ignore}", "{column_lost: stop}", "[]"])
def test_what_cannot_be_done_about_a_change_of_columns_is_refused(
    tmp_path: Path, said: str
) -> None:
    text = f"name: shop\nroot: .\nmirror: {{schema_change: {said}}}\n"
    assert "mirror.schema_change" in refused(tmp_path, text).where


def test_the_template_of_init_is_valid(tmp_path: Path) -> None:
    text = TEMPLATE.format(name='"shop"', root='"./shop"', url='"${SHOP_URL}"')
    assert load(write(tmp_path, text), {"SHOP_URL": "postgresql://"}).name == "shop"


def test_a_file_without_source_mirrors_what_others_land(tmp_path: Path) -> None:
    assert load(write(tmp_path, "{name: zone, root: .}"), {}).source is None


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("spark: {driver_memory: 4g}", "spark"),
        ("default_schema: dbo", "default_schema"),
        ("capture: {roll_seconds: 1}", "capture"),
        ("mirror: {vacuum_days: 30, strategy: merge}", "mirror.strategy"),
        ("spark: {master: 'local[4]'}", "spark"),
    ],
)
def test_what_has_no_effect_on_tables_of_events_is_refused(
    tmp_path: Path, setting: str, field: str
) -> None:
    text = "name: a\nroot: b\nsource: {type: events, url: ./c}\n"
    for taken in ("mirror: {vacuum_days: 30}\n", "spark: {master: 'spark://there:7077'}\n"):
        assert load(write(tmp_path, text + taken), {}).events is not None
    error = refused(tmp_path, text + setting + "\n")
    assert f"{field} has no effect" in str(error)
    assert error.where.endswith(f"field {field}")


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("capture: {retained_policy: release}", "capture.retained_policy"),
        ("load: {connections: 3}", "load.connections"),
        ("destination: {type: events, url: c}\ndefault_schema: dbo", "default_schema"),
        ("destination: {type: events, url: c}\ncapture: {roll_seconds: 1}", "capture.roll_seconds"),
    ],
)
def test_what_another_setting_leaves_without_effect_is_refused(
    tmp_path: Path, setting: str, field: str
) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    assert refused(tmp_path, f"{text}{setting}\n").where.endswith(f"field {field}")


def test_a_setting_that_has_no_effect_is_found_by_its_earlier_name(tmp_path: Path) -> None:
    text = "name: a\nroot: b\ndestination: {type: events, url: c}\ncapture: {settle_seconds: 1}\n"
    error = refused(tmp_path, text)
    assert error.where.endswith("field capture.debounce_seconds")
    assert "settle_seconds is its earlier name" in error.hint


def test_settings_that_act_together_are_taken(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    released = "capture: {retained_limit: 1GiB, retained_policy: release, roll_seconds: 2}\n"
    both = "destination: [{type: landing}, {type: events, url: c}]\ndefault_schema: dbo\n"
    found = load(write(tmp_path, text + released + both + "load: {on: spark, connections: 3}"), {})
    assert (found.capture.retained_limit, found.capture.spark_connections) == (1 << 30, 3)


def test_metadata_columns_can_be_asked_for(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    assert not load(write(tmp_path, text), {}).capture.metadata_columns
    setting = "mirror: {metadata_columns: true}\n"
    assert load(write(tmp_path, text + setting), {}).capture.metadata_columns
    events = "name: a\nroot: b\nsource: {type: events, url: c, format: avro}\n" + setting
    found = load(write(tmp_path, events), {}).events
    assert found is not None
    assert found.metadata_columns


def test_metadata_columns_are_refused_where_nothing_is_captured(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: a\nroot: b\nmirror: {metadata_columns: true}\n")
    assert error.where.endswith("field mirror.metadata_columns")
    assert "in the project that writes the landing zone" in error.hint


def test_soft_deletes_can_be_asked_for_and_tell_when(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    assert not load(write(tmp_path, text), {}).mirror.soft_deletes
    found = load(write(tmp_path, text + "mirror: {deletes: soft}\n"), {})
    assert (found.mirror.soft_deletes, found.capture.metadata_columns) == (True, True)
    others = load(write(tmp_path, "name: a\nroot: b\nmirror: {deletes: soft}\n"), {})
    assert others.mirror.soft_deletes


@pytest.mark.parametrize("other", ["strategy: merge", "template: compatible"])
def test_soft_deletes_are_possible_with_each_strategy(tmp_path: Path, other: str) -> None:
    text = f"name: a\nroot: b\nmirror: {{deletes: soft, {other}}}\n"
    assert load(write(tmp_path, text), {}).mirror.soft_deletes


def test_soft_deletes_are_refused_where_a_truncation_begins_the_table_anew(
    tmp_path: Path,
) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    error = refused(tmp_path, f"{text}mirror: {{deletes: soft}}\nlanding: {{strict: true}}\n")
    assert error.where.endswith("field landing.strict")
    assert "mirror.deletes is soft" in error.what


BACKFILL = "mirror: {uncaptured_changes: backfill}"


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ("mirror: {uncaptured_changes: backfill, deletes: soft}", "mirror.deletes"),
        (f"{BACKFILL}\nlanding: {{strict: true}}", "landing.strict"),
        (
            f"{BACKFILL}\ndestination: [{{type: landing}}, {{type: events, url: events}}]",
            "destination",
        ),
    ],
)
def test_where_no_table_can_be_read_again_it_cannot_be_asked_for(
    tmp_path: Path, others: str, named: str
) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x}\n"
    error = refused(tmp_path, f"{text}{others}\n")
    assert error.where.endswith("field mirror.uncaptured_changes")
    assert f"not possible with this value of {named}" in error.what


@pytest.mark.clause("CF-008", "CF-015", "CF-145", "CF-147")
def test_tables_may_have_settings_of_their_own(tmp_path: Path) -> None:
    orders, other = TableId("shop", "orders"), TableId("shop", "other")
    for said, of_orders, of_other in (
        ("{}", ("images", False), ("images", False)),
        ("{change_feed: false}", ("off", False), ("off", False)),
        (
            "{change_feed: false, tables: {shop.orders: {change_feed: true, apply: replace}}}",
            ("replace", False),
            ("off", False),
        ),
        (
            "{tables: {shop.orders: {suppress_unchanged: true}}}",
            ("images", True),
            ("images", False),
        ),
        ("{tables: {shop.orders: {change_feed: false}}}", ("off", False), ("images", False)),
    ):
        text = f"name: a\nroot: b\nmirror: {said}\n"
        settings = load(write(tmp_path, text), {}).mirror
        for table, expected in ((orders, of_orders), (other, of_other)):
            options = settings.options_of(table)
            assert (options.feed, options.suppress_unchanged) == expected


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ("change_feed: false", "the table has none"),
        ("deletes: soft", "mirror.deletes"),
        ("strategy: merge", "mirror.strategy"),
        ("template: compatible", "mirror.template"),
    ],
)
def test_what_cannot_be_with_replaced_rows_is_refused(
    tmp_path: Path, others: str, named: str
) -> None:
    said = f"mirror: {{{others}, tables: {{shop.orders: {{apply: replace}}}}}}"
    error = refused(tmp_path, f"name: a\nroot: b\n{said}\n")
    assert error.where.endswith("field mirror.tables.shop.orders.apply")
    assert named in error.what


def test_large_tables_can_be_loaded_on_spark(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: 'postgresql://c'}\n"
    project = load(write(tmp_path, text), {})
    assert not project.capture.parts_on_spark
    assert project.source == PostgresSection(
        type="postgresql", url=SecretStr("postgresql://c")
    ).settings("a")
    asked = text + "load: {on: spark, connections: 3, part_bytes: 1MiB}\n"
    project = load(write(tmp_path, asked), {})
    assert (project.capture.parts_on_spark, project.capture.spark_connections) == (True, 3)
    assert isinstance(project.source, PostgresSettings)
    assert project.source.part_bytes == 1 << 20


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("load: {on: spark}\n", "no source"),
        (
            """load: {on: spark}
source: {type: postgresql, url: 'postgresql://c'}
destination: {type: events, url: ./events}
""",
            "no landing zone",
        ),
    ],
)
def test_nothing_is_loaded_on_spark_without_a_source_and_a_landing_zone(
    tmp_path: Path, text: str, lacks: str
) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\n{text}")
    assert lacks in str(error)
    assert "load.on" in error.where


def test_large_tables_can_be_loaded_beside_their_changes(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: 'postgresql://c'}\n"
    assert load(write(tmp_path, text), {}).capture.load_beside == 10 << 30
    for others in ["landing: {strict: true}", "load: {'on': spark}", "load: {beside_bytes: null}"]:
        assert load(write(tmp_path, f"{text}{others}\n"), {}).capture.load_beside is None
    for kinds in ["{type: events, url: ./e}", "[{type: landing}, {type: events, url: ./e}]"]:
        written = load(write(tmp_path, f"{text}destination: {kinds}\n"), {})
        assert written.capture.load_beside == 10 << 30
    text += "load: {beside_bytes: 1GiB}\n"
    assert load(write(tmp_path, text), {}).capture.load_beside == 1 << 30
    error = refused(tmp_path, text + "landing: {strict: true}\n")
    assert "this value of landing.strict" in str(error)
    assert "load.beside_bytes" in error.where
