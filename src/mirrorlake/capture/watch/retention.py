"""How much of its log the source keeps for a stream, how fast that grows, and the limit of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from mirrorlake.model.landed import format_time, parse_time
from mirrorlake.sources.base import RetainedLog

WINDOW = timedelta(minutes=10)
"""Over which growth is measured."""


class RetentionPolicy(StrEnum):
    """What happens when the source keeps more than it should."""

    WARN = "warn"  # it is logged, and `status` says so
    RELEASE = "release"  # the source may discard its log, and capture ends


@dataclass(frozen=True, slots=True)
class LogRetention:
    """What the source kept at a time.

    size: bytes; growth: bytes per second, negative while capture catches up, None before the second
    look; limit: bytes at which the source discards its log or the budget of the project is spent,
    whichever comes first, None without either; budget: whether that is the budget.
    """

    at: datetime
    size: int
    growth: float | None = None
    limit: int | None = None
    is_budget: bool = False

    @property
    def is_over(self) -> bool:
        return self.limit is not None and self.size > self.limit

    @property
    def seconds_left(self) -> float | None:
        """Until the limit is reached at this growth; None when it never is, or that is unknown."""
        if self.limit is None or self.growth is None or self.growth <= 0:
            return None
        return max(self.limit - self.size, 0) / self.growth

    def facts(self) -> dict[str, Any]:
        left = self.seconds_left
        return {
            "at": format_time(self.at),
            "bytes": self.size,
            "bytes_per_second": None if self.growth is None else round(self.growth, 1),
            "limit": self.limit,
            "is_budget": self.is_budget,
            "seconds_left": None if left is None else round(left, 1),
        }

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `facts` gives."""
        return cls(
            parse_time(facts["at"]),
            facts["bytes"],
            facts["bytes_per_second"],
            facts["limit"],
            facts["is_budget"],
        )


@dataclass(slots=True)
class LogRetentionWatch:
    """Looks at the log of one stream again and again. budget: bytes, None without one."""

    budget: int | None = None
    _looks: deque[tuple[datetime, int]] = field(default_factory=deque)

    def look(self, now: datetime, log: RetainedLog) -> LogRetention:
        """What is kept now."""
        while self._looks and now - self._looks[0][0] > WINDOW:
            self._looks.popleft()
        self._looks.append((now, log.size))
        since, before = self._looks[0]
        seconds = (now - since).total_seconds()
        growth = (log.size - before) / seconds if seconds > 0 else None
        limits = [(self.budget, True)] if self.budget is not None else []
        limits += [(log.size + log.left, False)] if log.left is not None else []
        limit, is_budget = min(limits, default=(None, False))
        return LogRetention(now, log.size, growth, limit, is_budget)

    def is_growing(self) -> bool:
        """Whether more is kept than at the look before the last."""
        return len(self._looks) > 1 and self._looks[-1][1] > self._looks[-2][1]
