"""Where the stream has to begin anew, because a server before PostgreSQL 15 does not notice that a
partition was attached or detached.

Its WAL sender looks up once whether and as what the changes of a table are published, at the first
change that it reads. So changes of a partition that was filled first and attached then are missing,
until a stream begins behind the attachment. The table is read after that, whatever became of the
partition meanwhile. So are those of a partition that was detached and is mirrored by itself: they
still come as those of its former table. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition.known import TableLook

_Links = frozenset[tuple[int, int]]


@dataclass(slots=True)
class Renewals:
    """Of one stream. began: where it began, or was begun anew last."""

    began: Lsn = field(default_factory=lambda: Lsn(0))
    _seen: dict[tuple[int, _Links], Lsn] = field(default_factory=dict)

    def expect(self, oid: int, at: Lsn) -> None:
        """A table was read at a place that the stream has not reached, with the partitions that it
        had by then, or after it was a partition."""
        if not self.began.covers(at):
            self._seen[oid, frozenset()] = at

    def is_new(self, oid: int, look: TableLook) -> bool:
        """Partitions of a table were attached or detached. Returns whether that is seen first."""
        if (key := (oid, frozenset(look.links.items()))) in self._seen:
            return False
        self._seen[key] = look.at
        return True

    def awaits(self, oid: int, look: TableLook) -> bool:
        """Whether changes may be missing until the stream has begun anew: behind the first look at
        which these partitions were seen."""
        at = self._seen.get((oid, frozenset(look.links.items())))
        return at is not None and not self.began.covers(at)

    def is_due(self, passed: Lsn) -> bool:
        """Whether to begin anew, everything up to `passed` having been read."""
        return any(passed.covers(at) and not self.began.covers(at) for at in self._seen.values())

    def begun(self, at: Lsn) -> set[int]:
        """The stream has begun anew behind `at`. Returns the tables, by oid, that awaited it."""
        self.began = at
        return {oid for (oid, _links), seen in self._seen.items() if at.covers(seen)}

    def forget(self, oid: int) -> None:
        """A table that awaited it is read again."""
        self._seen = {
            key: at for key, at in self._seen.items() if key[0] != oid or not self.began.covers(at)
        }
