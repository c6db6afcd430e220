"""The contract of a source: check, discover, snapshot, stream, acknowledge, read again, positions.

A source tells its tables, gives consistent snapshots with the point in the log at which they
stand, and streams what happened after a point. Every source is a `Source`. One that needs
something made for it in the server, as PostgreSQL its slot and publications, has `ManagedObjects`
as well, and says so in `Source.objects`.

Order: a transaction comes whole before the next; transactions come in an order in which they could
have happened, and a table's changes in the order of the log. Delivery is at least once: whatever
was not acknowledged comes again after a restart, with the same ordinals. Who reads decides from
the points what it has already. Failures: SourceUnavailable when trying again may help, and the
reader tries again; SourceGap when what was not acknowledged is gone, and a person decides;
TableError about one table, while the others go on. Nothing is retried in here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Chunk
from mirrorlake.sources.table import SnapshotPart, SourceTable


class CheckSeverity(StrEnum):
    """What a finding means for a run."""

    OK = "ok"
    WARNING = "warning"  # it runs; something is not as one might think
    ERROR = "error"  # it does not run, or changes would be lost


ALTERED = "altered"
"""The check that finds a table altered in a way that the log does not tell."""


DIFFERS = "differs"
"""The check that finds a table as `TableDiffers` says, because of its partitions. Told once."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One prerequisite that was tested. `remedy` is what to do, in the source's own words."""

    check: str
    severity: CheckSeverity
    message: str
    remedy: str = ""
    table: TableId | None = None


class Snapshot(Protocol):
    """A view of all tables. Its parts may be read from several threads at once, until it is
    closed."""

    @property
    def point(self) -> LogPoint:
        """Every transaction that ends at or before it is in every part; the stream is asked for
        what ends after it."""
        ...

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        """The table in parts that together hold each row once."""
        ...

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        """The rows of a part, with the columns and types of the table's schema.

        Raises TableError for a table that cannot be read, SourceUnavailable when trying again may
        help.
        """
        ...

    def ordered(
        self, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        """All rows with a key in the range, in ascending order of the key, as `KeyRange` has it,
        and as `upto` says the point at which those of each batch were read.

        Read while changes flow, and given up at any time. Raises CannotBackfill for a table that
        has no key, or one in no such order; TableAltered before the first row when its columns are
        other ones than the stream has described; TableError and SourceUnavailable as `read` does.
        """
        ...

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        """The point at which a part was read, known once it is read to its end.

        It covers `point`, and is `point` wherever the whole snapshot is one consistent view. What
        ended between the two may be in the rows or not; then changes of the table tell every value
        of a row, and it has a key.
        """
        ...

    def close(self) -> None: ...


class ChangeStream(Protocol):
    """The changes after a point, and those that come."""

    def read(self, wait: float) -> Chunk | None:
        """The next stretch; None when nothing came for `wait` seconds."""
        ...

    def acknowledge(self, point: LogPoint) -> None:
        """Everything that ends at or before `point` is durable elsewhere and may be forgotten."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Established:
    """A new place in the log: the snapshot at its beginning, and what was made for it."""

    snapshot: Snapshot
    made: Sequence[str]


class ManagedObjects(Protocol):
    """What has to be made in the server before its changes can be streamed.

    Everything that is made has a name in words, which is kept by who asked for it: only what was
    named is ever removed.
    """

    def occupied(self) -> CheckResult | None:
        """What stands where `establish` would build, though a new stream has not built it yet."""
        ...

    def intended(self) -> Sequence[str]:
        """What `establish` would make now, in the words of `detach`, which a crash before its
        answer would leave nobody to tell of."""
        ...

    def establish(self, tables: Sequence[SourceTable]) -> Established:
        """Make what a new stream needs; it begins at the snapshot's point.

        What an interrupted call left behind is removed first. By what the tables are `known` is
        for who discovers them afterwards. Raises PrerequisiteMissing.
        """
        ...

    def include(self, tables: Sequence[SourceTable]) -> None:
        """Let the stream carry these tables too, if it does not yet: all of them, or none.

        By what they are `known` is for who discovers them afterwards. Raises PrerequisiteMissing.
        """
        ...

    def name_home(self, home: str) -> None:
        """Note in the server for which landing zone its objects were made, where that is possible;
        whatever others have noted there stays. `occupied` tells of it."""
        ...

    def retained(self) -> int | None:
        """How many bytes of its log the server keeps for us; None when it does not say."""
        ...

    def detach(self, made: Sequence[str]) -> list[str]:
        """Remove what `establish` said it made. Returns what was there to remove."""
        ...


class Source(Protocol):
    """A database, and what was selected of it."""

    @property
    def objects(self) -> ManagedObjects | None:
        """None when nothing has to be made in the server: the stream of such a source begins at
        its first snapshot, and carries every table that it is asked for."""
        ...

    def check(self) -> list[CheckResult]:
        """Test every prerequisite; nothing is changed."""
        ...

    def discover(self) -> list[SourceTable]:
        """The selected tables, by name, refused ones too. Raises PrerequisiteMissing for none."""
        ...

    def identity(self) -> Mapping[str, str]:
        """What tells this source, and our place in it, from every other."""
        ...

    def parse_point(self, text: str) -> LogPoint:
        """Read the printed form of a point in the log. Raises ValueError."""
        ...

    def current(self) -> LogPoint:
        """The end of the log now: it covers all that was committed before this was called."""
        ...

    def resume(self, since: LogPoint) -> None:
        """Be sure that the log still has everything that ends after `since`. Raises SourceGap."""
        ...

    def snapshot(self) -> Snapshot:
        """A snapshot as of now, or of a moment between this call and its return."""
        ...

    def stream(
        self, tables: Sequence[SourceTable], since: LogPoint, *, metadata: bool = False
    ) -> ChangeStream:
        """The changes of these tables in the transactions that `since` does not cover; of those
        that it covers some may come as well.

        Where the server remembers what was acknowledged, that is left out whatever `since` says.
        metadata: whether changes tell what the log says of each row.
        """
        ...

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        """The rows with these keys as they are now, in no order; those that are gone are absent."""
        ...

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        """Look for what would be lost silently; called again and again while running.

        An error that names a table is about that table only.
        """
        ...

    def close(self) -> None:
        """Let go of every connection; whoever asks for something afterwards gets new ones."""
        ...
