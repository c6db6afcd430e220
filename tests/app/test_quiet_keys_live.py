"""What tells the rows of a table apart changes, and no row of it does afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mirrorlake import Project, root
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.backfill.jobs import (
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.records.records import Records
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.recognition import table_message
from mirrorlake.sources.postgresql.replication.stream import PostgresStream
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.app.conftest import in_turn
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import until
from tests.conftest import Database
from tests.doubles.handmade_engine import in_process_engine

pytestmark = [pytest.mark.postgres, pytest.mark.full]

TABLES = (
    "create table log (id int primary key)",
    "create table pears (id int primary key, code int not null, note text)",
    "create unique index pears_code on pears (code)",
    "insert into pears values (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')",
)
MISSED = "update pears set note = 'missed' where id = 1; delete from pears where id = 2"
LATER = "update pears set note = 'later' where id = 3; insert into pears values (9, 90, 'z')"


@dataclass(frozen=True)
class Life:
    """How a table loses its key, and gets one back."""

    lost: str
    back: str
    begins: Sequence[str] = ()


DROPPED = "alter table pears drop constraint pears_pkey"
BY_INDEX = "alter table pears replica identity using index pears_code"
FULL = "alter table pears replica identity full"
LIVES = {
    "the same key": Life(DROPPED, "alter table pears add primary key (id)"),
    "another key": Life(DROPPED, "alter table pears add primary key (code)"),
    "a key of two columns": Life(DROPPED, "alter table pears add primary key (code, id)"),
    "whole rows, and a unique index": Life(DROPPED, FULL),
    "whole rows": Life(f"{DROPPED}; drop index pears_code", FULL),
    "identity nothing": Life(
        "alter table pears replica identity nothing", "alter table pears replica identity default"
    ),
    "the index of its identity": Life(
        "drop index pears_code", "alter table pears replica identity default", [BY_INDEX]
    ),
}


@pytest.fixture
def pears(source_database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(source_database, store)
    evolving.begin(*TABLES)
    return evolving


def is_read(evolving: EvolvingDatabase) -> bool:
    jobs = BackfillRecords(Records(evolving.store, root.LANDING)).jobs()
    return bool(jobs) and all(job.state is BackfillJobState.COMPLETED for job in jobs)


def differs(evolving: EvolvingDatabase) -> bool:
    found = mirror_status.read(Project.of_root(evolving.store.root))
    (table,) = (one for one in found.tables if one.table == "public.pears")
    return table.differs


def is_without_key(evolving: EvolvingDatabase) -> bool:
    """Whether the mirror has followed so far."""
    evolving.apply()
    return in_process_engine(evolving.store).progress("Tables/public/pears").key == ()


def captured(evolving: EvolvingDatabase, *statements: str) -> None:
    evolving.run(*statements)
    evolving.capture()
    evolving.apply()


def check_later(evolving: EvolvingDatabase) -> None:
    """It equals its source, and does so after rows have changed."""
    evolving.check("pears")
    assert not differs(evolving)
    captured(evolving, LATER)
    evolving.check("pears")


@pytest.mark.parametrize(
    ("source_database", "name", "with_row"),
    in_turn([*LIVES], [True, False]),
    indirect=["source_database"],
)
def test_a_table_that_gets_a_key_back_is_read_again(
    pears: EvolvingDatabase, name: str, *, with_row: bool
) -> None:
    """with_row: one is captured while it is append-only."""
    life = LIVES[name]
    captured(pears, *life.begins)
    captured(pears, life.lost)
    captured(pears, *(["insert into pears values (7, 70, 'x')"] if with_row else []), MISSED)
    captured(pears, life.back)
    assert pears.read_again()
    check_later(pears)


@pytest.mark.parametrize(
    ("source_database", "name", "with_row"),
    in_turn(["the same key", "whole rows, and a unique index"], [True, False]),
    indirect=["source_database"],
)
def test_a_running_capture_reads_it_again(
    pears: EvolvingDatabase, name: str, *, with_row: bool
) -> None:
    life = LIVES[name]
    with pears.running():
        pears.run(life.lost)
        until(lambda: is_without_key(pears))
        if with_row:
            pears.run("insert into pears values (7, 70, 'x')")
        pears.run(MISSED, life.back)
        until(lambda: is_read(pears))
        assert not differs(pears)
    pears.apply()
    check_later(pears)


@pytest.mark.parametrize("name", ["the same key", "another key", "identity nothing"])
def test_a_key_that_comes_back_before_the_first_look_is_followed(
    database: Database, store: LocalStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The stream begins with a table without a key, and is to describe it for a backfill."""
    pears = EvolvingDatabase(database, store)
    pears.begin(*TABLES)
    life = LIVES[name]
    pears.run(life.lost)
    opened = PostgresSource.stream

    def stream(source: PostgresSource, *arguments: Any, **more: Any) -> PostgresStream:
        found = opened(source, *arguments, **more)
        pears.run(life.back)
        return found

    monkeypatch.setattr(PostgresSource, "stream", stream)
    jobs = BackfillRecords(Records(store, root.LANDING))
    jobs.request(BackfillRequest("own", "public.pears"))
    with pears.capturing() as capture:
        monkeypatch.undo()
        capture.once()
    assert is_read(pears)
    pears.apply()
    check_later(pears)


@pytest.mark.parametrize(
    ("source_database", "point"),
    in_turn(
        [
            CrashPoint.CHANGES_STAGED,
            CrashPoint.CHANGES_PUBLISHED,
            CrashPoint.CUT_WRITTEN,
            CrashPoint.BACKFILL_REQUIRED,
            CrashPoint.BACKFILL_PUBLISHED,
            CrashPoint.PUBLICATION_LEFT,
            CrashPoint.PUBLICATION_MOVED,
            CrashPoint.MESSAGE_WRITTEN,
        ]
    ),
    indirect=["source_database"],
)
def test_it_is_read_again_after_a_crash(pears: EvolvingDatabase, point: CrashPoint) -> None:
    captured(pears, DROPPED)
    captured(pears, "insert into pears values (7, 70, 'x')", MISSED)
    pears.run("alter table pears add primary key (id)")
    assert pears.capture(Dying(point))
    captured(pears)
    check_later(pears)


def test_another_key_is_followed_and_nothing_is_read_again(
    any_database: Database, store: LocalStore
) -> None:
    """It is never without a key, so that every version goes on."""
    pears = EvolvingDatabase(any_database, store)
    pears.begin(*TABLES)
    captured(pears, f"{DROPPED}; alter table pears add primary key (code)")
    assert Records(pears.store, root.LANDING).known()["public.pears"]["key"] == [2]
    captured(pears)
    assert pears.read_again() == []
    check_later(pears)


def test_a_table_differs_where_nothing_may_be_written(
    pears: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_message.TableMessage, "write", lambda *_: None)
    captured(pears, DROPPED)
    captured(pears, "insert into pears values (7, 70, 'x')", MISSED)
    captured(pears, "alter table pears add primary key (id)")
    assert differs(pears)
    captured(pears, LATER)
    assert is_read(pears)
    assert not differs(pears)
    pears.check("pears")


def test_a_table_stops_where_the_project_says_so(pears: EvolvingDatabase) -> None:
    pears.stops_at = frozenset({SchemaChangeKind.KEY_CHANGED})
    captured(pears, f"{DROPPED}; alter table pears add primary key (code)")
    assert "changes found their rows by" in pears.stopped()["public.pears"]
