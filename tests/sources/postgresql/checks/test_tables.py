"""What is checked of each table and of what is published: each finding, and its remedy."""

from __future__ import annotations

import psycopg
import pytest

from mirrorlake.demo.server import EmbeddedServer
from mirrorlake.errors import PrerequisiteMissing
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.checks import server_checks
from tests.conformance.scene import faults
from tests.conftest import database_on
from tests.sources.postgresql.captured import Captured
from tests.sources.postgresql.checks.test_server import cure, findings, the_finding

pytestmark = pytest.mark.postgres

OK, WARNING, ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR
APPLES = "create table apples (id int primary key, size int)"


def watched(captured: Captured, check: str) -> list[CheckResult]:
    found = captured.source().watch(captured.tables)
    return [f for f in found if f.check == check and f.severity is not OK]


def test_no_selected_table_is_an_error(captured: Captured) -> None:
    found = the_finding(captured, "tables", ERROR)
    assert found.message == "no table is selected"
    assert found.remedy.endswith("The database has no tables yet.")


def test_where_no_table_is_selected_the_patterns_that_would_are_named(captured: Captured) -> None:
    captured.select("public.*")
    captured.run('create schema "Sales"', 'create table "Sales".orders (id int primary key)')
    remedy = the_finding(captured, "tables", ERROR).remedy
    assert remedy.endswith('The database has tables for "Sales.*".')
    captured.select("Sales.*")
    assert captured.source().discover()


def test_a_table_pattern_that_matches_nothing_is_a_warning(captured: Captured) -> None:
    captured.run(APPLES)
    captured.select("public.*", "!public.aples")
    assert "!public.aples" in the_finding(captured, "selection", WARNING).message
    assert captured.source().discover()


def test_a_column_pattern_for_what_may_come_is_a_warning(captured: Captured) -> None:
    captured.run(APPLES)
    captured.select("public.*", columns={"public.apples": ["*", "!secret_*"]})
    assert "!secret_*" in the_finding(captured, "selection", WARNING).message
    assert captured.source().discover()


@pytest.mark.parametrize(
    "selection",
    [
        {"columns": {"public.apples": ["*", "!sise"]}},
        {"columns": {"public.aples": ["*", "!size"]}},
        {"rows": {"public.aples": "size > 5"}},
    ],
)
def test_words_on_columns_and_rows_that_are_not_there_are_an_error(
    captured: Captured, selection: dict[str, dict[str, object]]
) -> None:
    captured.run(APPLES)
    captured.select("public.*", **selection)
    told = the_finding(captured, "selection", ERROR).message
    with pytest.raises(PrerequisiteMissing) as refused:
        captured.source().discover()
    assert refused.value.what == told


@pytest.mark.parametrize("identity", ["full", "default", "nothing"])
@pytest.mark.parametrize("columns", ["", "a int generated always as (1) stored"])
def test_a_table_without_columns_has_nothing_to_mirror(
    captured: Captured, columns: str, identity: str
) -> None:
    captured.run(
        f"create table apples ({columns})", f"alter table apples replica identity {identity}"
    )
    found = [one for one in findings(captured, "columns") if "nothing of its rows" in one.message]
    assert [one.severity for one in found] == [WARNING]
    assert findings(captured, "replica identity") == []
    captured.run("alter table apples add column id int primary key")
    assert not any("nothing of" in one.message for one in findings(captured, "columns"))


def test_an_unlogged_table_is_an_error(captured: Captured) -> None:
    captured.run("create unlogged table apples (id int primary key)")
    cure_first_statement(captured, the_finding(captured, "logged", ERROR))
    assert findings(captured, "logged") == []


def test_an_unlogged_partition_is_an_error(captured: Captured) -> None:
    captured.run(
        "create table apples (id int primary key) partition by list (id)",
        "create unlogged table first partition of apples for values in (1)",
        "create table second partition of apples for values in (2)",
    )
    finding = the_finding(captured, "logged", ERROR)
    assert finding.message.startswith("partition public.first is unlogged")
    cure_first_statement(captured, finding)
    assert findings(captured, "logged") == []


