"""Changes of one table on their way into files: segments, in order.

A segment is a run of rows with one set of columns, or a truncation, or a file that is written but
waits for the end of its transaction. Segments of the open transaction have ordinals only; when its
end arrives they get positions and join the closed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from mirrorlake.landing.parquet.unchanged import packed
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.sources.base import Changes, SourceTable, Transactions, Truncation


@dataclass(frozen=True, slots=True)
class Span:
    """Where a run of changes stands: ordinals, and the ends of their transactions when known."""

    first: int
    last: int
    first_end: LogPoint | None
    last_end: LogPoint | None
    first_time: datetime | None
    last_time: datetime | None

    def closed(self, end: LogPoint) -> Span:
        """The span of an open transaction, now that its end is known."""
        return replace(self, first_end=end, last_end=end)

    def positions(self) -> tuple[Position, Position]:
        assert self.first_end is not None
        assert self.last_end is not None
        return Position(self.first_end, self.first), Position(self.last_end, self.last)

    def until(self, later: Span) -> Span:
        """From the beginning of this span to the end of a later one."""
        return replace(self, last=later.last, last_end=later.last_end, last_time=later.last_time)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in memory: the data columns, then the mask when there is one, then the marker."""

    table: SourceTable
    rows: pa.RecordBatch
    unchanged: pa.Array | None
    marker: pa.Array
    span: Span

    @property
    def size(self) -> int:
        """Bytes in memory, as far as they are this segment's own."""
        masks = self.unchanged.nbytes if self.unchanged is not None else 0
        return int(self.rows.nbytes + self.marker.nbytes + masks)


@dataclass(frozen=True, slots=True)
class Emptied:
    """A truncation of the table."""

    table: SourceTable
    span: Span


Segment = Rows | Emptied


def split(changes: Changes, transactions: Transactions) -> tuple[Rows | None, Rows | None]:
    """The changes of closed transactions, and those of the open one."""
    n = len(changes.marker)
    closed = n
    if transactions.end and transactions.end[-1] is None:
        last = len(transactions.end) - 1
        closed = int(np.searchsorted(changes.transaction, last))
    return (
        _rows(changes, transactions, 0, closed) if closed else None,
        _rows(changes, transactions, closed, n) if closed < n else None,
    )


def emptied(truncation: Truncation, transactions: Transactions) -> Emptied:
    index, ordinal = truncation.transaction, truncation.ordinal
    end, time = transactions.end[index], transactions.time[index]
    return Emptied(truncation.table, Span(ordinal, ordinal, end, end, time, time))


def after(
    changes: Changes, transactions: Transactions, checkpoint: Position | None
) -> Changes | None:
    """The changes that are not at or below the checkpoint, as far as that can be told yet.

    A transaction that ends at the checkpoint's end keeps the ordinals beyond it. While the end of
    a transaction is unknown, its changes count as if it were that one, or beyond a snapshot;
    `Outbox.close` drops them when it was an earlier one.
    """
    if checkpoint is None:
        return changes
    least = [
        _least_ordinal(a, e, checkpoint)
        for a, e in zip(transactions.after, transactions.end, strict=True)
    ]
    keep = changes.ordinal > np.array(least)[changes.transaction]
    if keep.all():
        return changes
    if not keep.any():
        return None
    rows = np.flatnonzero(keep)
    return replace(
        changes,
        rows=changes.rows.take(pa.array(rows)),
        marker=changes.marker[rows],
        unchanged=None if changes.unchanged is None else changes.unchanged[rows],
        transaction=changes.transaction[rows],
        ordinal=changes.ordinal[rows],
    )


_ALL = 2**62


def is_after(begins: LogPoint, end: LogPoint | None, ordinal: int, checkpoint: Position) -> bool:
    """Whether one change lies beyond the checkpoint, as far as that can be told yet."""
    return ordinal > _least_ordinal(begins, end, checkpoint)


def _least_ordinal(begins: LogPoint, end: LogPoint | None, checkpoint: Position) -> int:
    """The last ordinal of a transaction that is already landed; 0 for none."""
    if begins >= checkpoint.end:
        return 0
    if end is None and checkpoint == Position.after(checkpoint.end):
        return 0  # the point of a snapshot is no end of a transaction: this one may end beyond it
    if end is None or end == checkpoint.end:
        return checkpoint.ordinal
    return _ALL if end < checkpoint.end else 0


def _rows(changes: Changes, transactions: Transactions, start: int, stop: int) -> Rows:
    first, last = changes.transaction[start], changes.transaction[stop - 1]
    unchanged = changes.unchanged
    return Rows(
        table=changes.table,
        rows=changes.rows.slice(start, stop - start),
        unchanged=None if unchanged is None else packed(unchanged[start:stop]),
        marker=pa.array(changes.marker[start:stop], pa.int8()),
        span=Span(
            int(changes.ordinal[start]),
            int(changes.ordinal[stop - 1]),
            transactions.end[first],
            transactions.end[last],
            transactions.time[first],
            transactions.time[last],
        ),
    )


def table_of(segments: Sequence[Rows]) -> pa.Table:
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
    return pa.Table.from_batches(batches)


def counts(marker: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """Rows by marker, as the footer tells them."""
    numbers = np.bincount(marker.to_numpy(zero_copy_only=False), minlength=5)
    return {str(int(m)): int(numbers[m]) for m in Marker if numbers[m]}
