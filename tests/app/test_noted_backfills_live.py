"""Backfills of tables without ranges go on where they were: what was read is not read again."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from mirrorlake import root
from mirrorlake.capture.backfill.backfills import BACKFILL_REPEATED, BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.backfill.noted_rows import (
    BACKFILL_BEGUN_ANEW,
    BACKFILL_PART_DAMAGED,
    BACKFILL_RESUMED,
)
from mirrorlake.capture.backfill.reading import ChunkLimits
from mirrorlake.capture.records.records import Records
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.snapshot import PostgresSnapshot
from mirrorlake.sources.table import SnapshotPart
from mirrorlake.storage.local import LocalStore
from tests.app.evolving_database import DRAWN, Dying, EvolvingDatabase
from tests.app.test_interrupted_loads_live import Meanwhile
from tests.app.test_keys_without_ranges_live import alike
from tests.app.test_large_whole_rows_live import ask, changed, changes, chunks
from tests.capture.landing import with_a_flipped_bit
from tests.conftest import Database
from tests.doubles.memory_store import Crash
from tests.profiles import some

pytestmark = pytest.mark.postgres

_numbers = itertools.count()

PAGE = 8192
ROWS = 1_200
LIMITS = ChunkLimits(whole=20_000, seconds=0.0)
"""So that it is landed in pieces."""
KINDS = {
    "whole rows": (
        "create table apples (a int, b text, c text)",
        "alter table apples replica identity full",
    ),
    "float key": ("create table apples (a float8 primary key, b text, c text)",),
    "array key": ("create table apples (a int[] primary key, b text, c text)",),
    "partitions": (
        "create table apples (a int, b text, c text) partition by list (b)",
        "create table apples_1 partition of apples for values in ('1', '2')",
        "create table apples_2 partition of apples default",
        "alter table apples replica identity full",
        "alter table apples_1 replica identity full",
        "alter table apples_2 replica identity full",
    ),
}
FILLED = (
    f"insert into apples select g % 400, (g % 5)::text, repeat('x', 100) "
    f"from generate_series(1, {ROWS}) g"
)
FILLED_KEYS = FILLED.replace("g % 400", "g")


@pytest.fixture
def large(each_database: Database, store: LocalStore) -> EvolvingDatabase:
    """Its tables are read in parts of four pages."""
    backfill = BackfillSettings(LIMITS, look_seconds=0.0, retry_seconds=0.05)
    return EvolvingDatabase(each_database, store, backfill=backfill, part_bytes=4 * PAGE)


def begin(large: EvolvingDatabase, kind: str = "whole rows") -> None:
    filled = {"float key": FILLED_KEYS, "array key": FILLED_KEYS.replace("g,", "array[g],")}
    large.begin(*KINDS[kind], filled.get(kind, FILLED))
    ask(large)


def parts(large: EvolvingDatabase) -> list[Path]:
    """What backfills have staged."""
    folder = BackfillRecords(Records(large.store, root.LANDING)).folder
    return sorted(Path(large.store.location(folder)).glob("*/*"))


def of(logs: Sequence[MutableMapping[str, Any]], event: str) -> list[MutableMapping[str, Any]]:
    return [entry for entry in logs if entry["event"] == event]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of rows that are read with their values, part by part."""
    found = list[int]()

    def counted(name: str) -> Any:
        original = getattr(PostgresSnapshot, name)

        def count(self: PostgresSnapshot, part: SnapshotPart, *more: pa.Table) -> Iterator[Any]:
            found.append(0)
            for rows, versions in original(self, part, *more):
                found[-1] += rows.num_rows
                yield rows, versions

        return count

    for name in ("versioned", "only"):
        monkeypatch.setattr(PostgresSnapshot, name, counted(name))
    return found


CHANGES = {
    "nothing": (),
    "rows of every kind": (
        "update apples set c = 'changed' where a % 50 = 1",
        "update apples set b = '9' where a % 50 = 2",
        "delete from apples where a % 50 = 4",
        "insert into apples select g, '7', 'new' from generate_series(5001, 5060) g",
    ),
    "rows come back": (
        "delete from apples where a = 1",
        "vacuum apples",
        "insert into apples values (1, '1', repeat('x', 100)), (1, '1', repeat('x', 100))",
    ),
    "most rows": ("update apples set c = c || '!' where a % 4 <> 0",),
    "all rows but few": ("delete from apples where a > 3", "vacuum (truncate off) apples"),
}


