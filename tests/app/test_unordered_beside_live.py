"""Large tables without ranges are loaded beside their changes as well, in pieces by hashes."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake import root
from mirrorlake.capture.backfill import reading, unloaded
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import DRAWN, Dying, EvolvingDatabase
from tests.app.test_keys_without_ranges_live import alike
from tests.app.test_large_whole_rows_live import chunks
from tests.conftest import Database
from tests.profiles import some

pytestmark = pytest.mark.postgres

PAGE = 8192
ROWS = 600
LIMITS = ChunkLimits(whole=20_000, seconds=0.0)
KINDS = {
    "float key": ("k float8 primary key", "{0}::float8 + 0.5"),
    "array key": ("k int[] primary key", "array[{0}, {0}]"),
    "whole rows": ("k int", "{0}"),
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
    backfill = BackfillSettings(LIMITS, look_seconds=0.0, retry_seconds=0.05)
    return EvolvingDatabase(
        database, store, backfill=backfill, part_bytes=4 * PAGE, load_beside=64 << 10
    )


def make(beside: EvolvingDatabase, kind: str, *more: str) -> None:
    columns, values = KINDS[kind]
    beside.run(
        f"create table apples ({columns}, n int, note text, long text)",
        "alter table apples alter column long set storage external",
        *(["alter table apples replica identity full"] if kind == "whole rows" else []),
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
                f"update apples set note = note || 'z' where n % 37 = {one}",
                (
                    f"begin; delete from apples where n = {one}; insert into apples values "
                    f"({values.format(other + 9000)}, {other}, 'new', repeat('z', 3000)); commit"
                ),
            ]
        )


EQUAL = (
    "insert into apples select k, n, note, long from apples where n % 3 = 0",
    "delete from apples where ctid in (select min(ctid) from apples where n % 6 = 0 group by n)",
    (
        "update apples set note = 'equal' where ctid in "
        "(select min(ctid) from apples where n % 9 = 0 group by n)"
    ),
    "insert into apples select k, n, note, long from apples where n % 4 = 0",
    "delete from apples where n % 5 = 0",
)
"""Of rows that are equal, where there is no key."""


def run(beside: EvolvingDatabase, statements: Iterator[str], count: int) -> None:
    for _ in range(count):
        with suppress(psycopg.errors.Error):  # a key that is there, or other columns by now
            beside.run(next(statements))


class Between:
    """At each passage of a point somebody does something."""

    def __init__(self, point: CrashPoint, *act: Callable[[], None]) -> None:
        self.point, self.acts, self.passages = point, list(act), 0

    def __call__(self, point: CrashPoint) -> None:
        if point is self.point:
            self.passages += 1
            if self.acts:
                self.acts.pop(0)()


def unloaded_tables(beside: EvolvingDatabase) -> set[str]:
    return Records(beside.store, root.LANDING).unloaded()


@pytest.mark.full
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
@pytest.mark.parametrize("why", some(["size", "room", "versions", "columns"]))
def test_it_is_loaded_before_changes_where_it_may_not_be_readable(
    beside: EvolvingDatabase, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    make(beside, "whole rows")
    if why == "columns":  # those that are left out are part of the hashes at the source
        beside.ignores = True
    elif why == "size":
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


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize("point", some([None, *POINTS], 3))
def test_equal_rows_are_told_apart_whatever_was_read(
    beside: EvolvingDatabase, point: CrashPoint | None
) -> None:
    """Of the changes while pieces are landed some are of rows that were read, and others not."""
    make(beside, "whole rows", *EQUAL[:1])

    def change(number: int) -> Callable[[], None]:
        return lambda: beside.run(*EQUAL[number:], *EQUAL[: number // 2])

    beside.capture(Between(CrashPoint.BACKFILL_RECORDED, change(0), change(1), change(2)))
    for passage in (2, 5):
        beside.capture(Dying(point, passage) if point else None)
        beside.run(*EQUAL)
        beside.apply()
    beside.capture()
    beside.apply()
    beside.check("apples")
    assert not unloaded_tables(beside)


ALTERED = {
    "emptied": ("truncate apples",),
    "filled anew": ("begin; truncate apples; insert into apples values (1, 1, 'x'); commit",),
    "column added": ("alter table apples add column d int default 7",),
    "volatile default": ("alter table apples add column d float8 default random()",),
    "column dropped": ("alter table apples drop column note",),
    "column renamed": ("alter table apples rename note to d",),
    "other type": ("alter table apples alter n type text",),
    "wider type": ("alter table apples alter n type bigint",),
    "a key": ("alter table apples add column i serial primary key",),
    "no identity": ("alter table apples replica identity default",),
    "made again": (
        (
            "drop table apples; create table apples (k int, n int, note text, long text); "
            "alter table apples replica identity full; insert into apples values (1, 1)"
        ),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("dies", some([False, True]))
@pytest.mark.parametrize("alteration", some(list(ALTERED)))
def test_a_table_without_a_key_may_be_altered_between_its_pieces(
    beside: EvolvingDatabase, alteration: str, dies: bool
) -> None:
    make(beside, "whole rows", *EQUAL[:1])

    def alter() -> None:
        beside.run("update apples set k = k + 1 where k % 7 = 0")
        beside.run(*ALTERED[alteration])
        after = ("insert into apples (k) values (7), (7)", "delete from apples where k % 11 = 1")
        run(beside, iter(after), 2)

    if dies:
        assert beside.capture(Dying(CrashPoint.BACKFILL_RECORDED, 3))
        alter()
        beside.capture()
    else:
        beside.capture(Between(CrashPoint.BACKFILL_RECORDED, lambda: None, alter))
    after = ("insert into apples (k) values (8), (8)", "delete from apples where k = 7")
    run(beside, iter(after), 2)
    beside.capture()
    beside.apply()
    if alteration == "no identity":
        assert not beside.stopped()
        return
    beside.check("apples")
    assert not unloaded_tables(beside)


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    some(
        [
            None,
            CrashPoint.LOADS_RECORDED,
            CrashPoint.REPLACED_NOTED,
            CrashPoint.REPLACED_DELETED,
            CrashPoint.LOAD_MANIFEST,
        ],
        2,
    ),
)
@pytest.mark.parametrize("stops", [False, True])
def test_a_table_with_too_many_equal_rows_is_loaded_before_changes_after_all(
    beside: EvolvingDatabase,
    monkeypatch: pytest.MonkeyPatch,
    point: CrashPoint | None,
    stops: bool,
) -> None:
    """stops: tables that are created again do."""
    monkeypatch.setattr(reading, "LARGEST_WHOLE", 20_000)
    if stops:
        beside.stops_at = frozenset({SchemaChangeKind.TABLE_RECREATED})
    make(
        beside, "whole rows", "insert into apples select 1, 1, 'same' from generate_series(1, 2000)"
    )
    for passage in (2, 1, 1):
        beside.capture(Dying(point, passage) if point else None)
        beside.run("update apples set note = note || 'y' where n < 9")
    beside.live(["insert into log values (1)", "delete from apples where n = 3"], each=False)
    beside.check("apples")
    beside.check("log")
    assert not beside.jobs()
    assert not unloaded_tables(beside)


_numbers = itertools.count()


@pytest.mark.full
@DRAWN
@given(
    seed=st.integers(0, 1 << 32),
    kind=st.sampled_from(list(KINDS)),
    dies=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 7)), max_size=4),
    altered=st.lists(
        st.sampled_from([name for name in ALTERED if "no id" not in name]), max_size=1
    ),
)
def test_any_series_of_crashes_and_changes_ends_equal(
    database: Database,
    tmp_path: Path,
    seed: int,
    kind: str,
    dies: list[tuple[CrashPoint, int]],
    altered: list[str],
) -> None:
    chance, own, number = random.Random(seed), changes(kind, seed), next(_numbers)
    backfill = BackfillSettings(LIMITS, look_seconds=0.0, retry_seconds=0.05)
    beside = EvolvingDatabase(
        database,
        LocalStore(tmp_path / str(number)),
        number=number,
        backfill=backfill,
        part_bytes=4 * PAGE,
        load_beside=64 << 10,
    )
    beside.run("drop table if exists apples, log")
    make(beside, kind)

    def change() -> None:
        run(beside, own, 3)
        if kind == "whole rows" and chance.random() < 0.5:
            with suppress(psycopg.errors.Error):
                beside.run(chance.choice(EQUAL))

    for point, passage in dies:
        acts = [change] * chance.randrange(4)
        between, dying = Between(CrashPoint.BACKFILL_RECORDED, *acts), Dying(point, passage)

        def reached(at: CrashPoint, between: Between = between, dying: Dying = dying) -> None:
            between(at)
            dying(at)

        beside.capture(reached)
        change()
        if altered and kind == "whole rows" and chance.random() < 0.5:
            beside.run(*ALTERED[altered.pop()])
        if chance.random() < 0.5:
            beside.apply()
    beside.capture(Between(CrashPoint.BACKFILL_RECORDED, *[change] * chance.randrange(6)))
    beside.capture()
    beside.apply()
    beside.check("apples", alike)
    beside.lose_slot()


@pytest.mark.full
@pytest.mark.parametrize("point", [None, CrashPoint.BACKFILL_PUBLISHED, CrashPoint.CUT_WRITTEN])
def test_an_append_only_table_has_each_row_once(
    beside: EvolvingDatabase, point: CrashPoint | None
) -> None:
    make(beside, "whole rows", "alter table apples replica identity default")
    inserts = "insert into apples select k, n, note, long from apples where n % 7 = 0"

    def insert() -> None:
        beside.run(inserts, "insert into apples values (1, 1, 'later')")

    for passage in (2, 5):
        between, dying = (
            Between(CrashPoint.BACKFILL_RECORDED, insert, insert),
            Dying(point, passage),
        )
        beside.capture(lambda at, both=(between, dying): [act(at) for act in both] and None)
        insert()
        beside.apply()
    beside.capture()
    beside.apply()
    beside.check("apples")
    assert {job.request.table for job in beside.jobs()} == {"public.apples"}
    assert not unloaded_tables(beside)


@pytest.mark.full
def test_an_append_only_table_with_soft_deletes_is_loaded_before_changes(
    beside: EvolvingDatabase,
) -> None:
    beside.soft = True
    make(beside, "whole rows", "alter table apples replica identity default")
    with beside.capturing():
        assert not unloaded_tables(beside)
