"""The clock of a run. Everything that reads the time or waits does so through a `Clock`, so that
capture and apply can run on one thread in simulated time."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """The current time, and waiting."""

    def now(self) -> datetime:
        """The current time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never decrease, from an arbitrary start."""
        ...

    def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The clock of the system. `sleep` returns early when `stop` is set."""

    def __init__(self, stop: threading.Event | None = None) -> None:
        self._stop = stop or threading.Event()

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)
