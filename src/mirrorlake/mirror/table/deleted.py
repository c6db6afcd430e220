"""Decides when a missing table folder counts as deleted (LZ-231).

Listings may be incomplete, and shares may be mounted late, but a dropped table does not come back
by itself. So a folder has to be missing in several consecutive scans, and for a minimum time. If it
appears again, counting restarts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

MIN_SCANS = 3
"""Minimum number of consecutive scans, in case the clock was changed."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A missing folder: since when, and in how many consecutive scans."""

    since: datetime
    scans: int = 1

    def is_due(self, now: datetime, delay: timedelta) -> bool:
        return self.scans >= MIN_SCANS and now - self.since >= delay


def observe(
    known: Mapping[str, Missing], missing: Iterable[str], now: datetime
) -> dict[str, Missing]:
    """The missing folders by path after another scan. If the clock was set back, counting
    restarts."""
    after: dict[str, Missing] = {}
    for path in missing:
        before = known.get(path)
        if before is None or before.since > now:
            after[path] = Missing(now)
        else:
            after[path] = Missing(before.since, min(before.scans + 1, MIN_SCANS))
    return after
