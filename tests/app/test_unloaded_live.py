"""Tables of a live source whose rows are not loaded: their changes are mirrored, and a backfill
makes them whole."""

from __future__ import annotations

from contextlib import closing

import pytest

from mirrorlake import root
from mirrorlake.app.own_root import of_root
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.cli.status import show_status
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

TABLES = (
    "create table apples (id int primary key, note text, long text)",
    "alter table apples alter column long set storage external",
    "insert into apples select g, 'old', repeat(md5(g::text), 99) from generate_series(1, 20) g",
    "create table log (id int, note text)",
    "alter table log replica identity full",
    "insert into log values (1, 'a'), (2, 'b'), (3, 'c')",
    "create table pears (name text primary key)",
    "insert into pears values ('a'), ('b')",
)
EVERY = {"public.apples", "public.log", "public.pears"}
CHANGES = """
    update apples set note = 'new' where id in (3, 6); update apples set id = 105 where id = 5;
    insert into apples values (21, 'new', 'short'); delete from apples where id in (4, 6);
    insert into pears values ('c'); update log set note = 'new' where id = 2;
    delete from log where id = 3; insert into log values (4, 'd')
"""


@pytest.fixture
def evolving(database: Database, store: LocalStore) -> EvolvingDatabase:
    evolving = EvolvingDatabase(database, store, load=("*.*", "!public.apples", "!public.log"))
    evolving.run(*TABLES)
    return evolving


def ids(evolving: EvolvingDatabase, table: str = "apples") -> list[int]:
    return sorted(row["id"] for row in evolving.mirrored(table))


def excluded(evolving: EvolvingDatabase) -> set[str]:
    newest = Cuts(evolving.store, root.LANDING).newest()
    assert newest is not None
    return {table for table, why in newest.excluded.items() if why == "differs"}


def shown_by_status(evolving: EvolvingDatabase, capsys: pytest.CaptureFixture[str]) -> str:
    show_status(mirror_status.read(of_root(evolving.store.root)))
    return " ".join(capsys.readouterr().out.split())


def backfill(evolving: EvolvingDatabase, table: str) -> None:
    jobs = BackfillRecords(Records(evolving.store, root.LANDING))
    requests.request(jobs, [table], table, None, None, WallClock().now())


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("point", [None, CrashPoint.ESTABLISHED, CrashPoint.LOAD_MANIFEST])
def test_a_row_that_is_not_loaded_comes_whole_with_its_first_change(
    evolving: EvolvingDatabase, point: CrashPoint | None
) -> None:
    assert evolving.capture(Dying(point)) is (point is not None)
    evolving.capture()
    evolving.apply()
    assert ids(evolving) == []
    evolving.check("pears")
    evolving.live([CHANGES], each=False)
    assert ids(evolving) == [3, 21, 105]
    query = "select * from apples where id in (3, 21, 105) order by id"
    rows = evolving.database.sql.execute(query).fetchall()
    mirrored = sorted(tuple(row.values()) for row in evolving.mirrored("apples"))
    assert mirrored == rows
    evolving.check("pears")
    evolving.check("log")  # it is loaded in any case, because its deletions name whole rows
    assert excluded(evolving) == {"public.apples"}


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("point", [None, CrashPoint.BACKFILL_PUBLISHED, CrashPoint.CUT_WRITTEN])
def test_a_backfill_of_all_rows_makes_the_table_whole(
    evolving: EvolvingDatabase, point: CrashPoint | None
) -> None:
    evolving.begin()
    backfill(evolving, "public.apples")
    assert evolving.capture(Dying(point)) is (point is not None)
    if point:
        assert Records(evolving.store, root.LANDING).unloaded() == {"public.apples"}
        evolving.live(["update apples set note = 'later' where id = 7"], each=False)
    evolving.live([CHANGES], each=False)
    evolving.check("apples")
    assert excluded(evolving) == set()
    assert Records(evolving.store, root.LANDING).unloaded() == set()


