"""From a database in memory through capture and the landing zone into Delta tables, without any
server: processes end in between, and tables are equal to their source again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.errors import SelectionChanged
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.layout import METADATA
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.landed import DEFAULT_STREAM
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import LONG, STRING
from mirrorlake.root import LANDING
from mirrorlake.sources.memory.database import MemoryDatabase, Numbers
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.source import MemorySource
from mirrorlake.storage.lease import TERM
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.doubles.clock import SteppedClock
from tests.doubles.gtid import Sets
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.doubles.memory_store import Crash

TABLES = ["shop.orders", "shop.items"]
COLUMNS = Schema.of([Column("id", LONG), Column("note", STRING)])
SMALL = CaptureSettings(roll_bytes=1, load_bytes=1, load_workers=1, one_thread=True)


class Pipeline:
    """A database in memory, a root in a folder, and the processes between them."""

    def __init__(
        self, folder: Path, settings: MemorySettings, stream: str = DEFAULT_STREAM
    ) -> None:
        self.database, self.stream = settings.database, stream
        self.settings, self.random = settings, Random(7)
        self.clock = SteppedClock()
        self.store = LocalStore(folder)
        self.number = 0

    def write(self, transactions: int = 1) -> None:
        """Transactions of a few inserts, updates, changed keys and deletions each."""
        for _ in range(transactions):
            table = self.random.choice([str(name) for name in self.database.tables])
            with self.database.transaction(self.random.choice("ab")) as write:
                for row in self.database.rows(table)[:3]:
                    if self.random.random() < 0.5:
                        write.update(table, {"id": row["id"]}, note=f"changed {self.number}")
                    elif self.random.random() < 0.5:
                        write.update(table, {"id": row["id"]}, id=row["id"] + 1_000_000)
                    else:
                        write.delete(table, id=row["id"])
                for _ in range(self.random.randint(1, 4)):
                    self.number += 1
                    write.insert(table, id=self.number, note=f"new {self.number}")

    def capture(self, ends_at: CrashPoint | None = None, times: int = 1) -> bool:
        """One process of capture. Returns whether it ended at the point, reached so many times."""
        left = times

        def reached(point: CrashPoint) -> None:
            nonlocal left
            left -= point is ends_at
            if point is ends_at and not left:
                raise Crash(str(point))

        self.clock.advance(2 * TERM.total_seconds())
        capture = landing_capture(
            MemorySource(self.settings),
            self.store,
            SMALL,
            self.clock,
            stream_id=self.stream,
            reached=reached,
            holder=str(self.random.random()),
        )
        try:
            capture.open()
            capture.once()
        except Crash:
            if capture.loop is not None:
                capture.loop.abandon()  # or Arrow's writers complain when they are collected
            return True
        capture.close()
        return False

    def apply(self) -> None:
        self.clock.advance(2 * TERM.total_seconds())
        engine = in_process_engine(self.store)
        loop = ApplyLoop(self.store, engine, MirrorSettings(cleanup_seconds=0), self.clock)
        loop.open()
        report = loop.once()
        loop.close()
        assert not report.errors

    def check(self) -> None:
        """The tables are equal to their source, and so are their feeds, played from the start."""
        reader = HandmadeReader(self.store)
        for name, table in self.database.tables.items():
            expected = Counter((row["id"], row["note"]) for row in table.rows.values())
            path = f"Tables/{name.schema}/{name.name}"
            assert Counter(reader.rows(path)) == expected
            played: Counter[tuple[object, ...]] = Counter()
            for changes in reader.feed(path).values():
                for (kind, row), count in changes.items():
                    played[row] += count if kind in {"insert", "update_postimage"} else -count
            assert +played == expected
            assert not -played


def database_of(points: Numbers | Sets) -> MemoryDatabase:
    database = MemoryDatabase(SteppedClock(), points)
    for table in TABLES:
        database.create(table, COLUMNS, ["id"])
    return database


@pytest.fixture(params=["numbers, with a slot", "sets, without one"])
def settings(request: pytest.FixtureRequest) -> MemorySettings:
    sets = request.param.startswith("sets")
    return MemorySettings(
        database_of(Sets() if sets else Numbers()),
        slot=None if sets else "mirrorlake",
        messages=lambda: 3,
        parts=lambda: 2,
        rows=lambda left: (left + 1) // 2,
    )


OTHERS = (
    "capture.backfill.",
    "capture.events.",
    "capture.load.noted",
    "capture.repair.",
    "capture.replaced.",
    "capture.known.noted",
    "capture.stopped.",
    "capture.truncated.",
    "capture.unfollowed.",
    "capture.loads.",
    "capture.append_only.",
    "capture.without_effect.",
    "capture.attached.",
    "capture.ignored.",
    "capture.deleted.",
    "capture.admitted.",
    "capture.publication.",
    "capture.message.",
)
"""Points that a stream from memory into a landing zone does not pass; they have tests of their
own."""

POINTS = [p for p in CrashPoint if p.startswith("capture.") and not p.startswith(OTHERS)]


@pytest.mark.parametrize("point", POINTS)
def test_tables_are_equal_whatever_point_capture_ends_at(
    tmp_path: Path, settings: MemorySettings, point: CrashPoint
) -> None:
    """What was published and not acknowledged comes again, and is left out."""
    pipeline = Pipeline(tmp_path, settings)
    pipeline.write(5)
    ended = pipeline.capture(point, times=2 if point is CrashPoint.LOAD_PUBLISHED_ONE else 1)
    pipeline.apply()
    pipeline.write(5)
    ended |= pipeline.capture(point)
    pipeline.apply()
    pipeline.write(5)
    assert not pipeline.capture()
    pipeline.apply()
    pipeline.check()
    assert ended


@pytest.mark.parametrize("is_consistent", [True, False])
def test_a_snapshot_is_taken_beside_changes(
    tmp_path: Path, settings: MemorySettings, is_consistent: bool
) -> None:
    pipeline = Pipeline(tmp_path, settings)

    def rows(left: int) -> int:
        pipeline.write()
        return (left + 1) // 2

    pipeline.settings = replace(settings, rows=rows, is_consistent=is_consistent)
    pipeline.write(9)
    assert pipeline.capture(CrashPoint.CUT_WRITTEN)
    assert not pipeline.capture()
    cuts = f"{LANDING}/_mirrorlake/cuts"
    for file in pipeline.store.list(cuts).files:
        cut = Cut.decode(pipeline.store.read(f"{cuts}/{file.name}"))
        for table in cut.tables.keys() - cut.excluded.keys():
            name = f"{LANDING}/shop.schema/{table.partition('.')[2]}/{METADATA}"
            upto = json.loads(pipeline.store.read(name))["mirrorlake"]["source"]["upto"]
            parse = settings.database.points.parse
            assert not upto or parse(cut.position).covers(parse(upto))
    pipeline.apply()
    pipeline.check()


def test_no_cut_names_files_of_a_table_that_is_created_again(
    tmp_path: Path, settings: MemorySettings
) -> None:
    pipeline, table = Pipeline(tmp_path, settings), TABLES[0]
    for _ in range(2):
        pipeline.write(9)
        pipeline.capture()
        pipeline.apply()
    named = Cuts(pipeline.store, LANDING).newest()
    assert named is not None
    assert table in named.tables
    reads = iter(range(1000))

    def before_read() -> None:
        if next(reads):
            return
        settings.database.drop(table)
        settings.database.create(table, COLUMNS, ["id"])
        with settings.database.transaction() as write:
            for number in range(9):
                write.insert(table, id=number, note="again")

    pipeline.settings = replace(settings, before_read=before_read)
    pipeline.write()
    pipeline.capture()
    cuts = list(Cuts(pipeline.store, LANDING).whole())
    (begun,) = [cut for cut in cuts if cut.begun == (table,)]
    assert begun.number > named.number
    assert begun.tables.keys() == set(TABLES) - {table}
    assert begun.excluded == {table: "loaded again"}
    folder = pipeline.store.list(f"{LANDING}/shop.schema/orders").files
    landed = [int(Path(file.name).stem) for file in folder if file.name.endswith(".parquet")]
    assert cuts[-1].tables[table] == max(landed)
    pipeline.apply()
    pipeline.check()


def test_a_table_that_is_dropped_amid_a_large_transaction_stops_no_other(
    tmp_path: Path, settings: MemorySettings
) -> None:
    """Its files are written before the transaction ends, with values that are read again."""
    pipeline, (table, other) = Pipeline(tmp_path, settings), TABLES
    pipeline.write(5)
    pipeline.capture()
    reads = iter(range(1000))

    def before_read() -> None:
        if next(reads) == 1:
            settings.database.drop(table)

    settings = replace(settings, before_read=before_read, messages=lambda: 2)
    with settings.database.transaction() as write:
        for row in settings.database.rows(table):
            write.update(table, {"id": row["id"]}, ["note"], id=row["id"] + 1000)
        write.insert(other, id=777, note="later")
    pipeline.clock.advance(2 * TERM.total_seconds())
    strict = replace(SMALL, strict=True)
    source = MemorySource(settings)
    capture = landing_capture(source, pipeline.store, strict, pipeline.clock, holder="strict")
    capture.open()
    capture.once()
    capture.close()
    stopped = Records(pipeline.store, LANDING).stopped()
    assert {name: error["code"] for name, error in stopped.items()} == {table: "table_dropped"}
    pipeline.apply()
    mirrored = HandmadeReader(pipeline.store).rows("Tables/shop/items")
    assert Counter(mirrored) == Counter((r["id"], r["note"]) for r in settings.database.rows(other))
    assert (777, "later") in mirrored


def test_a_table_that_another_stream_lands_is_refused_and_stays_as_it_is(
    tmp_path: Path, settings: MemorySettings
) -> None:
    pipeline, other = Pipeline(tmp_path, settings), database_of(Sets())
    second = Pipeline(tmp_path, MemorySettings(other, slot=None), "second")
    other.create("shop.people", COLUMNS, ["id"])
    for _ in range(2):
        pipeline.write(3)
        pipeline.capture()
        second.write(9)
        second.capture()
    pipeline.apply()
    pipeline.check()
    stopped = Records(pipeline.store, LANDING, "second").stopped()
    assert {name: error["code"] for name, error in stopped.items()} == dict.fromkeys(
        TABLES, SelectionChanged.code
    )
    reader = HandmadeReader(pipeline.store)
    assert len(reader.rows("Tables/shop/people")) == len(other.rows("shop.people"))


def test_two_sources_land_in_one_zone_beside_each_other(
    tmp_path: Path, settings: MemorySettings
) -> None:
    other = MemoryDatabase(SteppedClock(), Sets())
    other.create("crm.people", COLUMNS, ["id"])
    pipelines = [
        Pipeline(tmp_path, settings),
        Pipeline(tmp_path, MemorySettings(other, slot=None), "crm"),
    ]
    for _ in range(3):
        for pipeline in pipelines:
            pipeline.write(4)
            pipeline.capture()
        pipelines[0].apply()
    for pipeline in pipelines:
        pipeline.check()
    newest = [Cuts(p.store, LANDING, p.stream).newest() for p in pipelines]
    assert [sorted(cut.tables) for cut in newest if cut] == [sorted(TABLES), ["crm.people"]]
