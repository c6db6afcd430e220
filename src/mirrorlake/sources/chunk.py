"""What a source streams: chunks of transactions, and what they did to each table, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from mirrorlake.errors import TableError
from mirrorlake.model.change import Alteration, Marker, SchemaChangeKind
from mirrorlake.model.keys import ColumnBounds
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.table import KnownTables, SourceTable


@dataclass(frozen=True, slots=True)
class Transactions:
    """The transactions of a chunk, in the order in which the stream brings them.

    after[i]: covers where the stream began and the end of every earlier transaction, and not the
    end of transaction i. It is known before that end is.
    end[i]: the point of transaction i alone: a point covers it if and only if the transaction is at
    or before that point, and no two transactions share one. None while it is not known, which may
    be while the transaction is open, and only where points are totally ordered.
    time[i]: when it was committed, None when that is not known.
    id[i]: what the source calls it, "" when it has no name.
    is_open: the chunk stops inside the last one, with which the next chunk begins.
    """

    after: Sequence[LogPoint]
    end: Sequence[LogPoint | None]
    time: Sequence[datetime | None]
    id: Sequence[str]
    is_open: bool = False

    def closed(self) -> int:
        """How many of them end in the chunk."""
        return len(self.after) - self.is_open

    def through(self, index: int) -> LogPoint:
        """Where the stream stands behind transaction `index`, the end of which is known."""
        end = self.end[index]
        assert end is not None
        return self.after[index].join(end)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one table with one set of columns, in their order.

    rows: the data columns; in a deletion only the key counts, or all columns where the table has
    `whole_rows`: then an update is a deletion and an insert. marker: int8 (0, 1, 2). unchanged:
    None, or a bool matrix rows x columns, true where the source did not send the value.
    transaction: int32, index into the chunk's transactions. ordinal: int64, from 1 in each
    transaction. A change of the key is a deletion directly followed by an insert of one ordinal.
    metadata: where requested, what the log says of each row beyond that; which columns these
    are is the source's own matter.
    """

    table: SourceTable
    rows: pa.RecordBatch
    marker: np.ndarray
    unchanged: np.ndarray | None
    transaction: np.ndarray
    ordinal: np.ndarray
    metadata: pa.RecordBatch | None = None

    def only(self, which: np.ndarray) -> Changes:
        """Some of them: bool, one per change."""
        if which.all():
            return self
        rows = pa.array(np.flatnonzero(which))
        return replace(
            self,
            rows=self.rows.take(rows),
            marker=self.marker[which],
            unchanged=None if self.unchanged is None else self.unchanged[which],
            transaction=self.transaction[which],
            ordinal=self.ordinal[which],
            metadata=None if self.metadata is None else self.metadata.take(rows),
        )

    def replacing(self) -> Changes:
        """The same, where an inserted row replaces whatever the table has of its key. A row that
        was moved from another key, with values that were not sent, stays an insert."""
        masked = False if self.unchanged is None else self.unchanged.any(axis=1)
        inserts = (self.marker == Marker.INSERT) & ~np.asarray(masked)
        return replace(self, marker=np.where(inserts, np.int8(Marker.UPSERT), self.marker))


@dataclass(frozen=True, slots=True)
class Truncation:
    """The table was emptied. metadata: of `Changes`, one row."""

    table: SourceTable
    transaction: int
    ordinal: int
    metadata: pa.RecordBatch | None = None


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The table is described as `table` from here on: behind change `ordinal` of the transaction,
    which is its own if it has one.

    Until the first one of a stream a table is as it was passed to `stream`. alteration: what this
    does to earlier rows, if anything; then a change or a truncation of the table follows in the
    same transaction, before any other of the table, unless it comes `without_rows`.
    """

    table: SourceTable
    transaction: int
    ordinal: int
    alteration: Alteration | None = None
    without_rows: bool = False


@dataclass(frozen=True, slots=True)
class TableLost:
    """A table that can no longer be captured, while the others go on."""

    table: TableId
    error: TableError


@dataclass(frozen=True, slots=True)
class TableDiffers:
    """Rows that came before have changed since, which is not in the source's log: the table
    goes on when it is read again, from a snapshot that is taken after this, and else is lost.
    kinds: of all that was done to them, at least one. saved: columns of the mirror that have former
    values until then, as in `Alteration.saved`. within: rows that do not differ are outside of
    these; none where any row may."""

    table: TableId
    kinds: frozenset[SchemaChangeKind]
    error: TableError
    saved: tuple[str, ...] = ()
    within: tuple[ColumnBounds, ...] = ()


Part = Changes | Truncation | SchemaChange | TableLost | TableDiffers


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stretch of the stream.

    parts: per table in order; parts of different tables stand in no order to each other.
    opens: the first transaction continues the last one of the chunk before.
    idle: a point up to which there is nothing more to come, when the source said so while no
    transaction was open; None otherwise.
    size: bytes received. known: what tables are recognised by behind the last transaction that ends
    in the chunk, or that has ended before, where that changed since it was last reported.
    """

    transactions: Transactions
    parts: Sequence[Part]
    opens: bool
    idle: LogPoint | None
    size: int
    known: KnownTables = field(default_factory=dict)

    def reached(self) -> list[LogPoint]:
        """Where the stream stands behind the last transaction that ends in the chunk, and at its
        end. Everything that these points cover has come."""
        last = self.transactions.closed() - 1
        points = [] if last < 0 else [self.transactions.through(last)]
        return points if self.idle is None else [*points, self.idle]
