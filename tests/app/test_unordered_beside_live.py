"""Large tables without ranges are loaded beside their changes as well, in pieces by hashes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from mirrorlake import root
from mirrorlake.capture.backfill import unloaded
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import Dying, EvolvingDatabase
from tests.app.test_keys_without_ranges_live import alike
from tests.app.test_large_whole_rows_live import chunks
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

PAGE = 8192
ROWS = 600
APPLES = "public.apples"
KINDS = {
    "float key": ("k float8 primary key", "{0}.5"),
    "array key": ("k int[] primary key", "array[{0}, {0}]"),
}
"""By kind: the columns by which rows are found, and their values with a number."""
POINTS = [
    CrashPoint.LOAD_MANIFEST,
    CrashPoint.BACKFILL_REQUIRED,
    CrashPoint.LOADS_RECORDED,
    CrashPoint.BACKFILL_BEGUN,
    CrashPoint.BACKFILL_PART_STAGED,
    CrashPoint.BACKFILL_NOTED,
    CrashPoint.BACKFILL_STAGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.BACKFILL_RECORDED,
]


@pytest.fixture
def beside(database: Database, store: LocalStore) -> EvolvingDatabase:
    """Its tables are read in parts of four pages, and landed in many pieces."""
    backfill = BackfillSettings(
        ChunkLimits(whole=20_000, seconds=0.0), look_seconds=0.0, retry_seconds=0.05
    )
    return EvolvingDatabase(
        database, store, backfill=backfill, part_bytes=4 * PAGE, load_beside=64 << 10
    )


def make(beside: EvolvingDatabase, kind: str, *more: str) -> None:
    columns, values = KINDS[kind]
    beside.run(
        f"create table apples ({columns}, n int, note text, long text)",
        "alter table apples alter column long set storage external",
        f"insert into apples select {values.format('g')}, g, repeat('x', 100),"
        f" case when g < 20 then repeat(md5(g::text), 99) end from generate_series(1, {ROWS}) g",
        "create table log (id int primary key)",
        "insert into log values (0)",
        *more,
        "analyze",
    )


def changes(kind: str, seed: int) -> Iterator[str]:
    """Of rows, some of which have a value that is not sent."""
    chance, values = random.Random(seed), KINDS[kind][1]
    while True:
        one, other = chance.randrange(1, 40), chance.randrange(1, 2 * ROWS)
        yield chance.choice(
            [
                f"update apples set note = note || 'y' where n = {one}",
                f"update apples set k = {values.format(other)}, n = {other} where n = {one}",
                f"insert into apples values ({values.format(other + 5000)}, {one}, 'new', null)",
                f"delete from apples where n = {one}",
                f"delete from apples where n = {other}",
                (
                    f"begin; delete from apples where n = {one}; insert into apples values "
                    f"({values.format(other + 9000)}, {other}, 'new', repeat('z', 3000)); commit"
                ),
            ]
        )


def run(beside: EvolvingDatabase, statements: Iterator[str], count: int) -> None:
    for _ in range(count):
        with suppress(psycopg.errors.UniqueViolation):
            beside.run(next(statements))


class Between:
    """At the passages of a point somebody does something."""

    def __init__(self, point: CrashPoint, *act: Callable[[], None]) -> None:
        self.point, self.acts, self.passages = point, list(act), 0

    def __call__(self, point: CrashPoint) -> None:
        if point is self.point:
            self.passages += 1
            if self.acts:
                self.acts.pop(0)()


def unloaded_tables(beside: EvolvingDatabase) -> set[str]:
    return Records(beside.store, root.LANDING).unloaded()


@pytest.mark.parametrize("kind", some(list(KINDS), 1))
def test_others_do_not_wait_for_it(beside: EvolvingDatabase, kind: str) -> None:
    make(beside, kind)
    own, seen = changes(kind, 1), list[int]()

    def others() -> None:
        run(beside, own, 4)
        beside.run(f"insert into log values ({len(seen) + 1})")
        beside.apply()
        seen.append(len(beside.mirrored("log")))
        assert len(beside.mirrored("apples")) < ROWS // 2

    beside.capture(Between(CrashPoint.BACKFILL_RECORDED, others, others, others))
    beside.apply()
    assert len(seen) == 3
    assert seen[-1] > seen[0] > 0
    assert chunks(beside) > 5
    beside.check("apples", alike)
    beside.check("log")
    assert not unloaded_tables(beside)


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("point", some(POINTS, 3))
@pytest.mark.parametrize("kind", some(list(KINDS)))
def test_it_is_whole_after_a_crash(beside: EvolvingDatabase, kind: str, point: CrashPoint) -> None:
    make(beside, kind)
    own = changes(kind, 2)
    for passage in (1, 3):
        beside.capture(Dying(point, passage))
        run(beside, own, 5)
        beside.apply()
    beside.capture()
    beside.apply()
    beside.check("apples", alike)
    assert not unloaded_tables(beside)


@pytest.mark.full
@pytest.mark.parametrize("why", some(["size", "room", "versions"]))
def test_it_is_loaded_before_changes_where_it_may_not_be_readable(
    beside: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    make(beside, "float key")
    if why == "size":
        monkeypatch.setattr(unloaded, "LARGEST_BESIDE", 10_000)
    elif why == "room":
        usage = shutil.disk_usage("/")._replace(free=10_000)
        monkeypatch.setattr(unloaded.shutil, "disk_usage", lambda _path: usage)
    else:
        monkeypatch.setattr(PostgresSnapshot, "facts", lambda *_: None)
    with beside.capturing():
        assert not unloaded_tables(beside)
    beside.live(["update apples set note = 'new' where n < 30"], each=False)
    beside.check("apples")
    assert not beside.jobs()
