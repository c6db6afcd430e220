"""When a table folder that is not there counts as deleted (LZ-231).

Listings come short and shares come late, and a table that is dropped is not made again by itself.
So a folder has to be missing in several looks in a row and for a while; once it is seen again, all
is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

LOOKS = 3
"""In a row, whatever the time: a clock that was set proves nothing."""


@dataclass(frozen=True, slots=True)
class Missing:
    """Since when, and in how many looks in a row, a folder was not there."""

    since: datetime
    looks: int = 1

    def is_due(self, now: datetime, delay: timedelta) -> bool:
        return self.looks >= LOOKS and now - self.since >= delay


def looked(
    known: Mapping[str, Missing], missing: Iterable[str], now: datetime
) -> dict[str, Missing]:
    """What is known after one more look, by path. A clock that was set back begins again."""
    after: dict[str, Missing] = {}
    for path in missing:
        before = known.get(path)
        if before is None or before.since > now:
            after[path] = Missing(now)
        else:
            after[path] = Missing(before.since, min(before.looks + 1, LOOKS))
    return after