@pytest.mark.full
@pytest.mark.parametrize("change", some(list(CHANGES)))
@pytest.mark.parametrize("passages", some([3, 1, 5]))
def test_a_backfill_that_dies_goes_on_behind_the_parts_that_were_read(
    large: EvolvingDatabase, change: str, passages: int
) -> None:
    begin(large)
    assert large.capture(Dying(CrashPoint.BACKFILL_NOTED, passages))
    large.run(*CHANGES[change])
    with capture_logs() as logs:
        large.capture()
    large.apply()
    large.check("apples")
    assert [entry["kept"] for entry in of(logs, BACKFILL_RESUMED)] == [passages]
    assert chunks(large) > 5 or change == "all rows but few"
    assert not parts(large)


NOTING = [CrashPoint.BACKFILL_PART_STAGED, CrashPoint.BACKFILL_NOTED]
LANDING = [
    CrashPoint.BACKFILL_STAGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.CUT_WRITTEN,
    CrashPoint.BACKFILL_RECORDED,
]


@pytest.mark.parametrize("point", some(LANDING))
@pytest.mark.parametrize("kind", some(list(KINDS)))
def test_only_what_is_new_is_read_after_a_crash_while_pieces_are_landed(
    large: EvolvingDatabase, read: list[int], point: CrashPoint, kind: str
) -> None:
    begin(large, kind)
    before = changed(large)
    read.clear()
    assert large.capture(Dying(point, 3))
    assert sum(read) == ROWS
    read.clear()
    large.apply()
    large.run("update apples set c = 'changed' where b = '3'")
    with capture_logs() as logs:
        large.capture()
    large.apply()
    large.check("apples", like=alike)
    (resumed,) = of(logs, BACKFILL_RESUMED)
    assert resumed["kept"] >= 5 - 2  # the last part of a heap ends where pages were added
    assert sum(read) < ROWS * 2 // 3
    assert changed(large) > before
    assert not parts(large)


@pytest.mark.full
def test_nothing_is_read_again_of_a_table_that_has_not_changed(
    large: EvolvingDatabase, read: list[int]
) -> None:
    begin(large)
    before = changed(large)
    assert large.capture(Dying(CrashPoint.BACKFILL_PUBLISHED, 2))
    read.clear()
    large.capture()
    large.apply()
    large.check("apples")
    assert sum(read) == 0
    assert changed(large) == before


ALTERED = {
    "vacuum full": ("vacuum full apples",),
    "filled anew": ("begin; truncate apples; insert into apples values (1, '1', 'x'); commit",),
    "column added": ("alter table apples add column d int default 7",),
    "volatile default": ("alter table apples add column d float8 default random()",),
    "column dropped": ("alter table apples drop column b",),
    "column renamed": ("alter table apples rename b to d",),
    "names exchanged": (
        (
            "begin; alter table apples rename b to d; alter table apples rename c to b; "
            "alter table apples rename d to c; commit"
        ),
    ),
    "other type": ("alter table apples alter a type bigint",),
    "same type": ("alter table apples alter b type text using b || '!'",),
}


@pytest.mark.full
@pytest.mark.parametrize("dies", some([False, True]))
@pytest.mark.parametrize("alteration", some(list(ALTERED)))
def test_a_table_may_be_altered_between_two_parts(
    large: EvolvingDatabase, alteration: str, dies: bool
) -> None:
    begin(large)
    if dies:
        assert large.capture(Dying(CrashPoint.BACKFILL_NOTED, 2))
        large.run(*ALTERED[alteration])
    meanwhile = Meanwhile(large, ALTERED[alteration], 2, CrashPoint.BACKFILL_NOTED)
    with capture_logs() as logs:
        large.capture(None if dies else meanwhile)
    assert dies or meanwhile.done
    if alteration in {"vacuum full", "other type", "same type", "names exchanged"}:
        assert of(logs, BACKFILL_BEGUN_ANEW)
    assert not parts(large)
    large.run("insert into apples (a) values (7)")  # by which the stream describes columns
    large.capture()
    large.apply()
    large.check("apples")
    assert not parts(large)


