"""An engine that only reads: what `plan` needs, without a JVM."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mirrorlake.delta import tables
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.progress import Progress, read_named_batches, read_progress, table_at
from mirrorlake.model.landed import NamedBatch
from mirrorlake.storage.store import Store


class TableReader:
    """The reading half of a `MirrorEngine`. slots: for whoever asks; it runs no tasks."""

    slots = 1

    def __init__(self, store: Store) -> None:
        self._store = store

    def progress(self, path: str) -> Progress:
        return read_progress(self._log(path), table_at(path))

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return read_named_batches(self._log(path), table_at(path), after)

    def paths(self, known: Collection[str] = ()) -> list[str]:
        return list(tables.delta_tables(self._store, known))

    def _log(self, path: str) -> TableLog:
        return TableLog.below(self._store, path)
