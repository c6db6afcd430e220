"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class SteppedClock:
    """A `Clock` for tests and simulations. Whoever sleeps moves it; nobody waits."""

    def __init__(self, start: datetime = START) -> None:
        self._start, self._passed = start, 0.0

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return self._passed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._passed += seconds
