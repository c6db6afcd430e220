"""What is checked before a run: each finding, and that its remedy helps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from psycopg import sql

from mirrorlake.errors import PrerequisiteMissing, TableError
from mirrorlake.sources.base import CheckResult, CheckSeverity
from mirrorlake.sources.postgresql.checks import server_checks
from tests.conformance.scene import loaded, until
from tests.conftest import Database
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

OK, WARNING, ERROR = CheckSeverity.OK, CheckSeverity.WARNING, CheckSeverity.ERROR
APPLES = "create table apples (id int primary key, size int)"


def findings(captured: Captured, check: str) -> list[CheckResult]:
    return [finding for finding in captured.source().check() if finding.check == check]


def the_finding(captured: Captured, check: str, severity: CheckSeverity) -> CheckResult:
    """The one finding of a check that has this severity."""
    (found,) = [f for f in findings(captured, check) if f.severity is severity]
    return found


def cure(captured: Captured, finding: CheckResult) -> None:
    """Run the statements that the remedy names, as a superuser."""
    for statement in re.findall("`((?!mirrorlake )[^`]+)`", finding.remedy):
        captured.run(statement)


@pytest.fixture
def visitor(database: Database) -> Iterator[Captured]:
    """A database as an ordinary user sees it, who may replicate and owns the schema public."""
    user = f"visitor_{database.name}"
    database.execute(
        f"create role {user} login replication password '{user}'",
        f"grant create on database {database.name} to {user}",
        f"alter schema public owner to {user}",
        f"set role {user}",
        APPLES,
        "reset role",
    )
    own = replace(database, url=database.url_as(user))
    captured = Captured(database, own.settings())
    yield captured
    captured.close()
    database.execute(f"reassign owned by {user} to postgres", f"drop owned by {user}")
    database.execute(f"drop role {user}")


def test_a_prepared_database_has_nothing_but_warnings(any_captured: Captured) -> None:
    any_captured.run(APPLES)
    found = any_captured.source().check()
    assert {f.check for f in found} >= {"reachable", "version", "wal_level", "rights"}
    assert [f for f in found if f.severity is ERROR] == []


def test_checking_changes_nothing(captured: Captured) -> None:
    captured.run(APPLES)
    captured.select("public.*", rows={"public.apples": "id > 0"})
    captured.source().check()
    assert captured.source().objects.occupied() is None
    assert captured.database.sql.execute("select from pg_publication").fetchall() == []


def test_the_version_is_told(captured: Captured) -> None:
    captured.run(APPLES)
    assert the_finding(captured, "version", OK).message.startswith("PostgreSQL 18.")


def test_wal_without_a_limit_is_a_warning(captured: Captured) -> None:
    captured.run(APPLES)
    finding = the_finding(captured, "max_slot_wal_keep_size", WARNING)
    assert "fills the disk" in finding.message


# -- rights --------------------------------------------------------------------------------------


def test_an_ordinary_user_with_these_rights_can_capture(visitor: Captured) -> None:
    assert [f for f in visitor.source().check() if f.severity is ERROR] == []
    visitor.begin()
    assert len(visitor.changes("insert into apples values (1, 2)")) == 1


def test_a_user_who_may_not_replicate_is_told_how(visitor: Captured) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(f"alter role {user} noreplication")
    finding = the_finding(visitor, "rights", ERROR)
    assert "may not replicate" in finding.message
    cure(visitor, finding)
    assert the_finding(visitor, "rights", OK)


@pytest.mark.parametrize(
    "function", ["pg_drop_replication_slot(name)", "pg_current_wal_insert_lsn()"]
)
def test_a_user_who_may_not_execute_a_function_is_told_which(
    visitor: Captured, function: str
) -> None:
    visitor.run(f"revoke execute on function {function} from public")
    name = function.split("(", maxsplit=1)[0]
    finding = the_finding(visitor, "rights", ERROR)
    assert f"may not execute {name}(" in finding.message
    if name == "pg_drop_replication_slot":
        with pytest.raises(PrerequisiteMissing, match=f"may not execute {name}"):
            visitor.begin()
    cure(visitor, finding)
    assert the_finding(visitor, "rights", OK)
    visitor.begin()


def test_a_user_who_may_not_create_a_publication_is_told_how(visitor: Captured) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(f"revoke create on database {visitor.database.name} from {user}")
    finding = the_finding(visitor, "publication", ERROR)
    assert "may not create publication" in finding.message
    with pytest.raises(PrerequisiteMissing, match="permission denied"):
        visitor.begin()
    cure(visitor, finding)
    assert findings(visitor, "publication") == []


def test_a_user_whose_transactions_are_read_only_is_told_how(visitor: Captured) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(f"alter role {user} set default_transaction_read_only = on")
    finding = the_finding(visitor, "publication", ERROR)
    assert "read-only" in finding.message
    statement, creation, *_ = re.findall("`([^`]+)`", finding.remedy)
    with pytest.raises(PrerequisiteMissing, match="read-only"):
        visitor.begin()
    visitor.run(statement)
    assert creation.startswith("create publication")
    assert findings(visitor, "publication") == []


def test_a_user_without_that_right_captures_by_the_publication_of_another(
    visitor: Captured,
) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(
        f"revoke create on database {visitor.database.name} from {user}",
        f"create publication {visitor.settings.publication} for table apples",
    )
    assert visitor.begin() == [f"replication slot {visitor.settings.slot}"]
    assert len(visitor.changes("insert into apples values (1, 2)")) == 1


PEARS = ("create table pears (id int primary key)", "grant select on pears to public")


def test_the_owner_of_a_table_gives_the_right_to_publish_it(visitor: Captured) -> None:
    owner = f"grower_{visitor.database.name}"
    visitor.run(*PEARS, f"create role {owner}", f"alter table pears owner to {owner}")
    finding = the_finding(visitor, "publication", ERROR)
    assert "it does not own public.pears" in finding.message
    assert finding.remedy.startswith(f'Run `grant "{owner}" to')
    with pytest.raises(PrerequisiteMissing, match="must be owner"):
        visitor.begin()
    cure(visitor, finding)
    assert findings(visitor, "publication") == []


@pytest.mark.parametrize("is_member", [True, False])
def test_a_user_who_inherits_nothing_is_told_how_to(visitor: Captured, is_member: bool) -> None:
    user, owner = f"visitor_{visitor.database.name}", f"grower_{visitor.database.name}"
    visitor.run(*PEARS, f"create role {owner}", f"alter table pears owner to {owner}")
    visitor.run(f"alter role {user} noinherit", *[f"grant {owner} to {user}"] * is_member)
    finding = the_finding(visitor, "publication", ERROR)
    assert "inherit" in finding.remedy
    statements = re.findall("`([^`]+)`", finding.remedy)
    visitor.run(*statements[:-1])  # the last one is for an administrator
    assert findings(visitor, "publication") == []
    visitor.begin()


def test_the_role_of_a_superuser_is_not_given(visitor: Captured) -> None:
    visitor.run(*PEARS)
    finding = the_finding(visitor, "publication", ERROR)
    assert "grant" not in finding.remedy
    cure(visitor, finding)
    assert findings(visitor, "publication") == []
    assert f"publication {visitor.settings.publication}" not in visitor.begin()
    assert len(visitor.changes("insert into pears values (1)")) == 1


def test_the_owner_of_a_publication_adds_a_table_to_it(visitor: Captured) -> None:
    visitor.run(f"create publication {visitor.settings.publication} for table apples", *PEARS)
    finding = the_finding(visitor, "owner", ERROR)
    assert str(finding.table) == "public.pears"
    assert "it does not own the publication" in finding.message
    with pytest.raises(PrerequisiteMissing, match="must be owner"):
        visitor.begin()
    cure(visitor, finding)
    assert findings(visitor, "owner") == []


def test_a_table_of_another_owner_that_is_published_is_no_error(visitor: Captured) -> None:
    visitor.run(
        "create table pears (id int primary key)",
        "grant select on pears to public",
        f"create publication {visitor.settings.publication} for table apples, pears",
    )
    assert findings(visitor, "owner") == []


def test_a_schema_that_may_not_be_used_is_an_error(visitor: Captured) -> None:
    revoke = "revoke usage on schema public from public"
    visitor.run("alter schema public owner to current_user", revoke)
    finding = the_finding(visitor, "schema", ERROR)
    assert "may not use schema public" in finding.message
    cure(visitor, finding)
    assert findings(visitor, "schema") == []
    assert visitor.snapshot("apples") == []


def test_a_column_that_may_not_be_read_is_an_error(visitor: Captured) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(f"revoke select on apples from {user}", f"grant select (id) on apples to {user}")
    finding = the_finding(visitor, "select", ERROR)
    assert "may not read column size" in finding.message
    cure(visitor, finding)
    assert findings(visitor, "select") == []


def test_a_column_that_may_not_be_read_can_be_left_out(visitor: Captured) -> None:
    user = f"visitor_{visitor.database.name}"
    visitor.run(f"revoke select on apples from {user}", f"grant select (id) on apples to {user}")
    visitor.select("public.*", columns={"public.apples": ["id"]})
    assert findings(visitor, "select") == []
    assert visitor.snapshot("apples") == []


@pytest.mark.parametrize(("columns", "parts"), [("", 4), ("(id)", 1)])
def test_who_may_read_columns_only_reads_a_large_table_in_one_part(
    visitor: Captured, columns: str, parts: int
) -> None:
    """Where rows are is no column."""
    user = f"visitor_{visitor.database.name}"
    visitor.run(
        "insert into apples select g, g from generate_series(1, 800) g",
        f"revoke select on apples from {user}",
        f"grant select {columns} on apples to {user}",
    )
    visitor.select("public.*", columns={"public.apples": ["id"]})
    source = visitor.source(part_bytes=8192)
    (table,) = source.discover()
    snapshot = source.snapshot()
    found = snapshot.parts(table)
    assert [snapshot.facts(part) is None for part in found] == [bool(columns)] * parts
    assert len(loaded(snapshot, table)) == 800
    snapshot.close()


def test_rows_that_a_policy_hides_are_an_error(visitor: Captured) -> None:
    visitor.run(
        "alter table apples enable row level security, force row level security",
        "insert into apples values (1, 1)",
    )
    finding = the_finding(visitor, "row security", ERROR)
    assert "hides rows" in finding.message
    cure(visitor, finding)
    assert findings(visitor, "row security") == []
    assert visitor.snapshot("apples") == [{"id": 1, "size": 1}]


def test_rows_that_a_policy_hides_are_never_left_out_of_a_load(visitor: Captured) -> None:
    visitor.run("alter table apples enable row level security, force row level security")
    with pytest.raises(TableError, match="cannot be read"):
        visitor.snapshot("apples")


def test_transactions_that_stay_open_are_named_with_what_ends_them(
    any_captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured, url = any_captured, any_captured.database.url
    captured.run(APPLES)
    (found,) = findings(captured, "transactions")
    assert found.severity is OK
    monkeypatch.setattr(server_checks, "LONG_TRANSACTION", timedelta(0))
    gid = f"it's {captured.database.name}"

    def told(what: str) -> list[CheckResult]:
        return [f for f in findings(captured, "transactions") if what in f.message]

    with (
        closing(psycopg.connect(url, autocommit=True)) as one,
        closing(psycopg.connect(url)) as other,
    ):
        one.execute("begin")
        one.execute("insert into apples values (1)")
        one.execute(sql.SQL("prepare transaction {}").format(sql.Literal(gid)))
        other.execute("insert into apples values (2)")
        names = (f"as 'it''s {captured.database.name}' in", f"{other.info.backend_pid} of postgres")
        for name in names:
            (found,) = told(name)
            assert found.severity is WARNING
            cure(captured, found)
        until(lambda: not any(map(told, names)))
    assert captured.snapshot("apples") == []
