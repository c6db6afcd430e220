"""Where the stream has to begin anew, because a server before PostgreSQL 15 does not notice that a
partition was attached or detached.

Its WAL sender looks up once whether and as what the changes of a table are published, at the first
change that it reads. So changes of a partition that was filled first and attached then are missing,
until a stream begins behind the attachment. The rows are read after that. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.recognition.known import TableLook

_Key = tuple[int, frozenset[tuple[int, int]]]


@dataclass(slots=True)
class Renewals:
    """Of one stream. began: where the stream of now began, as far as it was renewed."""

    began: Lsn = field(default_factory=lambda: Lsn(0))
    _seen: dict[_Key, Lsn] = field(default_factory=dict)

    def awaits(self, oid: int, look: TableLook) -> bool:
        """Partitions of a table were attached or detached. Returns whether changes may be missing
        until the stream has begun anew: behind the first look at which they were seen."""
        at = self._seen.setdefault((oid, frozenset(look.links.items())), look.at)
        return not self.began.covers(at)

    def is_due(self, passed: Lsn) -> bool:
        """Whether to begin anew, everything up to `passed` having been read."""
        return any(passed.covers(at) and not self.began.covers(at) for at in self._seen.values())

    def begun(self, at: Lsn) -> set[int]:
        """The stream has begun anew behind `at`. Returns the tables, by oid, that awaited it."""
        self.began = at
        return {oid for (oid, _links), seen in self._seen.items() if at.covers(seen)}

    def settled(self, oid: int) -> None:
        """A table is known as it was after its stream began anew."""
        self._seen = {key: at for key, at in self._seen.items() if key[0] != oid}
