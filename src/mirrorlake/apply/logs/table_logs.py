"""Caches the logs of tables, so that the progress of each version is parsed only once.

Thread-safe: each log has its own lock, so that a running batch does not block the other tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mirrorlake.apply.logs.progress import read_named_batches, read_progress, snapshot_of
from mirrorlake.delta.log.table_log import TableLog, TableSnapshot
from mirrorlake.mirror.table.progress import Progress, progress_in, table_name
from mirrorlake.model.landed import NamedBatch


@dataclass(slots=True)
class _CachedLog:
    """A cached log. progress: at the state `state` of the log; max_age: seconds for which the
    progress is used without reading the log; valid_until: end of this time."""

    log: TableLog
    lock: threading.RLock = field(default_factory=threading.RLock)
    state: object = None
    progress: Progress = field(default_factory=Progress)
    max_age: float = 0.0
    valid_until: float = 0.0


class TableLogs:
    """The logs of the tables below one root.

    open_log: returns the log of the table at a path. max_age: returns the number of seconds for
    which `progress` of the table at a path may be outdated, because each check is a request; a
    caller that changes the table calls `changed`.
    """

    def __init__(
        self,
        open_log: Callable[[str], TableLog],
        max_age: Callable[[str], float] = lambda _path: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_log, self._max_age, self._clock = open_log, max_age, clock
        self._known: dict[str, _CachedLog] = {}

    def log(self, path: str) -> TableLog:
        """The log of a table, without its lock: for a caller that no other thread disturbs."""
        return self._cached(path).log

    def progress(self, path: str) -> Progress:
        """The current state of the table; the same object while the table has the same version.

        Changes of other writers may be seen later, by its `max_age`. Raises ForeignTable.
        """
        cached = self._cached(path)
        with cached.lock:
            if cached.valid_until and self._clock() < cached.valid_until:
                return cached.progress
            snapshot = snapshot_of(cached.log, table_name(path))
            if cached.state is None or cached.state != cached.log.state:
                cached.progress = read_progress(cached.log, table_name(path))
                cached.state = cached.log.state if snapshot.exists else None
            if cached.max_age and snapshot.exists:
                cached.valid_until = self._clock() + cached.max_age
            return cached.progress

    @contextmanager
    def snapshot(self, path: str, table: str) -> Iterator[tuple[TableSnapshot, Progress]]:
        """The newest version, which is not updated while the context is open. Raises
        ForeignTable."""
        cached = self._cached(path)
        with cached.lock:
            snapshot = snapshot_of(cached.log, table)
            yield snapshot, progress_in(snapshot, table)

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        """As `read_named_batches`."""
        cached = self._cached(path)
        with cached.lock:
            return read_named_batches(cached.log, table_name(path), after)

    def changed(self, path: str) -> None:
        """Check the log of a table at the next call of `progress`."""
        self._cached(path).valid_until = 0.0

    def forget(self, path: str) -> None:
        """Read the whole log of a table at the next call."""
        cached = self._cached(path)
        with cached.lock:
            cached.log.forget()
            cached.state, cached.valid_until = None, 0.0

    def _cached(self, path: str) -> _CachedLog:
        found = self._known.get(path)
        if found is None:
            # If two threads arrive at the same time, both get the same log.
            new = _CachedLog(self._open_log(path), max_age=self._max_age(path))
            found = self._known.setdefault(path, new)
        return found
