"""Tables of a live source whose rows are not loaded: their changes are mirrored, and a backfill
makes them whole."""

from __future__ import annotations

import pytest

from mirrorlake import root
from mirrorlake.app.own_root import of_root
from mirrorlake.app.reset import plan_reset
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.record import Records
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.conftest import Database

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
def test_a_table_that_joins_later_is_not_loaded_by_itself(evolving: EvolvingDatabase) -> None:
    evolving.begin()
    evolving.run("create table plums (id int primary key); insert into plums values (1)")
    evolving.live(["insert into plums values (2)"], each=False)
    assert ids(evolving, "plums") == [2]
    assert excluded(evolving) == {"public.apples", "public.plums"}
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
