"""Tables that come to a stream under way wait for open transactions; the others do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch import joining
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.sources.base import AwaitedTransaction
from mirrorlake.sources.postgresql.source import PostgresSource
from tests.app.evolving_database import EvolvingDatabase
from tests.conformance.scene import until

pytestmark = pytest.mark.postgres

APPLES = "create table apples (id int primary key, note text)"
LOG = "create table log (id int primary key)"
PEARS = "create table pears (id int primary key, note text)"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(joining, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(joining, "LEAST_SECONDS", 0.5)
    monkeypatch.setattr(joining, "SHARE", 0.5)


@contextmanager
def writing(evolving: EvolvingDatabase) -> Iterator[psycopg.Connection]:
    """The session of somebody whose transaction has written and is open."""
    with closing(psycopg.connect(evolving.database.url, application_name="nightly job")) as other:
        other.execute("insert into log values (1)")
        yield other


def is_mirrored(evolving: EvolvingDatabase, table: str, count: int) -> bool:
    evolving.apply()
    log = TableLog(evolving.store.location(f"Tables/public/{table}"))
    return log.snapshot().exists and len(evolving.mirrored(table)) == count


def slots(evolving: EvolvingDatabase) -> set[str]:
    names = evolving.database.sql.execute("select slot_name from pg_replication_slots").fetchall()
    return {name for (name,) in names if name.startswith("mirrorlake_load")}


def waits_for(evolving: EvolvingDatabase) -> str:
    found = Records(evolving.store, root.LANDING).awaited()
    return found.transaction.facts.get("application", "") if found else ""


def waits_alone(evolving: EvolvingDatabase, other: psycopg.Connection, rows: int) -> None:
    """While pears wait for a transaction, apples are mirrored; then pears have so many rows."""
    until(lambda: waits_for(evolving) == "nightly job")
    evolving.run("insert into apples values (1, 'beside')")
    until(lambda: is_mirrored(evolving, "apples", 1))
    other.commit()
    until(lambda: is_mirrored(evolving, "pears", rows))


def finish(evolving: EvolvingDatabase, *tables: str) -> None:
    evolving.capture()
    evolving.apply()
    for table in tables:
        evolving.check(table)


def test_other_tables_go_on_while_a_new_one_waits(evolving: EvolvingDatabase) -> None:
    evolving.begin(APPLES, LOG)
    with evolving.running(), writing(evolving) as other:
        evolving.run(PEARS, "insert into pears values (1, 'loaded')")
        until(lambda: waits_for(evolving) == "nightly job")
        for number in range(3):
            evolving.run(
                f"insert into apples values ({number}, 'beside')",
                f"insert into pears values ({number + 10}, 'missed if the snapshot were earlier')",
            )
            until(partial(is_mirrored, evolving, "apples", number + 1))
        assert not is_mirrored(evolving, "pears", 1)
        assert slots(evolving) == set()
        other.commit()
        until(lambda: is_mirrored(evolving, "pears", 4))
        assert waits_for(evolving) == ""
        evolving.run("update pears set note = 'followed'")
    finish(evolving, "apples", "log", "pears")


@pytest.mark.full
def test_a_snapshot_that_is_not_there_in_time_is_given_up(
    evolving: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction began between the look and the snapshot."""
    evolving.begin(APPLES, LOG)
    tried, taken = list[float](), PostgresSource.snapshot_within

    def snapshot_within(source: PostgresSource, seconds: float) -> object:
        tried.append(seconds)
        return taken(source, seconds)

    real, seen = PostgresSource.open_transactions, list[bool]()

    def open_transactions(source: PostgresSource) -> Mapping[str, AwaitedTransaction | None]:
        return real(source) if seen else {}

    monkeypatch.setattr(PostgresSource, "snapshot_within", snapshot_within)
    monkeypatch.setattr(PostgresSource, "open_transactions", open_transactions)
    with evolving.running(), writing(evolving) as other:
        evolving.run(PEARS, "insert into pears values (1, 'loaded')")
        until(lambda: len(tried) > 1)
        evolving.run("insert into apples values (1, 'between two attempts')")
        until(lambda: is_mirrored(evolving, "apples", 1))
        seen.append(True)
        until(lambda: slots(evolving) == set())
        other.commit()
        until(lambda: is_mirrored(evolving, "pears", 1))
    finish(evolving, "apples", "log", "pears")


@pytest.mark.full
def test_a_table_that_was_created_again_waits_alone(evolving: EvolvingDatabase) -> None:
    evolving.begin(APPLES, LOG, PEARS, "insert into pears values (1, 'former')")
    with evolving.running(), writing(evolving) as other:
        evolving.run("drop table pears", PEARS, "insert into pears values (2, 'new'), (3, 'new')")
        waits_alone(evolving, other, 2)
    finish(evolving, "apples", "log", "pears")


@pytest.mark.full
def test_a_capture_that_starts_does_not_wait_for_a_table_that_is_new(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(APPLES, LOG)
    evolving.run(PEARS, "insert into pears values (1, 'loaded')")
    with writing(evolving) as other, evolving.running():
        waits_alone(evolving, other, 1)
    finish(evolving, "apples", "log", "pears")


@pytest.mark.full
def test_a_new_table_that_is_dropped_while_it_waits_is_forgotten(
    evolving: EvolvingDatabase,
) -> None:
    evolving.begin(APPLES, LOG)
    with evolving.running(), writing(evolving) as other:
        evolving.run(PEARS)
        until(lambda: waits_for(evolving) == "nightly job")
        evolving.run("drop table pears")
        until(lambda: waits_for(evolving) == "")
        evolving.run("insert into apples values (1, 'beside')")
        until(lambda: is_mirrored(evolving, "apples", 1))
        other.rollback()
    finish(evolving, "apples", "log")