@pytest.mark.full
@pytest.mark.clause("ST-291")
def test_a_table_that_joins_later_is_not_loaded_by_itself(
    evolving: EvolvingDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    evolving.begin()
    evolving.run("create table plums (id int primary key); insert into plums values (1)")
    evolving.live(["insert into plums values (2)"], each=False)
    assert ids(evolving, "plums") == [2]
    assert excluded(evolving) == {"public.apples", "public.plums"}
    assert shown_by_status(evolving, capsys).count("Replicating, not loaded") == 2
    backfill(evolving, "public.plums")
    evolving.capture()
    evolving.apply()
    evolving.check("plums")
    assert excluded(evolving) == {"public.apples"}


def test_a_reset_loads_the_rows(evolving: EvolvingDatabase) -> None:
    evolving.begin()
    plan_reset(of_root(evolving.store.root), ["public.apples"]).execute()
    evolving.live([CHANGES], each=False)
    evolving.check("apples")


@pytest.fixture
def beside(database: Database, store: LocalStore) -> EvolvingDatabase:
    """Tables are large."""
    evolving = EvolvingDatabase(database, store, load_beside=1)
    evolving.run(*TABLES, "analyze")
    return evolving


def test_tables_do_not_wait_for_the_rows_of_a_large_one(
    beside: EvolvingDatabase, capsys: pytest.CaptureFixture[str]
) -> None:
    with beside.capturing():
        beside.apply()
        shown = shown_by_status(beside, capsys)
        assert "Replicating, loading" in shown
        assert "not loaded" not in shown
        assert "public.apples: its rows are read beside its changes" in shown
        assert "mirrorlake backfill" not in shown
        assert Records(beside.store, root.LANDING).unloaded() == EVERY
        assert ids(beside) == []


def test_changes_wait_for_the_smallest_tables_alone(database: Database, store: LocalStore) -> None:
    """Three tables of one page each, of which two are too large together."""
    evolving = EvolvingDatabase(database, store, load_beside=12 << 10)
    evolving.run(*TABLES, "vacuum analyze")
    with evolving.capturing():
        evolving.apply()
        beside = Records(evolving.store, root.LANDING).unloaded()
        (loaded,) = EVERY - beside
        evolving.check(loaded.removeprefix("public."))
    evolving.live([CHANGES], each=False)
    for table in ("apples", "pears", "log"):
        evolving.check(table)
    assert {request.table for request in evolving.read_again()} == beside


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    some(
        [
            None,
            CrashPoint.LOAD_MANIFEST,
            CrashPoint.BACKFILL_REQUIRED,
            CrashPoint.BACKFILL_PUBLISHED,
            CrashPoint.BACKFILL_RECORDED,
        ],
        2,
    ),
)
def test_a_large_table_is_read_beside_its_changes(
    beside: EvolvingDatabase, point: CrashPoint | None
) -> None:
    assert beside.capture(Dying(point)) is (point is not None)
    beside.live([CHANGES], each=False)
    for table in ("apples", "pears", "log"):
        beside.check(table)
    assert Records(beside.store, root.LANDING).unloaded() == set()
    assert excluded(beside) == set()
    assert {request.table for request in beside.read_again()} == EVERY


@pytest.mark.crash
@pytest.mark.parametrize("change", some(["setting", "size"]))
def test_a_table_that_began_without_its_rows_is_read_whatever_has_changed_meanwhile(
    beside: EvolvingDatabase, change: str
) -> None:
    assert beside.capture(Dying(CrashPoint.LOAD_MANIFEST))
    beside.load_beside = None if change == "setting" else 1 << 40
    beside.live([CHANGES], each=False)
    for table in ("apples", "pears", "log"):
        beside.check(table)
    assert Records(beside.store, root.LANDING).unloaded() == set()


ALTERED = {
    "renamed": "alter table apples rename column long to wide",
    "dropped": "alter table apples drop column long",
    "key renamed": "alter table apples rename column id to number",
    "exchanged": "alter table apples rename column note to other;"
    "alter table apples rename column long to note; alter table apples rename column other to long",
}


@pytest.mark.crash
@pytest.mark.parametrize("kind", some(list(ALTERED)))
def test_a_table_is_altered_while_it_is_read_beside_its_changes(
    beside: EvolvingDatabase, kind: str
) -> None:
    """The value that was not sent is under another name by now, or gone."""
    assert beside.capture(Dying(CrashPoint.BACKFILL_BEGUN))
    beside.run("update apples set note = 'new' where id = 7", ALTERED[kind])
    beside.run("insert into apples values (500)")
    beside.capture()
    beside.apply()
    beside.check("apples")
    assert Records(beside.store, root.LANDING).unloaded() == set()