@pytest.mark.full
def test_a_table_that_changes_too_fast_is_not_read_anew(
    large: EvolvingDatabase, read: list[int]
) -> None:
    assert large.backfill is not None
    large.backfill = replace(large.backfill, window_bytes=3_000)
    begin(large)
    read.clear()
    many = "insert into apples select g, '7', 'new' from generate_series(1, 60) g"
    with capture_logs() as logs:
        large.capture(Meanwhile(large, (many,) * 3, 3, CrashPoint.BACKFILL_NOTED))
    large.apply()
    large.check("apples")
    assert "faster" in of(logs, BACKFILL_REPEATED)[0]["reason"]
    assert of(logs, BACKFILL_RESUMED)
    assert sum(read) < ROWS * 3 // 2


@pytest.mark.full
@pytest.mark.parametrize("what", some(["0", "versions"]))
def test_a_part_whose_staged_file_is_damaged_is_read_again(
    large: EvolvingDatabase, read: list[int], what: str
) -> None:
    begin(large)
    assert large.capture(Dying(CrashPoint.BACKFILL_NOTED, 4))
    path = next(path for path in parts(large) if path.name.endswith(f"-1-{what}.parquet"))
    path.write_bytes(with_a_flipped_bit(path.read_bytes()))
    read.clear()
    with capture_logs() as logs:
        large.capture()
    large.apply()
    large.check("apples")
    assert len(of(logs, BACKFILL_PART_DAMAGED)) == (what == "0")
    assert sum(read) < ROWS
    assert not parts(large)


@pytest.mark.full
def test_the_parts_of_a_backfill_that_is_stopped_are_removed(large: EvolvingDatabase) -> None:
    begin(large)
    records = BackfillRecords(Records(large.store, root.LANDING))
    assert large.capture(Dying(CrashPoint.BACKFILL_NOTED, 3))
    assert len(parts(large)) >= 9
    (job,) = records.jobs()
    records.stop(job)
    large.capture()
    assert not parts(large)


@pytest.mark.full
def test_the_parts_of_a_backfill_whose_end_was_recorded_are_removed_at_the_next_start(
    large: EvolvingDatabase,
) -> None:
    begin(large)
    recorded: list[CrashPoint] = []

    def ends(point: CrashPoint) -> None:
        recorded.append(point)
        if large_jobs_are_over(large):
            raise Crash(str(point))

    assert large.capture(ends)
    assert recorded[-1] is CrashPoint.BACKFILL_RECORDED
    assert parts(large)
    large.capture()
    assert not parts(large)


def large_jobs_are_over(large: EvolvingDatabase) -> bool:
    jobs = BackfillRecords(Records(large.store, root.LANDING)).jobs()
    return all(job.state.is_over for job in jobs)


@pytest.mark.full
@DRAWN
@given(
    seed=st.integers(0, 1 << 32),
    dies=st.lists(
        st.tuples(st.sampled_from([*NOTING, *LANDING]), st.integers(1, 7)),
        max_size=3,
    ),
    beside=st.lists(st.sampled_from([*CHANGES, *ALTERED]), max_size=3),
)
def test_any_series_of_crashes_and_changes_ends_equal(
    each_database: Database,
    tmp_path: Path,
    seed: int,
    dies: list[tuple[CrashPoint, int]],
    beside: list[str],
) -> None:
    chance, every, number = random.Random(seed), changes(seed), next(_numbers)
    large = EvolvingDatabase(
        each_database,
        LocalStore(tmp_path / str(number)),
        number=number,
        backfill=BackfillSettings(LIMITS, look_seconds=0.0, retry_seconds=0.05),
        part_bytes=4 * PAGE,
    )
    large.run("drop table if exists apples")
    begin(large)
    for point, passage in dies:
        large.capture(Dying(point, passage))
        if chance.random() < 0.5:
            large.apply()
        statements = [next(every) for _ in range(3)]
        if beside:
            statements += {**CHANGES, **ALTERED}[beside.pop()]
        for statement in statements:
            with suppress(psycopg.errors.Error):  # the columns are other ones by now
                large.run(statement)
    large.capture()
    large.apply()
    large.check("apples")
    assert not parts(large)
    large.lose_slot()
