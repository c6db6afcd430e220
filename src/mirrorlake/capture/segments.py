"""Changes of one table on their way into files: segments, in order.

A segment is a run of rows with one set of columns, or a truncation, or a file that is written but
waits for the end of its transaction. Segments of the open transaction have ordinals only; when its
end arrives they get positions and join the closed ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

import numpy as np
import pyarrow as pa

from mirrorlake.capture.origins import Committed, Origins, with_metadata
from mirrorlake.landing.parquet.unchanged import packed
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Alteration, Marker
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.sources.chunk import Changes, SchemaChange, Transactions, Truncation
from mirrorlake.sources.table import SourceTable


@dataclass(frozen=True, slots=True)
class Closed:
    """A transaction that has ended: its own point, where the stream stands behind it, its time, and
    what its source calls it."""

    end: LogPoint
    through: LogPoint
    time: datetime | None
    id: str = ""

    @classmethod
    def of(cls, transactions: Transactions, index: int) -> Self | None:
        """None for one that is still open."""
        end = transactions.end[index]
        if end is None or index >= transactions.closed():
            return None
        return cls(
            end, transactions.through(index), transactions.time[index], transactions.id[index]
        )

    @property
    def origin(self) -> Committed:
        return Committed(self.end, self.time, self.id)


@dataclass(frozen=True, slots=True)
class Span:
    """Where a run of changes stands: the ordinals of the first and the last, and their
    transactions; None while these are open.

    partly: transactions of which only the first changes are landed, with the last ordinal of those.
    """

    first: int
    last: int
    begun: Closed | None = None
    done: Closed | None = None
    partly: tuple[tuple[LogPoint, int], ...] = ()

    def closed(self, transaction: Closed) -> Span:
        """The span of an open transaction, now that it has ended."""
        return replace(self, begun=transaction, done=transaction)

    def beyond(self, point: LogPoint, partly: Mapping[LogPoint, int]) -> Span:
        """The span, where everything at or before `point` is landed too, some of it partly."""
        assert self.done is not None
        done = replace(self.done, through=self.done.through.join(point))
        return replace(self, done=done, partly=tuple(partly.items()))

    def positions(self) -> tuple[Position, Position]:
        assert self.begun is not None
        assert self.done is not None
        return (
            Position(self.begun.end, self.first),
            Position(self.done.through, self.last, self.done.end, self.partly),
        )

    def until(self, later: Span) -> Span:
        """From the beginning of this span to the end of a later one."""
        return replace(later, first=self.first, begun=self.begun)


@dataclass(frozen=True, slots=True)
class RowSegment:
    """Rows in memory: the data columns, then the mask when there is one, then the marker.

    alteration: what happened to the columns before the first of them; origins: of the rows, where
    these get metadata columns.
    """

    table: SourceTable
    rows: pa.RecordBatch
    unchanged: pa.Array | None
    marker: pa.Array
    span: Span
    alteration: Alteration | None = None
    origins: Origins | None = None

    def closed(self, transaction: Closed) -> RowSegment:
        """The rows of an open transaction, now that it has ended."""
        origins = self.origins and self.origins.closed(transaction.origin)
        return replace(self, span=self.span.closed(transaction), origins=origins)

    @property
    def size(self) -> int:
        """Bytes in memory, as far as they are this segment's own."""
        masks = self.unchanged.nbytes if self.unchanged is not None else 0
        return int(self.rows.nbytes + self.marker.nbytes + masks)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A truncation of the table. alteration: as in `RowSegment`."""

    table: SourceTable
    span: Span
    alteration: Alteration | None = None

    def closed(self, transaction: Closed) -> Emptied:
        """The truncation by an open transaction, now that it has ended."""
        return replace(self, span=self.span.closed(transaction))


Segment = RowSegment | Emptied


def split(
    changes: Changes, transactions: Transactions, *, metadata: bool = False
) -> tuple[RowSegment | None, RowSegment | None]:
    """The changes of closed transactions, and those of the open one. metadata: with origins."""
    n = len(changes.marker)
    closed = n
    if transactions.is_open:
        closed = int(np.searchsorted(changes.transaction, transactions.closed()))
    return (
        _rows(changes, transactions, 0, closed, metadata) if closed else None,
        _rows(changes, transactions, closed, n, metadata) if closed < n else None,
    )


def empty(table: SourceTable, span: Span, alteration: Alteration) -> RowSegment:
    """An alteration without rows."""
    schema = arrow_schema(table.schema)
    rows = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema.names)
    stored = alteration if alteration.is_stored else None  # the columns of the file say the rest
    return RowSegment(table, rows, None, pa.array([], pa.int8()), span, stored)


def emptied(
    truncation: Truncation, transactions: Transactions
) -> tuple[Emptied | None, Emptied | None]:
    """The truncation by a closed transaction, or that by the open one."""
    closed = Closed.of(transactions, truncation.transaction)
    span = Span(truncation.ordinal, truncation.ordinal, closed, closed)
    mark = Emptied(truncation.table, span)
    return (mark, None) if closed else (None, mark)


def after(
    changes: Changes, transactions: Transactions, checkpoint: Position | None
) -> Changes | None:
    """The changes that are not at or below the checkpoint, as far as that is known yet.

    The checkpoint's own transaction keeps the ordinals beyond it. While the end of a transaction is
    unknown, its changes count as if it were that one, or beyond a snapshot; `Outbox.close` drops
    them when it was an earlier one.
    """
    if checkpoint is None:
        return changes
    least = [_landed(transactions, i, checkpoint) for i in range(len(transactions.after))]
    keep = changes.ordinal > np.array(least)[changes.transaction]
    if keep.all():
        return changes
    if not keep.any():
        return None
    return changes.only(keep)


def upserts(changes: Changes, transactions: Transactions, upto: LogPoint) -> Changes:
    """The changes, with each row as an upsert that may have been loaded with what is up to a
    point."""
    loaded = np.array([not after.covers(upto) for after in transactions.after])
    replaced = loaded[changes.transaction] & (changes.marker != Marker.DELETE)
    return replace(changes, marker=np.where(replaced, np.int8(Marker.UPSERT), changes.marker))


def is_after(
    truncation: Truncation, transactions: Transactions, checkpoint: Position | None
) -> bool:
    """Whether it is not at or below the checkpoint, as far as that is known yet."""
    if checkpoint is None:
        return True
    return truncation.ordinal > _landed(transactions, truncation.transaction, checkpoint)


def is_landed(
    change: SchemaChange, transactions: Transactions, checkpoint: Position | None
) -> bool:
    """Whether the row that comes behind it is at or below the checkpoint, as far as that is
    known yet."""
    if checkpoint is None:
        return False
    return change.ordinal < _landed(transactions, change.transaction, checkpoint)


def _landed(transactions: Transactions, index: int, checkpoint: Position) -> int:
    """The last ordinal of a transaction that is already landed; 0 for none."""
    end = transactions.end[index]
    if end is not None:
        return checkpoint.reaches(end)
    # The point of a snapshot is no end of a transaction: this one may end beyond it.
    is_beyond = checkpoint.is_whole or transactions.after[index].covers(checkpoint.point)
    return 0 if is_beyond else checkpoint.ordinal


def _rows(
    changes: Changes, transactions: Transactions, start: int, stop: int, metadata: bool
) -> RowSegment:
    first, last = int(changes.transaction[start]), int(changes.transaction[stop - 1])
    unchanged = changes.unchanged
    return RowSegment(
        table=changes.table,
        rows=changes.rows.slice(start, stop - start),
        unchanged=None if unchanged is None else packed(unchanged[start:stop]),
        marker=pa.array(changes.marker[start:stop], pa.int8()),
        span=Span(
            int(changes.ordinal[start]),
            int(changes.ordinal[stop - 1]),
            Closed.of(transactions, first),
            Closed.of(transactions, last),
        ),
        origins=Origins.of(changes, transactions, start, stop) if metadata else None,
    )


def table_of(segments: Sequence[RowSegment]) -> pa.Table:
    """The segments of one file as its columns (LZ-072)."""
    masked = any(segment.unchanged is not None for segment in segments)
    batches = []
    for segment in segments:
        columns, names = list(segment.rows.columns), list(segment.rows.schema.names)
        if masked:
            absent = pa.nulls(len(segment.marker), pa.binary())
            columns.append(absent if segment.unchanged is None else segment.unchanged)
            names.append(UNCHANGED_COLUMN)
        columns.append(segment.marker)
        names.append(MARKER_COLUMN)
        batches.append(pa.RecordBatch.from_arrays(columns, names=names))
    rows = pa.Table.from_batches(batches)
    origins = [segment.origins.columns() for segment in segments if segment.origins]
    return with_metadata(rows, pa.concat_tables(origins)) if origins else rows


def counts(marker: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """Rows by marker, as in the footer."""
    numbers = np.bincount(marker.to_numpy(zero_copy_only=False), minlength=5)
    return {str(int(m)): int(numbers[m]) for m in Marker if numbers[m]}
