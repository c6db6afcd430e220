"""An engine that only reads: what `plan` needs, without a JVM."""

from __future__ import annotations

from mirrorlake.lake.log import TableLog
from mirrorlake.landing.store import Store
from mirrorlake.mirror.progress import Progress, read_progress, table_at


class TableReader:
    """The reading half of a `MirrorEngine`."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def progress(self, path: str) -> Progress:
        return read_progress(TableLog(self._store.location(path)), table_at(path))
