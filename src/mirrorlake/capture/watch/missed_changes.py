"""The updates and deletions of an append-only table that the mirror lacks, as the source counts
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from mirrorlake.model.landed import format_time, parse_time
from mirrorlake.sources.table import Counted

PAUSES = 10
"""So many times as long as reading a table again took, it is not read again: a table that changes
all the time is read for a tenth of the time at most."""

_SUM = ""  # the part that stands for all, in records that an earlier release has written


@dataclass(frozen=True, slots=True)
class AppendOnly:
    """A table whose updates and deletions are not captured, in `append_only.json`.

    reason: why they are not; counted: updates and deletions that the source had counted at the last
    look, of each part of the table; updates, deletes: how many of them came after the table was
    loaded; compared: how many of these when the table was read again, None for never; requested:
    how many when capture itself requested that, None when it did not; begun, seen: the backfill of
    the whole table that began last, "" once it has ended, and how many when it began; since: when
    the first were seen that came later, "" for never; ended, pause: when that backfill ended, and
    for how many seconds capture itself then requests no other; put_off: until when it does not,
    although the table differs, "" where it did.
    """

    reason: str
    counted: Counted = field(default_factory=dict)
    updates: int = 0
    deletes: int = 0
    since: str = ""
    compared: tuple[int, int] | None = None
    requested: tuple[int, int] | None = None
    begun: str = ""
    seen: tuple[int, int] = (0, 0)
    ended: str = ""
    pause: float = 0.0
    put_off: str = ""

    @property
    def missed(self) -> tuple[int, int]:
        """Updates and deletions that the mirror lacks."""
        updates, deletes = self.compared or (0, 0)
        return self.updates - updates, self.deletes - deletes

    @property
    def differs(self) -> bool:
        return any(self.missed)

    def being_read(self) -> AppendOnly:
        """Reading the table again is requested."""
        return replace(self, requested=(self.updates, self.deletes), put_off="")

    def waits(self, until: str) -> AppendOnly:
        """Reading the table again is put off."""
        return replace(self, put_off=until)

    def begins(self, backfill: str) -> AppendOnly:
        """A backfill of the whole table begins, and takes its snapshots later."""
        return replace(self, begun=backfill, seen=(self.updates, self.deletes))

    def no_longer_requested(self) -> AppendOnly:
        """The table has been read, from a snapshot that was taken when that was requested, or
        later."""
        return replace(self._read_at(self.requested or (0, 0)), requested=None)

    def read_again(self, ended: str, seconds: float) -> AppendOnly:
        """The backfill that began last has ended, and took so long."""
        found = self._read_at(self.seen)
        return replace(found, begun="", ended=ended, pause=PAUSES * seconds)

    def _read_at(self, seen: tuple[int, int]) -> AppendOnly:
        """It has the rows as they were when so many were counted."""
        (updates, deletes), (more, other) = self.compared or (0, 0), seen
        return replace(self, compared=(max(updates, more), max(deletes, other)), since="")

    def not_before(self, now: datetime) -> datetime | None:
        """When the table may be read again, None for at once: also when the clock went back."""
        if not self.ended:
            return None
        ended = parse_time(self.ended)
        then = ended + timedelta(seconds=self.pause)
        return then if ended <= now < then else None

    def after(self, reason: str, counted: Counted, now: datetime) -> AppendOnly:
        """As it is at a later look. A part that is new counts whole, and one that is gone does not
        count. Counters of a part that are lower now were reset to 0."""
        after = {_SUM: _sum(counted)} if _SUM in self.counted else counted
        updates, deletes = self.updates, self.deletes
        for part, (updated, deleted) in after.items():
            before = self.counted.get(part, (0, 0))
            if updated < before[0] or deleted < before[1]:
                before = (0, 0)
            updates, deletes = updates + updated - before[0], deletes + deleted - before[1]
        found = replace(self, reason=reason, counted=counted, updates=updates, deletes=deletes)
        return replace(found, since=format_time(now)) if found.differs and not self.since else found

    def __str__(self) -> str:
        updates, deletes = self.missed
        since = f"since it was {'read again' if self.compared else 'loaded'}"
        return f"the source has counted {updates:,} updates and {deletes:,} deletes {since}"

    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def parse(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `facts` gives, or has given in an earlier release."""
        pairs = ("compared", "requested", "seen")
        found = {**facts, **{key: tuple(facts[key]) for key in pairs if key in facts}}
        counted = facts["counted"]
        parts = counted if isinstance(counted, Mapping) else {_SUM: counted}
        found["counted"] = {part: tuple(pair) for part, pair in parts.items()}
        return cls(**found)


def _sum(counted: Counted) -> tuple[int, int]:
    return sum(pair[0] for pair in counted.values()), sum(pair[1] for pair in counted.values())
