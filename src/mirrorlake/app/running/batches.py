"""What the mirrors of a service apply, batch by batch: how much, and in what time (ST-305).

Both latencies are those of the last change of a batch. The system latency begins when the change is
landed, the total latency when the source has committed it; both end with the commit of the table.
Everything is kept in memory, within bounds, and begins with the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.status.amounts import p50_p99
from mirrorlake.app.status.recent import RecentBatches
from mirrorlake.latencies import LatencyHistogram
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import ApplyFiles

POINT_SECONDS, POINTS = 60.0, 360
"""Plots have one point for each minute of the last six hours."""
MOST_TIMES = 5_000
"""Batches of a minute of which the latency is kept."""


@dataclass(frozen=True, slots=True)
class AppliedBatch:
    """A batch of a table. rows: how many it changed; system, total: latencies in seconds, None
    where they are not known, and for loads and backfills."""

    mirror: str
    table: str
    rows: int
    system: float | None
    total: float | None


class BatchWatcher(Watcher):
    """Reports each batch of a mirror."""

    def __init__(
        self,
        mirror: str,
        report: Callable[[AppliedBatch], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._mirror, self._report, self._now = mirror, report, now

    def applied(self, step: ApplyFiles, outcome: Applied) -> None:
        now, source = self._now(), step.evidence.source_time
        system = total = None
        if step.files and not step.is_load and step.backfill is None:
            system = max(now - step.files[-1].modified, 0.0)
            total = None if source is None else max(now - source.timestamp(), 0.0)
        counts = outcome.counts
        rows = counts.insert + counts.update + counts.delete
        self._report(AppliedBatch(self._mirror, str(step.table), rows, system, total))


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """A minute. begun: seconds since 1970; rows: changes applied in it; freshness: p50 and p99 of
    the total latency of its batches, in seconds, None without any."""

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


class StreamBatches:
    """Of one stream. Times are seconds since 1970."""

    def __init__(self, now: float) -> None:
        self.system, self.total = LatencyHistogram(), LatencyHistogram()
        self.last: dict[str, AppliedBatch] = {}
        self.recent = RecentBatches(now)
        self._points: deque[HistoryPoint] = deque(maxlen=POINTS)
        self._minute = _Minute(now - now % POINT_SECONDS)

    def note(self, one: AppliedBatch, now: float) -> None:
        self._roll(now)
        self.recent.note(now, one.rows, one.total)
        self._minute.rows += one.rows
        if one.system is not None:
            self.system.add(one.system)
            self.last[one.table] = one
        if one.total is not None:
            self.total.add(one.total)
            if len(self._minute.times) < MOST_TIMES:
                self._minute.times.append(one.total)

    def points(self, now: float) -> list[HistoryPoint]:
        """The minutes so far, ascending, the one that goes on included."""
        self._roll(now)
        return [*self._points, self._minute.point()]

    def _roll(self, now: float) -> None:
        """Begin the minute that it is; those in which nothing happened have points too."""
        following = now - now % POINT_SECONDS
        if following <= self._minute.begun:
            return
        self._points.append(self._minute.point())
        first = max(self._minute.begun + POINT_SECONDS, following - POINTS * POINT_SECONDS)
        for number in range(round((following - first) / POINT_SECONDS)):
            self._points.append(HistoryPoint(first + number * POINT_SECONDS, 0, None))
        self._minute = _Minute(following)


class ServiceBatches:
    """Of all streams of a service, since it began. For any number of threads."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._streams: dict[str, StreamBatches] = {}

    def note(self, one: AppliedBatch) -> None:
        with self._lock:
            if (stream := self._streams.get(one.mirror)) is not None:
                stream.note(one, self._clock())

    def follow(self, streams: set[str]) -> None:
        """These are applied here from now on."""
        with self._lock:
            for name in streams - self._streams.keys():
                self._streams[name] = StreamBatches(self._clock())

    def keep(self, streams: set[str]) -> None:
        """Forget the others."""
        with self._lock:
            for name in self._streams.keys() - streams:
                del self._streams[name]

    def system(self) -> dict[str, tuple[list[tuple[str, float]], float]]:
        """Of each stream: the cumulative histogram, and the sum in seconds."""
        return self._histograms(lambda one: one.system)

    def total(self) -> dict[str, tuple[list[tuple[str, float]], float]]:
        """As `system`."""
        return self._histograms(lambda one: one.total)

    def last(self) -> list[AppliedBatch]:
        """Of each table the last batch that has latencies."""
        with self._lock:
            return [batch for one in self._streams.values() for batch in one.last.values()]

    def rate(self, stream: str) -> float | None:
        """Changes per second of the last minute; None for a stream that is not followed."""
        with self._lock:
            found = self._streams.get(stream)
            return None if found is None else found.recent.rate(self._clock())

    def freshness(self, stream: str) -> tuple[float, float] | None:
        """p50 and p99 of the last minute, in seconds; None without batches in it."""
        with self._lock:
            found = self._streams.get(stream)
            return None if found is None else found.recent.freshness(self._clock())

    def points(self, stream: str) -> list[HistoryPoint]:
        """The last hours, for plots; nothing for a stream that is not followed."""
        with self._lock:
            found = self._streams.get(stream)
            return [] if found is None else found.points(self._clock())

    def _histograms(
        self, which: Callable[[StreamBatches], LatencyHistogram]
    ) -> dict[str, tuple[list[tuple[str, float]], float]]:
        with self._lock:
            found = {name: which(one) for name, one in self._streams.items()}
            return {
                name: (one.cumulative(), one.sum) for name, one in found.items() if any(one.counts)
            }
