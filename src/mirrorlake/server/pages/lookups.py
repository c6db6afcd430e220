"""What takes a while to find out, found out beside the requests that show it."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass

from mirrorlake.app.streams.positions import StreamPositions, positions_of
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError

PATIENCE = 1.5
"""Seconds that a page waits before it shows what was known before."""
FRESH_SECONDS = 2.0
MOST = 1_000


@dataclass(slots=True)
class _Lookup:
    future: Future[StreamPositions]
    asked: float
    last: StreamPositions


class PositionLookups:
    """The positions of streams, asked for again when somebody looks. For any number of threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="positions")
        self._lock = threading.Lock()
        self._lookups: dict[str, _Lookup] = {}

    def of(self, stream: str, project: Project) -> StreamPositions:
        """What is known now, or in a moment; nothing before the source has answered once."""
        with self._lock:
            found = self._lookups.get(stream)
            now = time.monotonic()
            if found is None or (found.future.done() and now - found.asked > FRESH_SECONDS):
                last = found.last if found else StreamPositions()
                found = _Lookup(self._pool.submit(positions_of, project), now, last)
                self._lookups.pop(stream, None)
                self._lookups[stream] = found
                while len(self._lookups) > MOST:
                    del self._lookups[next(iter(self._lookups))]
        with suppress(NotYet, MirrorlakeError, OSError, ValueError, KeyError):
            found.last = found.future.result(PATIENCE)
        return found.last
