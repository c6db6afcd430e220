"""What happened to streams in the last hours, for the plots: kept in memory, and bounded.

One point for each minute of the last six hours and stream. It begins with the process: what a
stream has done is told by its tables, and a plot with a gap says no more than it knows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from mirrorlake.app.status.amounts import p50_p99
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.streams.supervisor import Work
from mirrorlake.model.state import TableState

POINT_SECONDS, POINTS = 60.0, 360
WINDOW = 60.0
"""Seconds that rates and freshness are of, as in the view of `mirrorlake run`."""
LOOK_SECONDS = 1.0
MOST_TIMES = 5_000
"""Commits of the last minute of which the freshness is kept."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A minute. begun: seconds since 1970; rows: changes applied in it; freshness: p50 and p99 of
    the commits to its tables, in seconds, None without any."""

    begun: float
    rows: int
    freshness: tuple[float, float] | None


@dataclass(slots=True)
class _Minute:
    begun: float
    rows: int = 0
    times: list[float] = field(default_factory=list)

    def point(self) -> HistoryPoint:
        return HistoryPoint(self.begun, self.rows, p50_p99(self.times))


class StreamHistory:
    """One stream. Times are seconds since 1970."""

    def __init__(self, now: float) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)
        self._minute = _Minute(now - now % POINT_SECONDS)
        self._recent: deque[tuple[float, int, tuple[float, ...]]] = deque()
        self._seen: Status | None = None
        self._tables: dict[str, tuple[int, datetime | None]] = {}
        self._begun = now

    def observe(self, status: Status | None, now: float) -> None:
        """Note what was applied since the last status; the first one only says where it begins."""
        self._roll(now)
        if status is None or status is self._seen:
            return
        rows, times = 0, []
        for table in status.tables:
            done, synced = self._tables.get(table.table, (0, None))
            if self._seen is None:
                continue
            rows += max(table.total.rows - done, 0)
            is_new = table.synced is not None and table.synced != synced
            if is_new and table.source_time is not None and table.state is TableState.REPLICATING:
                assert table.synced is not None
                times.append(max((table.synced - table.source_time).total_seconds(), 0.0))
        if self._seen is None:
            self._begun = now
        self._seen = status
        self._tables = {one.table: (one.total.rows, one.synced) for one in status.tables}
        self._minute.rows += rows
        self._minute.times += times[: MOST_TIMES - len(self._minute.times)]
        if rows or times:
            self._recent.append((now, rows, tuple(times[:MOST_TIMES])))

    def points(self) -> list[HistoryPoint]:
        """The minutes so far, ascending, the one that goes on included."""
        return [*self._points, self._minute.point()]

    def rate(self, now: float) -> float | None:
        """Changes per second of the last minute; None before anything was seen."""
        if self._seen is None:
            return None
        span = min(max(now - self._begun, 1.0), WINDOW)
        return sum(rows for time, rows, _ in list(self._recent) if time >= now - WINDOW) / span

    def freshness(self, now: float) -> tuple[float, float] | None:
        """p50 and p99 of the last minute, in seconds; None without commits in it."""
        recent = [times for time, _, times in list(self._recent) if time >= now - WINDOW]
        return p50_p99(one for times in recent for one in times)

    def _roll(self, now: float) -> None:
        while self._recent and self._recent[0][0] < now - WINDOW:
            self._recent.popleft()
        if now - self._minute.begun >= POINT_SECONDS:
            if self._seen is not None:
                self._points.append(self._minute.point())
            self._minute = _Minute(now - now % POINT_SECONDS)


class Histories:
    """All streams of a service. One thread follows, any number read."""

    def __init__(self) -> None:
        self._streams: dict[str, StreamHistory] = {}

    def of(self, stream: str) -> StreamHistory | None:
        return self._streams.get(stream)

    def observe(self, works: Iterable[Work], now: float) -> None:
        known = {str(work.name): work for work in works}
        for name in self._streams.keys() - known.keys():
            del self._streams[name]
        for name, work in known.items():
            if name not in self._streams:
                self._streams[name] = StreamHistory(now)
            self._streams[name].observe(work.status, now)

    def follow(self, works: Callable[[], Iterable[Work]], stop: threading.Event) -> None:
        """Observe until told to stop."""
        while not stop.wait(LOOK_SECONDS):
            self.observe(works(), time.time())


def clock_of(moment: float) -> str:
    """Hours and minutes, in UTC."""
    return f"{datetime.fromtimestamp(moment, UTC):%H:%M}"
