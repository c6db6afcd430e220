"""What capture does not do to its source: wait for locks, keep them, or have updates rejected."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from time import monotonic, sleep
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import WallClock
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.base import CheckSeverity, Inclusion
from mirrorlake.sources.postgresql import autovacuum, connect
from mirrorlake.sources.postgresql.publishing import publication, rejected
from mirrorlake.sources.postgresql.reading import heaps, key_ranges
from mirrorlake.sources.postgresql.reading.by_key import read_rows
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.sources.selection import Selection
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import loaded, until
from tests.conftest import Database
from tests.profiles import some
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text)",
    "create table log (id int)",
    "create table parts (id int primary key) partition by range (id)",
    "create table part1 partition of parts for values from (0) to (100)",
    "insert into apples values (1, 'x')",
    "insert into parts values (1)",
)


@contextmanager
def locked(database: Database, *tables: str) -> Iterator[psycopg.Connection]:
    """Somebody alters these tables, and has not ended."""
    with psycopg.connect(database.url) as other:
        for table in tables:
            other.execute(f"lock table {table} in access exclusive mode")
        yield other


def waiting(database: Database) -> bool:
    """Somebody waits for a lock on a table."""
    query = (
        "select from pg_locks l join pg_database d on d.oid = l.database "
        "where not l.granted and l.locktype = 'relation' and d.datname = current_database()"
    )
    return database.sql.execute(query).fetchone() is not None


def test_looking_at_the_source_waits_for_no_lock(captured: Captured) -> None:
    captured.begin(*TABLES)
    source = captured.source()
    with locked(captured.database, "apples", "log", "parts"):
        assert all(finding.severity != "error" for finding in source.check())
        assert len(source.discover()) == 3
        source.watch(captured.tables)
        assert not source.objects.rejects_changes()
        assert source.objects.retained() is not None


def test_who_waits_for_a_lock_gives_way_after_a_second(any_captured: Captured) -> None:
    """And later than PostgreSQL ends an autovacuum that is in the way."""

    def waits(deadlock: str, role: str = "none") -> list[str]:
        with ours.transaction(force_rollback=True):
            ours.execute(f"set local deadlock_timeout = '{deadlock}'; set local role {role}")
            autovacuum.let_end(ours)
            return [value(f"show {name}_timeout") for name in ("deadlock", "lock")]

    def value(query: str) -> str:
        row = ours.execute(query).fetchone()
        assert row is not None
        return str(row[0])

    with closing(connect.connect(any_captured.settings.url)) as ours:
        assert value("show lock_timeout") == "1s"
        assert waits("1s") == ["500ms", "1s"]
        assert waits("200ms") == ["200ms", "1s"]
        assert waits("1s", "pg_monitor") == ["1s", "1010ms"]
        assert waits("5s", "pg_monitor") == ["5s", "1s"]
        assert value("show lock_timeout") == "1s"


def test_who_waits_for_the_locks_of_several_tables_gives_way_as_for_one(
    captured: Captured,
) -> None:
    """A statement would wait for each of them, and keep those that it has."""
    names = [f"pears_{number}" for number in range(4)]
    captured.begin(*TABLES, *(f"create table {name} (id int primary key)" for name in names))
    settings = captured.settings
    with closing(connect.connect(settings.url)) as ours, ExitStack() as held:
        tables = [captured.discovered(name) for name in names]
        publication.exclude(ours, settings, tables)
        locks = [held.enter_context(locked(captured.database, name)) for name in names]
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(
                connect.patiently, lambda: publication.include(ours, settings, tables)
            )
            longest = 0.0
            for lock in locks:
                released = monotonic() + 0.85
                while monotonic() < released:
                    longest = max(longest, waited(captured, ours))
                lock.rollback()
            adding.result()
        assert 0.5 < longest < 1.6
        state = publication.state_of(ours, settings.publication)
        assert state is not None
        assert {table.in_source for table in tables} <= state.tables


def test_who_reads_a_table_of_many_partitions_gives_way_as_for_one(captured: Captured) -> None:
    """A query would wait for each partition, as long as all are locked one after another."""
    numbers = range(5)
    captured.begin(
        *TABLES,
        *(
            f"create table many{n} partition of parts for values from ({n + 1}00) to ({n + 2}00)"
            for n in numbers
        ),
        "insert into parts select 100 * n from generate_series(1, 5) n",
        "analyze parts",
    )
    table = captured.discovered("parts")
    key = pa.table({"id": pa.array([100], pa.int32())})
    settings = captured.settings

    def reread(connection: connect.Connection) -> int:
        return read_rows(connection, table, key, settings.extremes, lambda *_: None).num_rows

    def listed(connection: connect.Connection) -> int:
        return len(heaps.parts(connection, table, 1 << 20))

    def estimated(connection: connect.Connection) -> int:
        return key_ranges.estimated(connection, table, KeyRange())

    for read, found in ((reread, 1), (listed, 6), (estimated, 6)):
        with closing(connect.connect(settings.url, autocommit=False)) as ours, ExitStack() as held:
            ours.execute("set lock_timeout = '500ms'")
            ours.commit()
            locks = [held.enter_context(locked(captured.database, f"many{n}")) for n in numbers]
            with ThreadPoolExecutor(1) as pool:
                reading = pool.submit(read, ours)
                while not reading.done() and locks:
                    until(partial(is_waiting_or_done, captured, ours, reading))
                    sleep(0.3)
                    locks.pop(0).rollback()
                with pytest.raises(psycopg.errors.LockNotAvailable):
                    reading.result()
            assert len(locks) > 1
            ours.rollback()
            for lock in locks:
                lock.rollback()
            assert read(ours) == found


def is_waiting_or_done(captured: Captured, ours: connect.Connection, reading: Future[int]) -> bool:
    return reading.done() or waited(captured, ours) > 0


def waited(captured: Captured, ours: connect.Connection) -> float:
    """For how many seconds a statement has waited for a lock."""
    query = (
        "select coalesce(max(extract(epoch from clock_timestamp() - query_start)), 0)::float8 "
        f"from pg_stat_activity where wait_event_type = 'Lock' and pid = {ours.info.backend_pid}"
    )
    ((seconds,),) = captured.database.sql.execute(query).fetchall()
    return float(seconds)


@pytest.mark.full
def test_a_table_without_key_that_is_locked_stays_where_it_is_published_for_now(
    captured: Captured,
) -> None:
    """Whatever else the same transaction does goes on."""
    captured.begin(*TABLES)
    captured.run("alter table apples drop constraint apples_pkey")
    settings, table = captured.settings, captured.discovered("apples")
    with closing(connect.connect(settings.url)) as ours:
        with locked(captured.database, "apples"), ours.transaction():
            assert not publication.exclude(ours, settings, [table])
            assert publication.state_of(ours, settings.publication) is not None
        assert publication.exclude(ours, settings, [table])
        state = publication.state_of(ours, settings.publication)
        assert state is not None
        assert table.table not in state.tables


@pytest.mark.full
def test_a_table_without_key_is_not_in_both_publications_when_a_lock_ends_meanwhile(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own users could not update it, and it would stop for that."""
    captured.begin(*TABLES)
    captured.run("alter table apples drop constraint apples_pkey")
    objects, table = captured.source().objects, captured.discovered("apples")
    with locked(captured.database, "apples") as other:

        def take_out(*arguments: Any) -> None:
            try:
                taken(*arguments)
            finally:
                other.rollback()

        taken = publication.take_out
        monkeypatch.setattr(publication, "take_out", take_out)
        assert objects.include_again(table) is Inclusion.LOCKED
        assert objects.include_again(table) is Inclusion.ADDED
    captured.run("update apples set note = 'y'")


