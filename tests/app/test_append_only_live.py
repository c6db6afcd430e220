"""Append-only tables of a live server, of which rows are updated and deleted: they are read again
where the project says so."""

from __future__ import annotations

import time

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.backfill.jobs import BackfillRecords, BackfillRequest
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.model.crash_points import CrashPoint
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conformance.scene import PATIENCE
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLE = "create table pears (id int, note text)"
ROWS = "insert into pears values (1, 'a'), (1, 'a'), (2, 'b'), (3, null), (4, 'd')"
MISSED = """
    update pears set note = 'x' where id = 2; insert into pears values (5, 'e'), (5, 'e');
    delete from pears where ctid = (select min(ctid) from pears where id = 1);
    delete from pears where id = 3
"""


@pytest.fixture
def pears(evolving: EvolvingDatabase) -> EvolvingDatabase:
    evolving.uncaptured = UncapturedPolicy.BACKFILL
    evolving.begin(TABLE, ROWS)
    return evolving


def miss(evolving: EvolvingDatabase, statements: str = MISSED) -> None:
    """In a session of its own, at whose end PostgreSQL counts what it did."""
    with psycopg.connect(evolving.database.url) as connection:
        connection.execute(statements)


def noted(evolving: EvolvingDatabase) -> AppendOnly:
    return Records(evolving.store, root.LANDING).append_only()["public.pears"]


def captured(evolving: EvolvingDatabase, updates: int, dying: Dying | None = None) -> None:
    """Until so many updates were counted and are made up for, or the process has died: PostgreSQL
    counts a little late."""
    until = time.monotonic() + PATIENCE
    while (found := noted(evolving)).updates < updates or found.differs:
        assert time.monotonic() < until, found
        if evolving.capture(dying):
            return
        time.sleep(0.1)


def look_until_it_differs(evolving: EvolvingDatabase) -> None:
    until = time.monotonic() + PATIENCE
    while not noted(evolving).differs:
        assert time.monotonic() < until
        evolving.capture()


@pytest.mark.full
def test_a_table_is_read_again_when_rows_were_updated_or_deleted(pears: EvolvingDatabase) -> None:
    """Again each time; what differs becomes changes in the feed."""
    for updates in (1, 2):
        miss(pears)
        captured(pears, updates)
        pears.apply()
        pears.check("pears")
    requests = pears.read_again()
    assert "the table is append-only, and the source has counted 1 updates" in requests[0].reason
    pears.run("insert into pears values (6, 'later')")
    pears.capture()
    pears.apply()
    pears.check("pears")
    assert pears.read_again() == requests
    assert noted(pears).since == ""


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    some(
        [
            CrashPoint.BACKFILL_REQUIRED,
            CrashPoint.BACKFILL_STAGED,
            CrashPoint.BACKFILL_PUBLISHED,
            CrashPoint.BACKFILL_RECORDED,
        ],
        2,
    ),
)
def test_a_table_is_read_again_after_a_crash(pears: EvolvingDatabase, point: CrashPoint) -> None:
    miss(pears)
    dying = Dying(point)
    captured(pears, 1, dying)
    assert dying.left == 0
    miss(pears, "insert into pears values (7, 'more')")
    captured(pears, 1)
    pears.apply()
    pears.check("pears")


@pytest.mark.full
def test_what_is_missed_while_a_table_is_read_has_it_read_once_more(
    pears: EvolvingDatabase,
) -> None:
    miss(pears)
    captured(pears, 1, Dying(CrashPoint.BACKFILL_PUBLISHED))  # its snapshot is taken
    miss(pears, "update pears set note = 'missed' where id = 4")
    captured(pears, 2)
    pears.apply()
    pears.check("pears")


@pytest.mark.full
def test_a_table_that_cannot_be_read_again_stops(pears: EvolvingDatabase) -> None:
    pears.strict = True
    miss(pears)
    until = time.monotonic() + PATIENCE
    while not pears.stopped():
        assert time.monotonic() < until
        pears.capture()
    facts = Records(pears.store, root.LANDING).stopped()["public.pears"]
    assert facts["code"] == "uncaptured_changes"
    assert "backfill, which is not possible: " in facts["hint"]


@pytest.mark.full
def test_without_the_setting_a_table_stays_as_it_is(pears: EvolvingDatabase) -> None:
    pears.uncaptured = UncapturedPolicy.MARK
    miss(pears)
    look_until_it_differs(pears)
    assert (pears.read_again(), pears.stopped()) == ([], {})
    pears.uncaptured = UncapturedPolicy.BACKFILL  # what was counted before counts
    captured(pears, 1)
    pears.apply()
    pears.check("pears")


@pytest.mark.full
def test_a_partition_that_is_dropped_takes_no_counters_with_it(evolving: EvolvingDatabase) -> None:
    """The sum of the counters is lower then, and they are not reset."""
    evolving.uncaptured = UncapturedPolicy.STOP
    evolving.run(
        "create table plums (id int, note text) partition by range (id)",
        "create table few partition of plums for values from (1) to (10)",
        "create table many partition of plums for values from (10) to (100)",
        "insert into plums values (1, 'a'), (2, 'b'), (20, 'x'), (21, 'y')",
    )
    miss(evolving, "update plums set note = 'z'; delete from plums where id in (2, 21)")
    counted = "select min(n_tup_upd) from pg_stat_user_tables where relname in ('few', 'many')"
    until = time.monotonic() + PATIENCE
    while evolving.database.sql.execute(counted).fetchone() != (2,):
        assert time.monotonic() < until
        time.sleep(0.1)
    evolving.begin()
    evolving.live(["drop table few", "insert into plums values (22, 'new')"], each=True)
    evolving.check("plums")


@pytest.mark.full
def test_a_backfill_that_somebody_requests_ends_the_difference(pears: EvolvingDatabase) -> None:
    pears.uncaptured = UncapturedPolicy.MARK
    miss(pears)
    look_until_it_differs(pears)
    records = Records(pears.store, root.LANDING)
    BackfillRecords(records).request(BackfillRequest("own", "public.pears"))
    pears.capture()
    pears.capture()
    assert (noted(pears).differs, noted(pears).since) == (False, "")
    pears.apply()
    pears.check("pears")


@pytest.mark.full
@pytest.mark.parametrize("identity", ["default", "full"])
@pytest.mark.parametrize("first", ["", "a int", "g int generated always as (1) stored"])
def test_rows_are_mirrored_as_soon_as_there_is_a_column(
    evolving: EvolvingDatabase, first: str, identity: str
) -> None:
    """Of a table that had none, or whose last one was dropped, no row was. All are read then."""
    row = "insert into pears default values"
    evolving.begin(
        f"create table pears ({first}); alter table pears replica identity {identity}", row
    )
    evolving.run(row, "alter table pears drop a" if first == "a int" else "select", row)
    evolving.capture()
    evolving.run(row, "alter table pears add b int default 7", row)
    evolving.capture()
    evolving.apply()
    evolving.check("pears", columns="b")
