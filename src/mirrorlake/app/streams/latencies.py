"""How long changes take: told by mirrors batch by batch, summed up per stream (ST-305).

Both latencies are those of the last change of a batch. The system latency begins when the change is
landed, the total latency when the source has committed it; both end with the commit of the table.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import ApplyFiles

BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""Upper bounds of the classes of a histogram, in seconds; the last class has none."""


@dataclass(frozen=True, slots=True)
class BatchLatency:
    """Of a batch of a table, in seconds. total: None where the source's time is not known."""

    mirror: str
    table: str
    system: float
    total: float | None


@dataclass(slots=True)
class LatencyHistogram:
    """Counts by class of BOUNDS, and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """As Prometheus has it: upper bound, and how many are not above it."""
        bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
        return [(bound, sum(self.counts[: n + 1])) for n, bound in enumerate(bounds)]


class LatencyWatcher(Watcher):
    """Tells the latency of each batch of changes. Loads and backfills have none."""

    def __init__(
        self,
        mirror: str,
        tell: Callable[[BatchLatency], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._mirror, self._tell, self._now = mirror, tell, now

    def applied(self, step: ApplyFiles, outcome: Applied) -> None:  # noqa: ARG002
        if step.is_load or step.backfill is not None or not step.files:
            return
        now, source = self._now(), step.evidence.source_time
        total = None if source is None else max(now - source.timestamp(), 0.0)
        system = max(now - step.files[-1].modified, 0.0)
        self._tell(BatchLatency(self._mirror, str(step.table), system, total))


class Latencies:
    """What was told since the service began, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._system: dict[str, LatencyHistogram] = {}
        self._total: dict[str, LatencyHistogram] = {}
        self._last: dict[tuple[str, str], BatchLatency] = {}

    def note(self, one: BatchLatency) -> None:
        with self._lock:
            self._system.setdefault(one.mirror, LatencyHistogram()).add(one.system)
            if one.total is not None:
                self._total.setdefault(one.mirror, LatencyHistogram()).add(one.total)
            self._last[one.mirror, one.table] = one

    def keep(self, mirrors: set[str]) -> None:
        """Forget the others."""
        with self._lock:
            for found in (self._system, self._total):
                for name in found.keys() - mirrors:
                    del found[name]
            for key in [one for one in self._last if one[0] not in mirrors]:
                del self._last[key]

    def system(self) -> dict[str, tuple[list[tuple[str, float]], float]]:
        """Of each mirror: the cumulative histogram, and the sum in seconds."""
        with self._lock:
            return {name: (one.cumulative(), one.sum) for name, one in self._system.items()}

    def total(self) -> dict[str, tuple[list[tuple[str, float]], float]]:
        """As `system`."""
        with self._lock:
            return {name: (one.cumulative(), one.sum) for name, one in self._total.items()}

    def last(self) -> list[BatchLatency]:
        """Of each table the last."""
        with self._lock:
            return list(self._last.values())
