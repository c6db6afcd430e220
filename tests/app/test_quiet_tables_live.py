"""Tables that are altered, and of which no row changes afterwards: what is told and kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, LiteralString

import psycopg
import pytest

from mirrorlake import Project, root
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.capture.backfill.jobs import BackfillJobState, BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition import table_message
from mirrorlake.sources.postgresql.recognition.known import Attribute, Known, TableLook
from mirrorlake.sources.postgresql.recognition.row_identity import RowIdentity
from mirrorlake.sources.postgresql.recognition.table_message import ColumnState, TableMessage
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLES = [
    f"create table {name} (id int primary key, a text, b text);"
    f"insert into {name} select g, 'a' || g, 'b' || g from generate_series(1, 5) g"
    for name in ("swapped", "reused", "filled", "volatile", "plain", "dropped", "retyped")
]
TABLES += [
    (
        "create table split (id int primary key, a text, b text) partition by range (id);"
        "create table split_1 partition of split for values from (0) to (4);"
        "create table split_2 partition of split for values from (4) to (100);"
        "insert into split select g, 'a' || g, 'b' || g from generate_series(1, 5) g"
    ),
    (
        "create table whole (id int, a text, b text); alter table whole replica identity full;"
        "insert into whole select g, 'a' || g, 'b' || g from generate_series(1, 5) g"
    ),
]
ALTERATIONS = {
    "swapped": "alter table swapped rename a to c; alter table swapped rename b to a; "
    "alter table swapped rename c to b",
    "reused": "alter table reused drop a; alter table reused add a text default 'new'",
    "filled": "alter table filled add c int default 7",
    "volatile": "alter table volatile add c text default gen_random_uuid()",
    "plain": "alter table plain add c int",
    "dropped": "alter table dropped drop b",
    "retyped": "alter table retyped alter id type bigint",
    "split": "alter table split rename a to c; alter table split add a text default 'new'",
    "whole": "alter table whole rename a to c; alter table whole add a text default 'new'",
}
DIFFERING = {"swapped", "reused", "filled", "volatile", "retyped", "split", "whole"}


@pytest.fixture
def evolving(any_database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(any_database, store)
    evolving.begin(*TABLES)
    return evolving


def statuses(evolving: EvolvingDatabase) -> dict[str, TableStatus]:
    found = mirror_status.read(Project.of_root(evolving.store.root))
    return {one.table.removeprefix("public."): one for one in found.tables}


def test_tables_are_followed_without_a_row(evolving: EvolvingDatabase) -> None:
    evolving.run(*ALTERATIONS.values())
    evolving.capture()
    evolving.apply()
    check(evolving)
    evolving.run(*(f"insert into {name} (id) values (9)" for name in ALTERATIONS))
    evolving.capture()
    evolving.apply()
    check(evolving)


@pytest.mark.parametrize(
    "options",
    [
        {"soft": True},
        {"metadata": True},
        {"drops": True, "renames": True, "widens": True},
        {"load": ("public.none",)},
    ],
)
def test_tables_are_followed_with_settings(
    any_database: Database, store: LocalStore, options: dict[str, Any]
) -> None:
    evolving = EvolvingDatabase(any_database, store, **options)
    tables = TABLES[:-1] if "soft" in options else TABLES  # which need a key then
    evolving.begin(*tables)
    if "load" in options:
        evolving.run(*(f"update {name} set b = b || '!'" for name in ALTERATIONS))
    names = [name for name in ALTERATIONS if name != "whole" or "soft" not in options]
    evolving.run(*(ALTERATIONS[name] for name in names))
    evolving.capture()
    evolving.apply()
    check(evolving, names)


def check(evolving: EvolvingDatabase, names: Iterable[str] = ALTERATIONS) -> None:
    """Tables have the columns and the rows of their source, and nothing is found about any."""
    for name in names:
        evolving.check(name)
    assert not any(one.differs for one in statuses(evolving).values())


@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.CHANGES_STAGED,
        CrashPoint.CHANGES_PUBLISHED_ONE,
        CrashPoint.CHANGES_PUBLISHED,
        CrashPoint.CUT_WRITTEN,
        CrashPoint.ACKNOWLEDGED,
        CrashPoint.BACKFILL_REQUIRED,
        CrashPoint.BACKFILL_PUBLISHED,
    ],
)
@pytest.mark.parametrize("altered_again", [False, True], ids=["once", "twice"])
def test_a_crash_follows_no_table_twice(
    evolving: EvolvingDatabase, point: CrashPoint, altered_again: bool
) -> None:
    evolving.run(*ALTERATIONS.values())
    assert evolving.capture(Dying(point))
    if altered_again:
        evolving.run(ALTERATIONS["swapped"], "alter table plain drop c, add d int default 3")
        evolving.run("alter table filled rename c to d")
    evolving.capture()
    evolving.apply()
    check(evolving)


def test_rows_beside_the_alteration(evolving: EvolvingDatabase) -> None:
    rows = [f"insert into {name} (id) values (%s)" for name in ALTERATIONS]
    evolving.run(*(row % 7 for row in rows))
    for name, statement in ALTERATIONS.items():
        evolving.run(f"insert into {name} (id) values (8); {statement}")
    evolving.capture()
    evolving.apply()
    check(evolving)
    evolving.run(ALTERATIONS["swapped"], "insert into swapped (id) values (11)")
    evolving.run("alter table plain drop c; insert into plain (id) values (11)")
    evolving.capture()
    evolving.apply()
    check(evolving)


def test_a_running_capture_follows_within_a_look(evolving: EvolvingDatabase) -> None:
    with evolving.running():
        for statement in ALTERATIONS.values():
            evolving.run(statement)
        until(lambda: followed(evolving))
    check(evolving)


def test_a_requested_backfill_lets_capture_look(evolving: EvolvingDatabase) -> None:
    """It looks at the catalog once a day."""
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    with evolving.running(watch_seconds=86_400) as capture:
        until(lambda: capture.loop is not None)
        evolving.run(*ALTERATIONS.values())
        for name in ALTERATIONS:
            jobs.request(BackfillRequest(f"job-{name}", f"public.{name}", None, None, name))
        until(lambda: all(job.state.is_over for job in jobs.jobs()))
    assert {job.state for job in jobs.jobs()} == {BackfillJobState.COMPLETED}
    evolving.apply()
    check(evolving)


def followed(evolving: EvolvingDatabase) -> bool:
    evolving.apply()
    columns = {name: evolving.columns(name) for name in ("filled", "plain", "volatile")}
    jobs = BackfillRecords(Records(evolving.store, root.LANDING)).jobs()
    is_read = all(job.state.is_over for job in jobs)
    return is_read and all("c" in names for names in columns.values())


def test_messages_of_others_are_not_followed(evolving: EvolvingDatabase) -> None:
    evolving.run("alter table plain add c int default 7")
    with psycopg.connect(evolving.database.url, autocommit=True) as connection:
        oid = one(connection, "select 'plain'::regclass::oid::bigint")
        known = Records(evolving.store, root.LANDING).known()["public.plain"]
        before = ColumnState.of(Known.of(known))
        other = Attribute(1, "id", 3, (), "integer", 23), Attribute(2, "gone", 3, (), "string", 25)
        look = TableLook(
            Lsn(0), 3, known["node"], other, identity=RowIdentity("d", primary=("id",))
        )
        assert TableMessage(oid, before, look).write(connection, "another secret")
        for content in ("", "x" * 100, "{}", "\u00e4" * 64 + "{}"):
            connection.execute(
                "select pg_logical_emit_message(true, 'mirrorlake_table', %s)", [content]
            )
            connection.execute(
                "select pg_logical_emit_message(false, 'mirrorlake_table', %s)", [content]
            )
    evolving.capture()
    evolving.apply()
    evolving.check("plain")
    assert evolving.columns("plain") == ["id", "a", "b", "c"]


def test_a_table_differs_where_nothing_may_be_written(
    evolving: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_message.TableMessage, "write", lambda *_: None)
    evolving.run(*ALTERATIONS.values())
    evolving.capture()
    evolving.apply()
    found = statuses(evolving)
    assert {name for name, one in found.items() if one.differs} == DIFFERING
    told = found["swapped"].facts()["differs"]
    assert "next change of a row" in told["reason"]
    assert told["since"]
    evolving.run(*(f"insert into {name} (id) values (9)" for name in ALTERATIONS))
    evolving.capture()
    evolving.apply()
    check(evolving)


def test_who_may_not_write_is_not_stopped(evolving: EvolvingDatabase) -> None:
    user = f"reader_{evolving.database.name}"
    evolving.run(
        f"create role {user} login password '{user}'",
        "do $$ declare f regprocedure; begin for f in select oid::regprocedure from pg_proc "
        "where proname = 'pg_logical_emit_message' loop "
        "execute format('revoke execute on function %s from public', f); end loop; end $$",
    )
    message = TableMessage(1, ColumnState({}, {}, 0), TableLook(Lsn(0), 0, 0, ()))
    with psycopg.connect(evolving.database.url_as(user), autocommit=True) as connection:
        assert message.write(connection, "secret") is None
        assert one(connection, "select 1") == 1


def one(connection: psycopg.Connection[Any], query: LiteralString) -> Any:
    ((found,),) = connection.execute(query).fetchall()
    return found


@pytest.mark.parametrize("soft", [False, True])
def test_a_backfill_keeps_the_values_of_columns_that_are_gone(
    any_database: Database, store: LocalStore, soft: bool
) -> None:
    """soft: rows are compared when they are folded."""
    evolving = EvolvingDatabase(any_database, store, soft=soft)
    evolving.begin(*TABLES[:-1])
    evolving.run("alter table dropped drop b", "insert into dropped values (6, 'a6')")
    evolving.run("alter table plain rename b to c", "insert into plain values (6, 'a6', 'b6')")
    evolving.capture()
    evolving.apply()
    before = {name: evolving.mirrored(name) for name in ("dropped", "plain")}
    assert sum(row["b"] is not None for row in before["dropped"]) == 5
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    for name in before:
        jobs.request(BackfillRequest(f"job-{name}", f"public.{name}", None, None, name))
    played = {name: evolving.played(name) for name in before}
    evolving.capture()
    evolving.apply()
    for name, rows in before.items():
        assert sorted(evolving.mirrored(name), key=str) == sorted(rows, key=str)
        assert evolving.played(name) == played[name]


@pytest.mark.parametrize("quiet", [False, True])
def test_a_key_that_is_added_after_a_crash(evolving: EvolvingDatabase, quiet: bool) -> None:
    """Changes were landed by all columns, and come again when the catalog shows a key."""
    evolving.run("update whole set a = 'x' where id = 1")
    assert evolving.capture(Dying(CrashPoint.CHANGES_PUBLISHED))
    evolving.run("alter table whole add primary key (id)")
    if not quiet:
        evolving.run(
            "update whole set a = 'y' where id = 2", "update whole set id = 8 where id = 3"
        )
    evolving.capture()
    evolving.apply()
    evolving.check("whole")
    evolving.run("delete from whole where id = 1", "insert into whole values (10, 'a', 'b')")
    evolving.capture()
    evolving.apply()
    evolving.check("whole")
