"""The project file: what it means, and how a wrong one is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from mirrorlake.app.mirror import Mirror
from mirrorlake.config import TEMPLATE, load
from mirrorlake.errors import ConfigError
from mirrorlake.mirror.row_checks import RowChecks
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import StorageLocation

SECRET = "hush-hush"


def write(folder: Path, text: str) -> Path:
    path = folder / "mirrorlake.yaml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str, **environment: str) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        load(write(folder, text), environment)
    return error.value


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
        ("evolve", {"type_widened"}),
        ("stop", set(SchemaChangeKind)),
        ("{type_widened: evolve}", set()),
        ("{table_recreated: stop}", {"table_recreated", "type_widened"}),
        ("{column_renamed: stop}", {"column_renamed", "type_widened"}),
    ],
)
def test_what_a_change_of_columns_does_can_be_set(
    tmp_path: Path, said: str, stops: set[str | SchemaChangeKind]
) -> None:
    found = load(write(tmp_path, f"name: shop\nroot: .\nmirror: {{schema_change: {said}}}\n"), {})
    assert set(found.mirror.stops_at) == set(found.capture.stops_at) == stops


@pytest.mark.parametrize("said", ["ignore", "{column_added: ignore}", "{column_lost: stop}", "[]"])
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
    ],
)
def test_what_has_no_effect_on_tables_of_events_is_refused(
    tmp_path: Path, setting: str, field: str
) -> None:
    text = "name: a\nroot: b\nsource: {type: events, url: ./c}\n"
    assert load(write(tmp_path, text + "mirror: {vacuum_days: 30}\n"), {}).events is not None
    error = refused(tmp_path, text + setting + "\n")
    assert f"{field} has no effect" in str(error)
    assert error.where.endswith(f"field {field}")


def test_a_missing_file_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mirrorlake init"):
        load(tmp_path / "mirrorlake.yaml", {})


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("name: a\nroot: b\nsauce: {}\n", 3, "sauce"),
        ("name: a\nroot: b\ncapture:\n  roll_bites: 3\n", 4, "capture.roll_bites"),
        ("name: a\nroot: b\ncapture:\n  roll_seconds: -1\n", 4, "capture.roll_seconds"),
        ("name: a\nroot: b\nsource:\n  type: oracle\n  url: x\n", 4, "source.type"),
        ("name: a\nroot: b\nsource: {type: postgresql}\n", 3, "source.url"),
        ("name: a\nroot: b\nmirror:\n  deletes: soft\n", 4, "mirror.deletes"),
        ("name: a\n", 1, "root"),
        ("name: a\nroot: b\nsource:\n  type: postgresql\n  url: x\n  slot: Bad Name\n", 6, "slot"),
    ],
)
def test_a_wrong_field_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, field: str
) -> None:
    error = refused(tmp_path, text)
    assert f"line {line}" in error.where
    assert field in error.where


def test_an_unknown_field_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: a\nroot: b\ncapture: {roll: 1}\n")
    assert "roll_bytes, roll_seconds" in error.hint


def test_text_that_is_no_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    assert "line 2" in refused(tmp_path, "name: a\nroot: b: c\n").where


def test_a_missing_variable_is_named_with_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, "name: a\nroot: ${NOWHERE}\n")
    assert "NOWHERE" in error.what
    assert "line 2" in error.where


def test_a_root_may_be_a_url_and_say_how_it_is_reached(tmp_path: Path) -> None:
    project = load(write(tmp_path, "name: a\nroot: s3://bucket/x\n"), {})
    assert project.root == project.tables_elsewhere == StorageLocation("s3://bucket/x")
    assert (project.where, project.mirror.look_seconds) == ("s3://bucket/x", math.inf)
    reached = "{url: '${BUCKET}/x', endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: {reached}\n"), {"BUCKET": "s3://bucket"})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert project.root == StorageLocation("s3://bucket/x", options)
    tables = "root: gs://bucket/x\ntables: {url: s3://bucket/tables}\n"
    project = load(write(tmp_path, f"name: a\n{tables}"), {})
    assert project.root == StorageLocation("gs://bucket/x")
    assert project.tables_elsewhere == StorageLocation("s3://bucket/tables")
    assert load(write(tmp_path, "name: a\nroot: {url: b}\n"), {}).root == tmp_path / "b"


@pytest.mark.parametrize(
    ("root", "field"),
    [
        ("gs://bucket/x", "root"),
        ("abfss://c@account.dfs.core.windows.net/x", "root"),
        ("ftp://bucket/x", "root.url"),
        ("s3://", "root.url"),
        ("s3://key:hunter2@bucket", "root.url"),
        ("s3://bucket/../x", "root.url"),
        ("{url: s3://bucket, endpoint: 'http://me:hunter2@host'}", "root.endpoint"),
        ("{url: s3://bucket, account: me}", "root.account"),
        ("{url: ./folder, endpoint: 'http://host'}", "root.endpoint"),
        ("{url: s3://bucket, secret_access_key: hunter2}", "root.secret_access_key"),
        ("{endpoint: 'http://host'}", "root.url"),
        ("''", "root.url"),
        ("[s3://bucket]", "root.url"),
    ],
)
def test_a_root_that_cannot_be_is_refused(tmp_path: Path, root: str, field: str) -> None:
    error = refused(tmp_path, f"name: a\nroot: {root}\n")
    assert error.where.endswith(f"field {field}")
    assert error.hint
    assert "hunter2" not in str(error)


def test_secrets_appear_in_no_error_and_no_repr(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: ${URL}\n  what: 1\n"
    error = refused(tmp_path, text, URL=f"postgresql://u:{SECRET}@h/d")
    assert SECRET not in str(error)
    good = text.replace("  what: 1\n", "")
    project = load(write(tmp_path, good), {"URL": f"postgresql://u:{SECRET}@h/d"})
    assert SECRET not in repr(project)


@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_variable_is_refused_with_its_name(tmp_path: Path, value: str) -> None:
    text = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: ${SHOP_URL}\n"
    with pytest.raises(ConfigError) as error:
        Mirror(load(write(tmp_path, text), {"SHOP_URL": value})).check()
    assert "SHOP_URL" in error.value.what
    assert "line 5" in error.value.where


FED = "name: a\nroot: b\nsource:\n  type: postgresql\n  url: postgresql://u:${PASSWORD}@h/d\n"


@pytest.mark.parametrize("act", [Mirror.check, Mirror.discover, Mirror.capture_once, Mirror.run])
def test_only_what_connects_needs_the_url_of_the_source(
    tmp_path: Path, act: Callable[[Mirror], object]
) -> None:
    mirror = Mirror.open(load(write(tmp_path, FED), {}))
    assert mirror.status().tables == mirror.plan() == []
    with pytest.raises(ConfigError, match=r"PASSWORD is not set .*line 5.* export PASSWORD="):
        act(mirror)
    assert not (tmp_path / "b").exists()


def test_every_other_variable_is_needed_at_once(tmp_path: Path) -> None:
    assert "SLOT" in refused(tmp_path, f"{FED}  slot: ${{SLOT}}\n").what
    assert "WHERE" in refused(tmp_path, FED.replace("root: b", "root: ${WHERE}")).what


@pytest.mark.parametrize("amount", ["lots", "2", "2gb", "0g", "1.5g", "-1g", "2g -version"])
def test_an_amount_of_memory_that_no_jvm_takes_is_refused(tmp_path: Path, amount: str) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\nspark: {{driver_memory: '{amount}'}}\n")
    assert "line 3, field spark.driver_memory" in error.where
    assert "512m or 2g" in error.what


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("name: a\nroots: b\n", "root"),
        ("name: a\nroot: b\nsources: {}\n", "source"),
        ("name: a\nroot: b\ncapture: {roll_second: 1}\n", "capture.roll_seconds"),
        ("name: a\nroot: b\ndriver_memory: 3g\n", "spark.driver_memory"),
        ("name: a\nroot: b\nurl: x\n", "source.url"),
        ("name: a\nroot: b\nsource: {type: postgresql, url: x, table: [a]}\n", "source.tables"),
    ],
)
def test_a_near_miss_is_answered_with_what_was_meant(tmp_path: Path, text: str, meant: str) -> None:
    assert refused(tmp_path, text).hint.startswith(f"Did you mean {meant}?")


def test_a_far_miss_is_answered_with_no_guess(tmp_path: Path) -> None:
    assert "mean" not in refused(tmp_path, "name: a\nroot: b\nzebra: 1\n").hint


def test_an_empty_url_is_refused(tmp_path: Path) -> None:
    text = 'name: a\nroot: b\nsource:\n  type: postgresql\n  url: ""\n'
    assert "source.url" in refused(tmp_path, text).where


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mirrorlake.yaml"
    path.write_bytes(b"name: caf\xe9\nroot: b\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(path, {})


def test_a_folder_as_project_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    "line",
    [
        "[a, b]: c",
        "landing: {retention_days: 1e300}",
        "landing: {retention_days: 1.0e+300}",
        "landing: {retention_days: .inf}",
        "capture: {roll_seconds: .inf}",
        "default_schema: 2024-99-99",
        "default_schema: !unknown x",
    ],
)
def test_what_yaml_allows_and_no_setting_can_be_is_refused_with_its_line(
    tmp_path: Path, line: str
) -> None:
    assert "line 3" in refused(tmp_path, f"name: a\nroot: b\n{line}\n").where


def test_files_may_be_landed_at_a_url(tmp_path: Path) -> None:
    landing = "{url: s3://bucket/shop, endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: b\nlanding: {landing}\n"), {})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert project.landing == StorageLocation("s3://bucket/shop", options)
    assert load(write(tmp_path, "name: a\nroot: b\n"), {}).landing is None


@pytest.mark.parametrize(
    ("landing", "field"),
    [
        ("{url: ./folder}", "landing.url"),
        ("{url: 'ftp://host/path'}", "landing.url"),
        ("{url: 's3://key:hunter2@bucket'}", "landing.url"),
        ("{url: 's3://bucket/path?token=hunter2'}", "landing.url"),
        ("{url: 's3://'}", "landing.url"),
        ("{url: 's3://bucket', endpoint: 'http://me:hunter2@host'}", "landing.endpoint"),
        ("{region: eu-west-1}", "landing.region"),
        ("{url: 'gs://bucket', endpoint: 'https://host'}", "landing.endpoint"),
        ("{url: 's3://bucket', account: me}", "landing.account"),
        ("{anonymous: true}", "landing.anonymous"),
        ("{url: 's3://bucket', secret_access_key: hunter2}", "landing.secret_access_key"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_repeating_a_secret(
    tmp_path: Path, landing: str, field: str
) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\nlanding: {landing}\n")
    assert f"field {field}" in error.where
    assert error.hint
    assert "hunter2" not in str(error)


def test_tables_may_lie_at_a_url(tmp_path: Path) -> None:
    tables = "{url: s3://bucket/shop, endpoint: http://host:9000, region: eu-west-1}"
    project = load(write(tmp_path, f"name: a\nroot: b\ntables: {tables}\n"), {})
    options = ObjectOptions(endpoint="http://host:9000", region="eu-west-1")
    assert (project.tables, project.landing) == (StorageLocation("s3://bucket/shop", options), None)
    assert load(write(tmp_path, "name: a\nroot: b\n"), {}).tables is None


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        ("{url: ./folder}", "tables.url"),
        ("{url: 'gs://bucket/shop'}", "tables.url"),
        ("{url: 'az://container/shop'}", "tables.url"),
        ("{url: 'abfss://c@account.dfs.core.windows.net/shop'}", "tables.url"),
        ("{url: 's3://key:hunter2@bucket'}", "tables.url"),
        ("{url: 's3://bucket', endpoint: 'http://me:hunter2@host'}", "tables.endpoint"),
        ("{endpoint: 'http://host:9000'}", "tables.endpoint"),
        ("{url: 's3://bucket', account: me}", "tables.account"),
        ("{url: 's3://bucket', secret_access_key: hunter2}", "tables.secret_access_key"),
    ],
)
def test_a_place_where_tables_cannot_lie_is_refused(
    tmp_path: Path, tables: str, field: str
) -> None:
    error = refused(tmp_path, f"name: a\nroot: b\ntables: {tables}\n")
    assert f"field {field}" in error.where
    assert error.hint
    assert "hunter2" not in str(error)


def test_a_setting_under_both_of_its_names_is_refused(tmp_path: Path) -> None:
    text = "name: a\nroot: b\ncapture:\n  debounce_seconds: 3\n  settle_seconds: 3\n"
    error = refused(tmp_path, text)
    assert "line 5, field capture.settle_seconds" in error.where


@pytest.mark.parametrize("source", ["oracle", "{}", "{type: [1]}", "{type: {}}", "[]", "3"])
def test_a_source_of_no_type_that_there_is_is_refused(tmp_path: Path, source: str) -> None:
    assert "field source" in refused(tmp_path, f"name: a\nroot: b\nsource: {source}\n").where


def test_an_unknown_field_of_a_source_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    text = "name: a\nroot: b\nsource: {type: postgresql, url: x, extremes: {days: null}}\n"
    error = refused(tmp_path, text)
    assert error.hint.endswith("The settings here are: dates, numbers.")
    error = refused(tmp_path, text.replace("extremes", "extreme"))
    assert "The settings here are: type, url, tables, columns" in error.hint