@pytest.mark.full
def test_a_large_table_that_joins_later_is_read_beside_its_changes(
    beside: EvolvingDatabase,
) -> None:
    beside.begin()
    beside.run(
        "create table plums (id int primary key); insert into plums values (1)", "analyze plums"
    )
    beside.live(["insert into plums values (2)"], each=False)
    beside.check("plums")
    assert "public.plums" in {request.table for request in beside.read_again()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("analyzed", "partitioned"),
    [
        (False, False),
        (True, True),
        pytest.param(False, True, marks=pytest.mark.long),
        pytest.param(True, False, marks=pytest.mark.long),
    ],
)
def test_others_do_not_wait_for_a_table_that_joins_later(
    database: Database, store: LocalStore, analyzed: bool, partitioned: bool
) -> None:
    evolving = EvolvingDatabase(database, store, load_beside=1 << 40, joining_beside=64 << 10)
    evolving.begin("create table log (id int primary key); insert into log values (1)")
    rows = "insert into plums select generate_series(1, 5000)"
    if partitioned:
        evolving.run(
            "create table plums (id int primary key) partition by range (id)",
            "create table plums_1 partition of plums for values from (0) to (2500)",
            "create table plums_2 partition of plums for values from (2500) to (9000)",
        )
    else:
        evolving.run("create table plums (id int primary key)")
    evolving.run(rows, "create table small (id int primary key); insert into small values (1)")
    evolving.run("analyze" if analyzed else "select pg_stat_force_next_flush()", "select 1")
    evolving.live(["insert into plums values (6000)", "delete from plums where id = 7"], each=False)
    for table in ("plums", "small", "log"):
        evolving.check(table)
    assert {request.table for request in evolving.read_again()} == {"public.plums"}


@pytest.mark.full
def test_a_large_table_whose_reading_was_stopped_is_repaired(beside: EvolvingDatabase) -> None:
    jobs = BackfillRecords(Records(beside.store, root.LANDING))
    with beside.capturing():
        requests.stop(jobs, "public.apples")
    beside.capture()
    assert "reading it again ended" in beside.stopped()["public.apples"]
    with closing(beside.new_capture()) as capture:
        capture.repair().done(["public.apples"])
    beside.live([CHANGES], each=False)
    beside.check("apples")
    assert not beside.stopped()
    assert Records(beside.store, root.LANDING).unloaded() == set()


@pytest.mark.full
def test_a_repair_reads_a_table_again_whose_rows_are_being_read(beside: EvolvingDatabase) -> None:
    """What was read of it may have changed since."""
    beside.backfill = BackfillSettings(ChunkLimits(rows=5))
    assert beside.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3))
    beside.lose_slot()
    beside.run("update apples set note = 'missed'")
    with closing(beside.new_capture()) as capture:
        assert capture.repair().done().is_needed
    beside.live([CHANGES], each=False)
    beside.check("apples")
    beside.check("pears")


@pytest.mark.full
@pytest.mark.crash
def test_a_table_whose_reset_dies_is_read_from_the_beginning(beside: EvolvingDatabase) -> None:
    beside.backfill = BackfillSettings(ChunkLimits(rows=5))
    assert beside.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3))
    with pytest.raises(Crash):
        plan_reset(of_root(beside.store.root), ["public.apples"]).execute(
            Dying(CrashPoint.RESET_FOLDER_DELETED)
        )
    beside.live([CHANGES], each=False)
    beside.check("apples")


@pytest.mark.full
def test_others_do_not_wait_for_a_large_table_that_begins_anew(beside: EvolvingDatabase) -> None:
    beside.begin()
    plan_reset(of_root(beside.store.root), ["public.apples"]).execute()
    beside.run(
        "drop table pears; create table pears (name text primary key, size int)",
        "insert into pears select g, g from generate_series(1, 99) g",
        "analyze pears",
    )
    beside.run(CHANGES)
    assert beside.capture(Dying(CrashPoint.BACKFILL_BEGUN))
    beside.live(["insert into pears values ('later')"], each=False)
    for table in ("apples", "pears", "log"):
        beside.check(table)
    again = [request.table for request in beside.read_again()]
    assert sorted(again) == ["public.apples", "public.log", "public.pears"]
    assert Records(beside.store, root.LANDING).unloaded() == set()
