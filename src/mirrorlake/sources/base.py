"""The contract of a source: check, discover, snapshot, stream, acknowledge, positions.

A source tells its tables, gives consistent snapshots with the point in the log at which they
stand, and streams what happened after a point, in the order in which transactions committed.
Delivery is at least once: whatever was not acknowledged comes again after a restart, in the same
order and with the same ordinals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from mirrorlake.errors import TableError
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Schema, TableId


class Severity(StrEnum):
    """What a finding means for a run."""

    OK = "ok"
    WARNING = "warning"  # it runs; something is not as one might think
    ERROR = "error"  # it does not run, or changes would be lost


@dataclass(frozen=True, slots=True)
class Finding:
    """One prerequisite that was tested. `remedy` is what to do, in the source's own words."""

    check: str
    severity: Severity
    message: str
    remedy: str = ""
    table: TableId | None = None


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A selected table of the source.

    key: the columns that tell its rows apart, empty when it has none; append_only: why updates and
    deletions cannot be captured, empty when they can; refused: why it cannot be captured at all,
    None when it can; identity: what tells this table from a later
    one of the same name; source_types: for each column what its source says of its type, printable;
    selection: what was selected of it, as plain data.
    """

    table: TableId
    schema: Schema
    key: tuple[str, ...]
    identity: str
    source_types: Mapping[str, Any] = field(default_factory=dict)
    append_only: str = ""
    refused: TableError | None = None
    rows: int | None = None
    size: int = 0
    selection: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """A part of a table that is read in one go. `range` means something to its source only."""

    table: SourceTable
    range: Any = None


class Snapshot(Protocol):
    """A consistent view of all tables at `point`: it holds exactly the transactions that end at
    or before it. Pieces may be read from several threads at once, until it is closed."""

    @property
    def point(self) -> LogPoint: ...

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        """The table in parts that together hold each row once."""
        ...

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        """The rows of a piece, with the columns and types of the table's schema.

        Raises TableError for a table that cannot be read, SourceUnavailable when trying again may
        help.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a chunk, in the order of their commits.

    after[i] is a point that every earlier transaction ends at or before and that transaction i
    ends after; it is known before the end is. end[i] is None only for the last one, when the chunk
    stops inside it; the next chunk then begins with the same transaction. time[i] is its commit
    time, when known.
    """

    after: Sequence[LogPoint]
    end: Sequence[LogPoint | None]
    time: Sequence[datetime | None]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table with one set of columns, in their order.

    rows: the data columns; in a deletion only the key counts. marker: int8 (0, 1, 2). unchanged:
    None, or a bool matrix rows x columns, true where the source did not send the value.
    transaction: int32, index into the chunk's transactions. ordinal: int64, from 1 in each
    transaction. A change of the key is a deletion directly followed by an insert of one ordinal.
    """

    table: SourceTable
    rows: pa.RecordBatch
    marker: np.ndarray
    unchanged: np.ndarray | None
    transaction: np.ndarray
    ordinal: np.ndarray


@dataclass(frozen=True, slots=True)
class Truncation:
    """The table was emptied."""

    table: SourceTable
    transaction: int
    ordinal: int


@dataclass(frozen=True, slots=True)
class TableFault:
    """A table that can no longer be captured, while the others go on."""

    table: TableId
    error: Exception


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the stream.

    parts: per table in order; parts of different tables stand in no order to each other.
    opens: the first transaction continues the last one of the chunk before.
    idle: a point up to which there is nothing more to come, when the source said so while no
    transaction was open; None otherwise.
    size: bytes received.
    """

    transactions: Transactions
    parts: Sequence[Changes | Truncation | TableFault]
    opens: bool
    idle: LogPoint | None
    size: int


class ChangeStream(Protocol):
    """The changes after the last acknowledged point, and those that come."""

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


class Source(Protocol):
    """A database, and what was selected of it."""

    def check(self) -> list[Finding]:
        """Test every prerequisite; nothing is changed."""
        ...

    def discover(self) -> list[SourceTable]:
        """The selected tables, by name, refused ones too. Raises PrerequisiteMissing for none."""
        ...

    def identity(self) -> Mapping[str, str]:
        """What tells this source, and our place in it, from every other."""
        ...

    def parse_point(self, text: str) -> LogPoint:
        """Read the printed form of a point in the log."""
        ...

    def occupied(self) -> Finding | None:
        """What stands where `establish` would build, though a new zone has not built it yet."""
        ...

    def intended(self) -> Sequence[str]:
        """What `establish` would make now, in the words of `detach`, which a crash before its
        answer would leave nobody to tell of."""
        ...

    def establish(self, tables: Sequence[SourceTable]) -> Established:
        """Make what a new zone needs in the source; the stream begins at the snapshot's point.

        What an interrupted call left behind is removed first. Raises PrerequisiteMissing.
        """
        ...

    def resume(self, since: LogPoint) -> None:
        """Be sure that the stream still joins what ends at `since`. Raises SourceGap."""
        ...

    def include(self, tables: Sequence[SourceTable]) -> None:
        """Let the stream carry these tables too, if it does not yet: all of them, or none.

        Raises PrerequisiteMissing.
        """
        ...

    def snapshot(self) -> Snapshot:
        """A snapshot of its own, for tables that are loaded after the stream began."""
        ...

    def stream(self, tables: Sequence[SourceTable]) -> ChangeStream:
        """The changes of these tables, from the last acknowledged point on."""
        ...

    def current(self) -> LogPoint:
        """The end of the log now."""
        ...

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        """The rows with these keys as they are now, in no order; those that are gone are absent."""
        ...

    def watch(self, tables: Sequence[SourceTable]) -> list[Finding]:
        """Look for what would be lost silently; called again and again while running.

        An error that names a table is about that table only.
        """
        ...

    def detach(self, made: Sequence[str]) -> list[str]:
        """Remove what `establish` said it made. Returns what was there to remove."""
        ...

    def close(self) -> None: ...
