"""Reads the state of tables without a JVM, as needed by `mirrorlake plan`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirrorlake.apply.compaction import chosen_work, clustering_work, described
from mirrorlake.apply.logs.progress import read_named_batches, read_progress, snapshot_of
from mirrorlake.delta import tables
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.strategy import StrategyFacts, StrategySetting, choose_strategy
from mirrorlake.mirror.table.progress import Progress, progress_in, table_name
from mirrorlake.model.landed import NamedBatch
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store


class LogReader:
    """A `TableReader` on the logs of the tables below a root. strategy: the setting;
    platform: why `direct` is not possible, as text."""

    def __init__(
        self, store: Store, strategy: StrategySetting = StrategySetting.AUTO, platform: str = ""
    ) -> None:
        self._store, self._strategy, self._platform = store, strategy, platform

    def progress(self, path: str) -> Progress:
        return read_progress(self._log(path), table_name(path))

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return read_named_batches(self._log(path), table_name(path), after)

    def paths(self, known: Collection[str] = ()) -> list[str]:
        return list(tables.delta_tables(self._store, known))

    def compaction(self, path: str) -> Compact | None:
        return self._compaction(path)

    def clustering(self, path: str) -> Compact | None:
        return self._compaction(path, clusters=True)

    def _compaction(self, path: str, *, clusters: bool = False) -> Compact | None:
        table = table_name(path)
        snapshot = snapshot_of(self._log(path), table)
        progress = progress_in(snapshot, table)
        if progress.unsupported or not progress.exists:
            return None
        choice = choose_strategy(StrategyFacts(self._strategy, self._platform, progress.delegated))
        work = (clustering_work if clusters else chosen_work)(snapshot, choice, progress.key)
        return described(TableId.parse(table), path, work) if work else None

    def _log(self, path: str) -> TableLog:
        return TableLog.below(self._store, path)