@pytest.mark.full
def test_a_load_gives_way_to_who_alters_the_table(captured: Captured) -> None:
    captured.begin(*TABLES)
    snapshot, table = captured.source().snapshot(), captured.discovered("apples")
    with ThreadPoolExecutor(1) as pool:
        with locked(captured.database, "apples"):
            rows = pool.submit(loaded, snapshot, table)
            until(lambda: waiting(captured.database))
            until(lambda: not waiting(captured.database))
            assert not rows.done()
        assert rows.result() == [{"id": 1, "note": "x"}]
    snapshot.close()


def test_a_table_that_is_loaded_can_be_altered_while_others_are_loaded(captured: Captured) -> None:
    captured.begin(*TABLES)
    source = captured.source()
    snapshot = source.snapshot()
    table = captured.discovered("apples")
    for part in snapshot.parts(table):
        assert sum(rows.num_rows for rows in snapshot.read(part)) == 1
    captured.run("set lock_timeout = '1s'", "alter table apples add more int")
    snapshot.close()


@pytest.mark.full
def test_a_table_that_is_added_gives_way_and_is_told(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_LOCK_PAUSE", 0.0)
    monkeypatch.setattr(connect, "_LOCK_ATTEMPTS", 2)
    captured.begin(*TABLES)
    captured.run("create table late (id int primary key)")
    source = captured.source()
    with (
        locked(captured.database, "late"),
        pytest.raises(SourceUnavailable, match="did not grant a lock in time"),
    ):
        source.objects.include(source.discover())


@contextmanager
def running(
    database: Database, store: LocalStore, selection: Selection | None = None
) -> Iterator[None]:
    stop = threading.Event()
    capture = landing_capture(
        PostgresSource(database.settings(selection=selection or Selection())),
        store,
        CaptureSettings(load_workers=1, one_thread=True, heartbeat_seconds=0.2),
        WallClock(),
        stop=stop,
    )
    capture.open()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(capture.run)
        try:
            yield
        finally:
            stop.set()
            run.result()
            capture.close()


def test_the_slot_advances_while_only_others_write(database: Database, store: LocalStore) -> None:
    database.execute(*TABLES, "create table noise (id int)")
    written = "select pg_current_wal_lsn()"
    advanced = "select confirmed_flush_lsn >= %s from pg_replication_slots where slot_name = %s"

    def has_advanced(end: str) -> bool:
        found = database.sql.execute(advanced, [end, database.settings().slot])
        return found.fetchall() == [(True,)]

    with running(database, store, Selection(tables=("public.apples",))):
        for _ in range(3):
            database.execute("insert into noise select generate_series(1, 1000)")
            ((end,),) = database.sql.execute(written).fetchall()
            until(partial(has_advanced, end))


@pytest.mark.full
def test_an_update_is_not_rejected_after_its_key_was_dropped_while_capture_runs(
    database: Database, store: LocalStore
) -> None:
    database.execute(*TABLES)

    def updated() -> bool:
        try:
            database.execute("update apples set note = 'y'", "update parts set id = 2")
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return False
        return True

    connections = (
        "select count(*) from pg_stat_activity where datname = current_database() "
        "and application_name like 'mirrorlake%'"
    )
    records = Records(store, root.LANDING)
    with running(database, store):
        assert updated()
        database.execute(
            "alter table apples drop constraint apples_pkey",
            "alter table part1 replica identity nothing",
        )
        until(updated)
        until(lambda: "public.apples" in records.append_only())
        until(lambda: "public.parts" in records.append_only())
        ((count,),) = database.sql.execute(connections).fetchall()
        assert count <= 3  # as the page says
    assert not records.stopped()
    assert (
        "partition public.part1 does not contain its key"
        in records.append_only()["public.parts"].reason
    )


ATTACHED = """
    alter table apples drop constraint apples_pkey, add primary key (id, note),
    replica identity nothing; alter table whole attach partition apples default
"""
KEYLESS = "alter table apples drop constraint apples_pkey"
REJECTED = {
    "no longer selected": (("*.*", "!public.apples"), {}, KEYLESS),
    "made a partition": (("*.*",), {}, ATTACHED),
    "its row condition": (
        ("*.*",),
        {"public.apples": "id > 0"},
        f"{KEYLESS}, add primary key (note)",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("what", some(list(REJECTED), 1))
def test_an_update_is_not_rejected_of_a_table_that_is_not_followed(
    database: Database, store: LocalStore, what: str
) -> None:
    tables, rows, altered = REJECTED[what]
    whole = "create table whole (id int not null, note text not null) partition by list (id)"
    database.execute(*TABLES, "alter table apples alter note set not null", whole)
    with running(database, store, Selection(rows=rows)):
        pass  # all are published

    def updated() -> bool:
        try:
            database.execute("update apples set note = note || 'y'")
        except psycopg.errors.ObjectNotInPrerequisiteState:
            return False
        except psycopg.errors.InvalidColumnReference:  # of the condition
            return False
        return True

    with running(database, store, Selection(tables=tables, rows=rows)):
        assert updated()
        database.execute(altered)
        until(updated)
    published = f"select tablename from pg_publication_tables where pubname = 'pub_{database.name}'"
    assert "apples" not in {name for (name,) in database.sql.execute(published)}


def test_a_table_whose_columns_are_listed_is_not_taken_for_one_that_rejects(
    captured: Captured,
) -> None:
    name = captured.settings.publication
    captured.begin(*TABLES)
    captured.run(f"alter publication {name} set table apples (id, note)")
    with closing(connect.connect(captured.settings.url)) as connection:
        assert not rejected.rejects_changes(connection, captured.settings)


def test_a_table_that_only_others_may_take_out_is_named_with_the_statement(
    captured: Captured, database: Database
) -> None:
    name = captured.settings.publication
    captured.begin(*TABLES)
    captured.run("alter table apples drop constraint apples_pkey")
    user = f"reader_{database.name}"
    captured.run(f"create role {user} login password '{user}'")
    with closing(connect.connect(database.url_as(user))) as connection:
        (found,) = rejected.take_out(connection, captured.settings, [])
    assert found.severity is CheckSeverity.WARNING
    assert f'`alter publication "{name}" drop table only "public"."apples"`' in found.remedy
    captured.run(found.remedy.split("`")[1], "update apples set note = 'z'", f"drop role {user}")
