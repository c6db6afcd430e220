"""How the log of a database in memory tells its transactions: by number, or by sets of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Protocol

from mirrorlake.model.position import LogNumber, LogPoint
from mirrorlake.sources.gtid import GtidSet


class Points(Protocol):
    """Gives each transaction its points. `current` is the end of the log.

    is_known_early: whether the end of a transaction is known while it is open.
    """

    current: LogPoint
    is_known_early: bool

    def next(self, server: str, /) -> tuple[LogPoint, LogPoint]:
        """`after` and `end` of the next transaction, which `server` commits."""
        ...

    def parse(self, text: str) -> LogPoint: ...


class Numbers:
    """One sequence of numbers: points are totally ordered, as LSN and SCN are.

    step: before and after the commit record of a transaction, how far the log goes on.
    """

    is_known_early = False

    def __init__(self, step: Callable[[], tuple[int, int]] = lambda: (0, 1)) -> None:
        self.current: LogPoint = LogNumber(100)
        self._end, self._step = 100, step

    def next(self, _server: str) -> tuple[LogPoint, LogPoint]:
        before, size = self._step()
        after = LogNumber(self._end + before)
        self._end = after.value + size
        self.current = LogNumber(self._end)
        return after, self.current

    def parse(self, text: str) -> LogPoint:
        return LogNumber.parse(text)


class Sets:
    """A number for each server that commits: points are partially ordered, as GTID sets are."""

    is_known_early = True

    def __init__(self) -> None:
        self.current: LogPoint = GtidSet()
        self._committed: Counter[str] = Counter()

    def next(self, server: str, /) -> tuple[LogPoint, LogPoint]:
        self._committed[server] += 1
        number = self._committed[server]
        after, end = self.current, GtidSet.of({server: [(number, number)]})
        self.current = after.join(end)
        return after, end

    def parse(self, text: str) -> LogPoint:
        return GtidSet.parse(text)
