"""A database on a real server whose tables are altered, mirrored without a JVM."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from mirrorlake import root
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.capture.capture import Capture
from mirrorlake.capture.record import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.sources.postgresql.source import PostgresSource
from mirrorlake.storage.local import LocalStore
from tests.capture.landing import landing_capture
from tests.conftest import Database
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.doubles.memory_store import Crash


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
    number: int = 0
    reader: HandmadeReader = field(init=False)

    def __post_init__(self) -> None:
        self.reader = HandmadeReader(self.store)

    def run(self, *statements: str) -> None:
        """Each in a transaction of its own; several with semicolons are one."""
        self.database.execute(*statements)

    @contextmanager
    def capturing(
        self, dying: Dying | None = None, stop: threading.Event | None = None
    ) -> Iterator[Capture]:
        """stop: ends `Capture.run`, which then looks at the source all the time."""
        settings = CaptureSettings(
            load_workers=1,
            roll_seconds=0.0,
            strict=self.strict,
            stops_at=self.stops_at,
            watch_seconds=0.1 if stop else 30.0,
        )
        name = f"evolving_{self.database.name}_{self.number}"
        source = PostgresSource(self.database.settings(slot=name, publication=name))
        capture = landing_capture(
            source,
            self.store,
            settings,
            WallClock(),
            reached=dying or Dying(),
            holder="c",
            stop=stop,
        )
        with closing(capture):
            capture.open()
            yield capture

    def capture(self, dying: Dying | None = None) -> bool:
        """One process of capture that lands everything. Returns whether it died."""
        try:
            with self.capturing(dying) as capture:
                capture.once()
        except Crash:
            return True
        return False

    def live(self, statements: Sequence[str], *, each: bool) -> None:
        """One process of capture, which sees each statement by itself, or all at their end."""
        with self.capturing() as capture:
            for statement in statements:
                self.run(statement)
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

    def apply(self, dying: Dying | None = None) -> bool:
        """One process that applies everything. Returns whether it died."""
        reached = dying or Dying()
        engine = in_process_engine(self.store, reached)
        settings = MirrorSettings(cleanup_seconds=0, stops_at=self.stops_at)
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

    def forget(self) -> None:
        """Let the server keep nothing for this root."""
        name = f"evolving_{self.database.name}_{self.number}"
        self.run(f"select pg_drop_replication_slot('{name}')", "drop table apples, log")

    def stopped(self) -> dict[str, str]:
        found = Records(self.store, root.LANDING).stopped()
        return {name: str(facts["message"]) for name, facts in found.items()}

    def columns(self, table: str) -> list[str]:
        return in_process_engine(self.store).progress(f"Tables/public/{table}").schema.names

    def mirrored(self, table: str) -> list[dict[str, Any]]:
        names = self.columns(table)
        rows = self.reader.rows(f"Tables/public/{table}")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def check(self, table: str, like: Callable[[Any], Any] = lambda value: value) -> None:
        """The mirror has the rows of the table, and its feed leads to them from the start. like:
        what equals for a value of either if the values do."""
        assert self.stopped() == {}
        with psycopg.connect(self.database.url) as connection:
            cursor = connection.execute(f"select * from {table}")
            names = [column.name for column in cursor.description or ()]
            expected = Counter(tuple(map(like, row)) for row in cursor)
        found = [tuple(like(row[name]) for name in names) for row in self.mirrored(table)]
        assert Counter(found) == expected
        path = f"Tables/public/{table}"
        played: Counter[tuple[Any, ...]] = Counter()
        for changes in self.reader.feed(path).values():
            for (kind, row), count in changes.items():
                sign = 1 if kind in {"insert", "update_postimage"} else -1
                played[tuple(map(like, row))] += sign * count
        there = Counter(tuple(map(like, row)) for row in self.reader.rows(path))
        assert {row: n for row, n in played.items() if n} == there
