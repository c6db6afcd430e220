"""What was applied in the last minute: how fast, and how long after its commit in the source."""

from __future__ import annotations

from collections import deque

from mirrorlake.app.status.amounts import p50_p99

WINDOW = 60.0
"""Seconds that rates and freshness are of."""


class RecentBatches:
    """Times are seconds of one clock. begun: when it began to look."""

    def __init__(self, begun: float) -> None:
        self._begun = begun
        self._batches: deque[tuple[float, int, float | None]] = deque()

    def note(self, now: float, rows: int, late: float | None) -> None:
        """A batch. late: seconds since its commit in the source, None if unknown."""
        self._batches.append((now, rows, late))
        self._forget(now)

    def rate(self, now: float) -> float:
        """Rows per second."""
        self._forget(now)
        span = min(max(now - self._begun, 1.0), WINDOW)
        return sum(rows for _, rows, _ in self._batches) / span

    def freshness(self, now: float) -> tuple[float, float] | None:
        """p50 and p99 in seconds; None without batches of which it is known."""
        self._forget(now)
        return p50_p99(late for _, _, late in self._batches)

    def _forget(self, now: float) -> None:
        while self._batches and self._batches[0][0] < now - WINDOW:
            self._batches.popleft()
