"""The engine in this process, with what a test wants to see of it, and a reader of its tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from mirrorlake.apply.committer import Committer
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.in_process.committer import LogCommitter
from mirrorlake.apply.in_process.runner import InProcessRunner
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.spread import Exchange, SpreadSettings
from mirrorlake.mirror.strategy import PLAIN, StrategyName, StrategySetting
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import Schema
from mirrorlake.storage.store import Store
from tests.conformance.mirrored import Feeds
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import feed_of
from tests.doubles.handmade_merge import HandmadeMerge, HandmadeOptimizer
from tests.reference import Row


class RecordingTables(LogTables):
    """Vacuums and checkpoints are noted, and not done."""

    def __init__(
        self, store: Store, partitions: Callable[[Schema], Sequence[str]] = lambda _schema: ()
    ) -> None:
        super().__init__(store, partitions)
        self.vacuumed: list[tuple[str, timedelta]] = []
        self.checkpoints: list[str] = []

    def vacuum(self, path: str, retention: timedelta, before: Callable[[], None]) -> None:
        before()
        self.vacuumed.append((path, retention))

    def checkpoint(self, path: str, known: Progress, strategy: StrategyName) -> None:
        self.checkpoints.append(path)


ALWAYS = Exchange(rows=-1)
"""Tasks send each other the keys of every batch that is spread."""


def in_process_engine(
    store: Store,
    reached: CrashHook = no_crash,
    *,
    spread: int = 0,
    exchange: Exchange = ALWAYS,
    partitions: Callable[[Schema], Sequence[str]] = lambda _schema: (),
    merges: bool = False,
    compaction: bool = True,
    runner: Runner | None = None,
    committer: Committer | None = None,
    tables: LogTables | None = None,
) -> Engine:
    """An engine that needs neither Spark nor Delta.

    spread: every batch that can goes in stages of so many tasks; exchange: of which of them the
    tasks send each other keys; partitions: the columns by which a
    table that it makes is partitioned; merges: every batch goes by the merge strategy.
    """
    runner = runner or InProcessRunner(spread or 1)
    committer = committer or LogCommitter()
    return Engine(
        store,
        runner,
        committer,
        tables or RecordingTables(store, partitions),
        merge=HandmadeMerge(store, reached) if merges else None,
        optimizer=HandmadeOptimizer(runner, committer) if merges else None,
        reached=reached,
        strategy=StrategySetting.MERGE if merges else StrategySetting.AUTO,
        compaction=compaction,
        spread=SpreadSettings(always=True, exchange=exchange) if spread else None,
    )


def by_plain_columns(schema: Schema) -> list[str]:
    """Every other column, from the last on, of those by which a table can be partitioned whatever
    they hold: an empty text has no place there."""
    plain = [one.name for one in schema if one.type.name in {*PLAIN, "decimal"} - {"string"}]
    return plain[::-2][: len(schema) - 1]


class HandmadeReader:
    """Reads the tables of a store file by file."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rows(self, path: str) -> list[Row]:
        return self._table(path).rows()

    def feed(self, path: str) -> Feeds:
        """By the tests themselves, and the same by our own reader."""
        feed = dict(self._feeds(self._table(path)))
        assert feed_of(self._store.location(path), 0, self._store.options(path)) == feed
        return feed

    def tables(self, paths: Sequence[str]) -> list[tuple[list[Row], Feeds]]:
        return [(self.rows(path), self.feed(path)) for path in paths]

    def commit(self, path: str, version: int) -> dict[str, Any]:
        actions = self._table(path).log.actions(version)
        (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
        return info

    def _feeds(self, table: HandmadeTable) -> Iterator[tuple[int, Counter[tuple[str, Row]]]]:
        for version in range(table.log.snapshot().version + 1):
            if feed := table.feed(version):
                yield version, feed

    def _table(self, path: str) -> HandmadeTable:
        return HandmadeTable(self._store.location(path))
