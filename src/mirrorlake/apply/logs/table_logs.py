"""The logs of tables, followed: what a table says is parsed once for each version of it.

For several threads: each log has a lock of its own, so that a batch that is under way keeps nobody
from looking at other tables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mirrorlake.apply.logs.progress import read_named_batches, read_progress, snapshot_of
from mirrorlake.delta.log.table_log import TableLog, TableSnapshot
from mirrorlake.mirror.table.progress import Progress, progress_in, table_at
from mirrorlake.model.landed import NamedBatch


@dataclass(slots=True)
class _Followed:
    """progress: as the log stood at `state`; patience: seconds for which it does without a look;
    until: when these end."""

    log: TableLog
    lock: threading.RLock = field(default_factory=threading.RLock)
    state: object = None
    progress: Progress = field(default_factory=Progress)
    patience: float = 0.0
    until: float = 0.0


class TableLogs:
    """The logs of the tables below one root. follow: the log of the table at a path.

    patience: for how many seconds `progress` of the table at a path does without a look at its log,
    where each look is a request; whoever changes the table says so by `changed`.
    """

    def __init__(
        self,
        follow: Callable[[str], TableLog],
        patience: Callable[[str], float] = lambda _path: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._follow, self._patience, self._clock = follow, patience, clock
        self._known: dict[str, _Followed] = {}

    def log(self, path: str) -> TableLog:
        """For who knows that nobody else looks at it."""
        return self._followed(path).log

    def progress(self, path: str) -> Progress:
        """The state of the table now; the same object as long as the table has the same version.

        What others do to it may be seen later, by its patience. Raises ForeignTable.
        """
        followed = self._followed(path)
        with followed.lock:
            if followed.until and self._clock() < followed.until:
                return followed.progress
            snapshot = snapshot_of(followed.log, table_at(path))
            if followed.state is None or followed.state != followed.log.state:
                followed.progress = read_progress(followed.log, table_at(path))
                followed.state = followed.log.state if snapshot.exists else None
            if followed.patience and snapshot.exists:
                followed.until = self._clock() + followed.patience
            return followed.progress

    @contextmanager
    def snapshot(self, path: str, table: str) -> Iterator[tuple[TableSnapshot, Progress]]:
        """The newest version, which stays as it is in this context. Raises ForeignTable."""
        followed = self._followed(path)
        with followed.lock:
            snapshot = snapshot_of(followed.log, table)
            yield snapshot, progress_in(snapshot, table)

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        """The batches beyond number `after` that the log still tells. Raises ForeignTable."""
        followed = self._followed(path)
        with followed.lock:
            return read_named_batches(followed.log, table_at(path), after)

    def changed(self, path: str) -> None:
        """Look at the log of a table next time."""
        self._followed(path).until = 0.0

    def forget(self, path: str) -> None:
        """Read everything of a table anew next time."""
        followed = self._followed(path)
        with followed.lock:
            followed.log.forget()
            followed.state, followed.until = None, 0.0

    def _followed(self, path: str) -> _Followed:
        found = self._known.get(path)
        if found is None:
            # Of two threads that come at once, both get the one that was first.
            new = _Followed(self._follow(path), patience=self._patience(path))
            found = self._known.setdefault(path, new)
        return found
