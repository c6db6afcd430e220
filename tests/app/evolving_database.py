"""A database on a real server whose tables are altered, mirrored without a JVM."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import psycopg
import pyarrow as pa
from hypothesis import HealthCheck, settings

from mirrorlake import read_feed, root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.apply.engine import Engine
from mirrorlake.capture.backfill.backfills import BackfillSettings
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.watch.append_only import UncapturedPolicy
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import is_wider
from mirrorlake.sources.postgresql.settings import TriggerPolicy
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.sources.selection import Selection
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conformance.scene import until
from tests.conftest import Database
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.doubles.memory_store import Crash
from tests.histories import rows_of
from tests.profiles import tries
from tests.reference import plain


class Dying:
    """A process ends when it is at a point for the given time."""

    def __init__(self, at: CrashPoint | None = None, times: int = 1) -> None:
        self.at, self.left = at, times

    def __call__(self, point: CrashPoint) -> None:
        self.left -= point is self.at
        if point is self.at and not self.left:
            raise Crash(str(point))


@dataclass
class EvolvingDatabase:
    """A database, a root, and processes between them that may end at any point."""

    database: Database
    store: LocalStore
    stops_at: frozenset[SchemaChangeKind] = frozenset()
    strict: bool = False
    metadata: bool = False
    soft: bool = False
    load: tuple[str, ...] | None = None
    load_beside: int | None = None
    joining_beside: int = 256 << 20
    backfill: BackfillSettings | None = None
    ignores: bool = False
    trigger: TriggerPolicy = TriggerPolicy.NEVER
    streaming: bool = False
    ignored: frozenset[SchemaChangeKind] = frozenset()
    drops: bool = False
    renames: bool = False
    widens: bool = False
    uncaptured: UncapturedPolicy = UncapturedPolicy.MARK
    selected: tuple[str, ...] = ("*.*",)
    selected_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    selected_rows: Mapping[str, str] = field(default_factory=dict)
    part_bytes: int = 256 << 20
    drop_after: float = 60.0
    drops_tables: bool = True
    number: int = 0
    reader: HandmadeReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = HandmadeReader(self.store)

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own; several with semicolons are one."""
        self.database.execute(*statements)

    @property
    def made(self) -> str:
        """The name of its slot, and of its publication."""
        return f"evolving_{self.database.name}_{self.number}"

    @contextmanager
    def capturing(
        self, dying: CrashHook | None = None, stop: threading.Event | None = None
    ) -> Iterator[Capture]:
        """stop: ends `Capture.run`, which then looks at the source all the time."""
        with closing(self.new_capture(dying, stop)) as capture:
            capture.open()
            yield capture

    @contextmanager
    def running(
        self, watch_seconds: float = 0.1, dying: CrashHook | None = None
    ) -> Iterator[Capture]:
        """Capture runs in a thread until the block ends."""
        stop = threading.Event()
        with closing(self.new_capture(dying, stop, watch_seconds)) as capture:
            thread = threading.Thread(target=capture.run)
            thread.start()
            try:
                yield capture
            finally:
                stop.set()
                thread.join()

    def new_capture(
        self,
        dying: CrashHook | None = None,
        stop: threading.Event | None = None,
        watch_seconds: float = 0.1,
    ) -> Capture:
        settings = CaptureSettings(
            load_workers=1,
            one_thread=stop is None,
            roll_seconds=0.0,
            soft_deletes=self.soft,
            strict=self.strict,
            metadata_columns=self.metadata,
            stops_at=self.stops_at,
            uncaptured=self.uncaptured,
            watch_seconds=watch_seconds if stop else 30.0,
            load=self.load or ("*.*",),
            load_joining=self.load is None,
            load_beside=self.load_beside,
            joining_beside=self.joining_beside,
            drop_after_seconds=self.drop_after,
            ignores=self.ignored | ({SchemaChangeKind.COLUMN_ADDED} if self.ignores else set()),
        )
        name = self.made
        selection = Selection(self.selected, self.selected_columns, self.selected_rows)
        source = PostgresSource(
            self.database.settings(
                slot=name,
                publication=name,
                selection=selection,
                part_bytes=self.part_bytes,
                event_trigger=self.trigger,
                streaming=self.streaming,
            )
        )
        return landing_capture(
            source,
            self.store,
            settings,
            WallClock(),
            reached=dying or Dying(),
            holder="c",
            stop=stop,
            backfill=self.backfill,
        )

    def capture(self, dying: CrashHook | None = None) -> bool:
        """One process of capture that lands everything. Returns whether it died."""
        try:
            with self.capturing(dying) as capture:
                capture.once()
        except Crash:
            return True
        return False

    def live(self, statements: Sequence[str], *, each: bool, beside: Sequence[str] = ()) -> None:
        """One process of capture, which sees each statement by itself, or all at their end. beside:
        what is run after each of them."""
        with self.capturing() as capture:
            for statement in statements:
                self.run(statement, *beside)
                if each:
                    capture.once()
                    self.apply()
            capture.once()
        self.apply()

    def begin(self, *tables: str) -> None:
        """These tables are mirrored."""
        self.run(*tables)
        self.capture()
        self.apply()

    def apply(self, dying: CrashHook | None = None) -> bool:
        """One process that applies everything. Returns whether it died."""
        reached = dying or Dying()
        engine = self.engine(reached)
        settings = MirrorSettings(
            cleanup_seconds=0,
            stops_at=self.stops_at,
            soft_deletes=self.soft,
            ignores_new_columns=self.ignores,
            drops_columns=self.drops,
            renames_columns=self.renames,
            widens_types=self.widens,
            drop_tables=self.drops_tables,
            drop_after=timedelta(seconds=self.drop_after),
        )
        loop = ApplyLoop(self.store, engine, settings, WallClock(), reached=reached, holder="m")
        loop.open()
        try:
            report = loop.once()
            assert not report.errors, report.errors
        except Crash:
            return True
        finally:
            loop.close()
        return False

    def engine(self, reached: CrashHook = no_crash) -> Engine:
        return in_process_engine(self.store, reached)

    def lose_slot(self) -> None:
        """Drop the slot, once the server has noticed that nobody reads it any more."""
        query = f"select from pg_replication_slots where slot_name = '{self.made}' and active"
        until(lambda: self.database.sql.execute(query).fetchone() is None)
        self.run(f"select pg_drop_replication_slot('{self.made}')")

    def stopped(self) -> dict[str, str]:
        found = Records(self.store, root.LANDING).stopped()
        return {name: str(facts["message"]) for name, facts in found.items()}

    def read_again(self) -> list[BackfillRequest]:
        """Requests to read tables again, each of which is completed."""
        return [job.request for job in self.jobs()]

    def jobs(self) -> list[BackfillJob]:
        """The backfills that there are records of, each of which is completed."""
        jobs = BackfillRecords(Records(self.store, root.LANDING)).jobs()
        assert {job.state for job in jobs} <= {BackfillJobState.COMPLETED}
        return jobs

    def columns(self, table: str) -> list[str]:
        return in_process_engine(self.store).progress(f"Tables/public/{table}").schema.names

    def mirrored(self, table: str) -> list[dict[str, Any]]:
        names = self.columns(table)
        rows = self.reader.rows(f"Tables/public/{table}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def check(
        self,
        table: str,
        like: Callable[[Any], Any] = lambda value: value,
        source: str = "",
        columns: str = "*",
        stopped: Collection[str] = (),
    ) -> None:
        """The mirror has the rows of the table, and its feed leads to them from the start. like:
        what equals for a value of either if the values do; source: its name there, if it is another
        one; columns: those to compare, in SQL; stopped: the tables that are."""
        assert self.stopped().keys() == set(stopped), self.stopped()
        with psycopg.connect(self.database.url) as connection:
            cursor = connection.execute(f"select {columns} from {source or table}")
            names = [column.name for column in cursor.description or ()]
            expected = Counter(tuple(map(like, row)) for row in cursor)
        found = [tuple(like(row[name]) for name in names) for row in self.mirrored(table)]
        assert Counter(found) == expected
        played = self.played(table)
        there = [plain(tuple(row.values())) for row in self.mirrored(table)]
        assert Counter(tuple(map(like, row)) for row in played) == Counter(
            tuple(map(like, row)) for row in there
        )

    def data_files(self, table: str) -> set[str]:
        """The names of the data files of the newest version of a mirrored table."""
        return set(TableLog(self.store.location(f"Tables/public/{table}")).snapshot().files)

    def played(self, table: str) -> list[tuple[Any, ...]]:
        """The rows to which the feed leads from version 0, whatever its columns were meanwhile. A
        column that is new begins with NULL, whatever columns had its name, and so does one whose
        type is no wider one."""
        rows: Counter[tuple[Any, ...]] = Counter()
        feed = read_feed(self.store.location(f"Tables/public/{table}"), from_version=0)
        former = TableSchema(Schema(()), (), ())
        for piece in feed.ranges:
            now = piece.schema.schema
            kept = Counter[tuple[Any, ...]]()
            for row, count in rows.items():
                had = dict(zip(former.physical, row, strict=True))
                both = zip(now, piece.schema.physical, strict=True)
                moved = tuple(_kept(had.get(there), one, former, there) for one, there in both)
                kept[moved] += count
            rows, former = kept, piece.schema
            for commit in feed.commits(piece):
                for change in plain_rows(commit.rows):
                    row = tuple(change[name] for name in now.names)
                    is_there = change["_change_type"] in {"insert", "update_postimage"}
                    rows[row] += 1 if is_there else -1
        assert all(count >= 0 for count in rows.values())
        return list(rows.elements())


DRAWN = settings(
    max_examples=tries(12, long=100),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
)
"""Of tests that draw a series of changes."""


def moments(
    random: Random, evolving: EvolvingDatabase, points: Sequence[CrashPoint]
) -> Iterator[None]:
    """Between two transactions: nothing happens, or a process runs, and perhaps dies at a point."""
    while True:
        dying = Dying(random.choice(points)) if random.random() < 0.3 else Dying()
        match random.choice(["", "", "capture", "apply"]):
            case "capture":
                evolving.capture(dying)
            case "apply":
                evolving.apply(dying)
        yield


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as `HandmadeReader` has them."""
    names = rows.column_names
    return [dict(zip(names, plain(row), strict=True)) for row in rows_of(rows)]


def _kept(value: Any, column: Column, before: TableSchema, physical: str) -> Any:
    """The value of a column that may have another type now."""
    if value is None:
        return None
    former = before.schema.columns[before.physical.index(physical)].type
    if column.type == former:
        return value
    if not is_wider(column.type, former):
        return None
    if pa.types.is_floating(arrow_type(former)):
        value = float(value)
    (cast,) = plain((pa.scalar(value, arrow_type(former)).cast(arrow_type(column.type)).as_py(),))
    return cast