def test_a_foreign_partition_is_an_error(captured: Captured) -> None:
    captured.run(
        "create foreign data wrapper none",
        "create server nowhere foreign data wrapper none",
        "create table apples (id int) partition by list (id)",
        "create foreign table first partition of apples for values in (1) server nowhere",
    )
    assert "first is a foreign table" in the_finding(captured, "logged", ERROR).message


@pytest.mark.full
def test_an_unlogged_partitioned_table_is_an_error(postgres16: EmbeddedServer) -> None:
    """Which PostgreSQL 18 does not make any more."""
    for database in database_on(postgres16):
        captured = Captured(database, database.settings())
        captured.run("create unlogged table apples (id int primary key) partition by list (id)")
        assert "again without UNLOGGED" in the_finding(captured, "logged", ERROR).remedy
        captured.close()


def test_an_unlogged_table_needs_no_publication(captured: Captured) -> None:
    captured.run(APPLES, "create unlogged table pears (id int primary key)")
    captured.run(f"create publication {captured.settings.publication} for table apples")
    captured.run(
        f"select pg_create_logical_replication_slot('{captured.settings.slot}', 'pgoutput')"
    )
    assert findings(captured, "publication") == []


def test_generated_columns_are_a_warning(captured: Captured) -> None:
    captured.run("create table apples (id int primary key, b int generated always as (id) stored)")
    assert the_finding(captured, "columns", WARNING).message.endswith(": b")


def test_generated_columns_that_are_published_are_an_error(captured: Captured) -> None:
    captured.run("create table apples (id int primary key, b int generated always as (id) stored)")
    name = captured.settings.publication
    published = f"create publication {name} for all tables with ({{}}publish_via_partition_root)"
    captured.run(published.format("publish_generated_columns = stored, "))
    finding = the_finding(captured, "columns", ERROR)
    assert finding.message.startswith(f"publication {name} publishes generated column b")
    cure(captured, finding)
    assert ERROR not in {found.severity for found in findings(captured, "columns")}


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ("__rowmarker__", "has a reserved name"),
        ("_change_type", "has a reserved name"),
        ("_Mirrorlake_position", "has a reserved name"),
        ("_Commit_Version", "has a reserved name"),
        ("ID", "differs from column id only in case"),
    ],
)
class TestRefusedColumns:
    """Columns that no table can have under their names."""

    def test_they_are_an_error(self, captured: Captured, column: str, reason: str) -> None:
        captured.run(f'create table apples (id int primary key, "{column}" int)')
        finding = the_finding(captured, "columns", ERROR)
        assert finding.message == f"column {column} {reason}"
        (table,) = captured.source().discover()
        assert table.refused is not None
        assert table.refused.facts()["column"] == column

    def test_they_can_be_left_out(self, captured: Captured, column: str, reason: str) -> None:
        captured.run(f'create table apples (id int primary key, "{column}" int)')
        captured.select("public.*", columns={"public.apples": ["*", f"!{column}"]})
        assert findings(captured, "columns") == []

    def test_one_that_is_added_stops_its_table(
        self, captured: Captured, column: str, reason: str
    ) -> None:
        captured.begin(APPLES)
        chunks = captured.chunks(
            f'alter table apples add column "{column}" int', "insert into apples values (1, 2, 3)"
        )
        assert [fault.error.code for fault in faults(chunks)] == ["unsupported_column"]


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["create table apples (id int)"], "it has no primary key"),
        (["create table apples (id int, primary key (id) deferrable)"], "is deferrable"),
    ],
)
def test_a_table_without_a_key_is_a_warning(
    captured: Captured, statements: list[str], reason: str
) -> None:
    captured.run(*statements)
    finding = the_finding(captured, "replica identity", WARNING)
    assert reason in finding.message
    assert 'alter table "public"."apples" add primary key' in finding.remedy
    assert 'alter table "public"."apples" replica identity full' in finding.remedy


