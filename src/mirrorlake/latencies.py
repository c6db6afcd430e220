"""Latencies as Prometheus counts them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3_600.0)
"""Upper bounds of the classes of a histogram, in seconds; the last class has none."""


@dataclass(slots=True)
class LatencyHistogram:
    """Counts by class of BOUNDS, and the sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    sum: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def __add__(self, other: LatencyHistogram) -> LatencyHistogram:
        counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        return LatencyHistogram(counts, self.sum + other.sum)

    def cumulative(self) -> list[tuple[str, float]]:
        """As Prometheus has it: upper bound, and how many are not above it."""
        bounds = [*(str(bound) for bound in BOUNDS), "+Inf"]
        return [(bound, sum(self.counts[: n + 1])) for n, bound in enumerate(bounds)]