def test_a_table_whose_rows_are_told_whole_is_as_it_should_be(captured: Captured) -> None:
    captured.run("create table apples (id int)", "alter table apples replica identity full")
    assert "by all columns" in the_finding(captured, "replica identity", OK).message


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([APPLES, "alter table apples replica identity nothing"], "is NOTHING"),
        (
            [
                "create table apples (id int primary key, size int not null)",
                "create unique index by_size on apples (size)",
                "alter table apples replica identity using index by_size",
                "drop index by_size",
            ],
            "index of its replica identity no longer exists",
        ),
        (
            [
                "create table apples (id int primary key) partition by hash (id)",
                "create table part partition of apples for values with (modulus 1, remainder 0)",
                "alter table part replica identity nothing",
            ],
            "identity of partition public.part does not contain its key",
        ),
    ],
    ids=["nothing", "dropped index", "partition"],
)
def test_a_key_that_the_log_does_not_tell_is_a_warning_with_a_cure(
    captured: Captured, statements: list[str], reason: str
) -> None:
    captured.run(*statements)
    finding = the_finding(captured, "replica identity", WARNING)
    assert reason in finding.message
    cure(captured, finding)
    assert the_finding(captured, "replica identity", OK).message == "key id"


@pytest.mark.parametrize(
    ("condition", "reason"),
    [("size > 5", "uses size"), ("no_such_column > 5", "does not exist"), ("(", "syntax error")],
)
def test_a_row_condition_that_cannot_be_published_is_an_error(
    captured: Captured, condition: str, reason: str
) -> None:
    captured.run(APPLES)
    captured.select("public.*", rows={"public.apples": condition})
    assert reason in the_finding(captured, "rows", ERROR).message


def test_a_row_condition_on_other_columns_is_cured_by_identity_full(captured: Captured) -> None:
    captured.run(APPLES)
    captured.select("public.*", rows={"public.apples": "size > 5"})
    cure(captured, the_finding(captured, "rows", ERROR))
    assert findings(captured, "rows") == []


# -- while running -------------------------------------------------------------------------------


def test_a_slot_that_is_gone_is_an_error(captured: Captured) -> None:
    captured.begin(APPLES)
    captured.run(f"select pg_drop_replication_slot('{captured.settings.slot}')")
    (finding,) = watched(captured, "slot")
    assert finding.severity is ERROR
    assert "mirrorlake repair" in finding.remedy


def test_a_publication_that_is_gone_is_an_error(captured: Captured) -> None:
    captured.begin(APPLES)
    captured.run(f"drop publication {captured.settings.publication}")
    (finding,) = watched(captured, "publication")
    assert finding.severity is ERROR
    assert the_finding(captured, "publication", ERROR) == finding


def test_a_publication_for_keyless_tables_that_is_gone_is_an_error(captured: Captured) -> None:
    captured.begin(APPLES, "create table log (id int)")
    captured.run(f"drop publication {captured.settings.append_publication}")
    (finding,) = watched(captured, "publication")
    assert finding.severity is ERROR


@pytest.mark.parametrize("table", ["apples", "log"])
def test_a_table_that_was_taken_out_of_its_publication_is_an_error(
    captured: Captured, table: str
) -> None:
    captured.begin(APPLES, "create table log (id int)")
    captured.run(f"drop table {table}")
    (finding,) = watched(captured, "publication")
    assert (str(finding.table), finding.severity) == (f"public.{table}", ERROR)
    assert f"mirrorlake repair public.{table}" in finding.remedy


def test_a_table_that_is_renamed_during_the_look_is_still_in_its_publication(
    captured: Captured,
) -> None:
    captured.begin(APPLES)
    captured.run("alter table apples rename to cherries")
    looked = server_checks.watch(captured.database.sql, captured.settings, captured.tables)
    assert [f for f in looked if f.check == "publication" and f.severity is not OK] == []


@pytest.mark.parametrize("operations", ["insert", "insert, update, delete", "delete, truncate"])
def test_a_publication_that_leaves_operations_out_is_an_error(
    captured: Captured, operations: str
) -> None:
    captured.begin(APPLES)
    name = captured.settings.publication
    captured.run(f"alter publication {name} set (publish = '{operations}')")
    (finding,) = watched(captured, "publication")
    assert "does not publish all operations" in finding.message
    cure(captured, finding)
    assert watched(captured, "publication") == []


def test_curing_the_publication_of_keyless_tables_does_not_block_their_users(
    captured: Captured,
) -> None:
    captured.begin("create table log (id int)")
    captured.run(f"alter publication {captured.settings.append_publication} set (publish = '')")
    (finding,) = watched(captured, "publication")
    cure(captured, finding)
    assert watched(captured, "publication") == []
    captured.run("insert into log values (1)", "update log set id = 2", "delete from log")


@pytest.mark.parametrize("which", ["table apples", "all tables"])
def test_a_publication_that_names_partitions_is_an_error(captured: Captured, which: str) -> None:
    captured.run(
        "create table apples (id int primary key) partition by hash (id)",
        "create table part partition of apples for values with (modulus 1, remainder 0)",
        f"create publication {captured.settings.publication} for {which}",
    )
    captured.begin()
    finding = watched(captured, "publication")[0]
    assert "publishes partitions" in finding.message
    cure(captured, finding)
    assert watched(captured, "publication") == []


def test_a_publication_of_all_tables_without_partitions_is_fine(captured: Captured) -> None:
    captured.run(APPLES, f"create publication {captured.settings.publication} for all tables")
    captured.begin()
    assert watched(captured, "publication") == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("alter table apples replica identity using index apples_size_key", "the key (size)"),
        ("alter table apples replica identity nothing", "its replica identity is NOTHING"),
    ],
)
def test_a_key_that_changes_is_told_until_a_row_brings_it(
    captured: Captured, statement: str, told: str
) -> None:
    captured.begin("create table apples (id int primary key, size int not null unique)")
    captured.run("insert into apples values (1, 2)")
    with captured.streaming() as (source, reader):
        reader.read_to(source.current())
        captured.run(statement)
        found = [f for f in source.watch(captured.tables) if f.severity is not OK]
        assert [(f.check, f.severity) for f in found] == [("columns", WARNING)]
        assert f"found their rows by the key (id) and now by {told}" in found[0].message.replace(
            "nothing (", ""
        )
        captured.run("update apples set size = 3", "insert into apples values (2, 4)")


def test_a_table_that_is_recreated_while_running_is_an_error(captured: Captured) -> None:
    captured.run(APPLES, f"create publication {captured.settings.publication} for all tables")
    captured.begin()
    captured.run("drop table apples", APPLES)
    (finding,) = watched(captured, "table")
    assert (str(finding.table), finding.severity) == ("public.apples", ERROR)


def test_columns_that_change_while_running_are_nothing_to_watch_for(captured: Captured) -> None:
    captured.begin(APPLES)
    captured.run("alter table apples drop column size, add column colour text")
    found = captured.source().watch(captured.tables)
    assert [f for f in found if f.severity is not OK] == []


def cure_first_statement(captured: Captured, finding: CheckResult) -> None:
    captured.run(finding.remedy.split("`")[1])


def test_a_table_whose_updates_its_publication_blocks_is_an_error(captured: Captured) -> None:
    captured.run("create table log (line text)")
    captured.run(f"create publication {captured.settings.publication} for all tables")
    captured.run("insert into log values ('a')")
    finding = the_finding(captured, "replica identity", ERROR)
    assert "rejects every update" in finding.message
    with pytest.raises(psycopg.Error, match="does not have a replica identity"):
        captured.run("update log set line = 'b'")
