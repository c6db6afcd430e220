"""What happens to a table while chunks of it are read, kept until they are landed.

A chunk holds rows as of a point, which the stream has passed when it is landed. So the changes
beyond that point are landed once more, behind the rows of the chunk and in the same file: what they
leave is the range as of the stream. Nothing of it is older than what was landed before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from mirrorlake.capture.backfill.reading import ReadChunk
from mirrorlake.capture.segments import RowSegment, Span, table_of
from mirrorlake.landing.parquet.unchanged import packed
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import Marker
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.chunk import Changes, Chunk, SchemaChange, Truncation
from mirrorlake.sources.table import SourceTable

_SPAN = Span(0, 0)
"""Rows of a chunk have no positions of their own."""


class Spoiled(Exception):
    """The chunk cannot be landed, because of what happened meanwhile: it has to be read again."""


@dataclass(slots=True)
class _Taken:
    """A part of the stream, and the ends of the transactions of its chunk."""

    part: Changes | Truncation
    ends: list[LogPoint | None]


@dataclass(slots=True)
class ChangeWindow:
    """The changes of one table since a moment at which no transaction was open.

    since: where the stream stood then; size: bytes that the changes take.
    """

    table: SourceTable
    since: LogPoint
    size: int = 0
    is_altered: bool = False
    _taken: list[_Taken] = field(default_factory=list)
    _open: list[list[LogPoint | None]] = field(default_factory=list)

    def take(self, chunk: Chunk) -> None:
        """The next chunk of the stream."""
        transactions = chunk.transactions
        ends = list(transactions.end)
        if chunk.opens and ends and (transactions.closed() > 0 or ends[0] is not None):
            for earlier in self._open:
                earlier[-1] = ends[0]
        if transactions.after and not (chunk.opens and transactions.closed() == 0):
            self._open = []
        if transactions.is_open:
            self._open.append(ends)
        for part in chunk.parts:
            if isinstance(part, SchemaChange) and part.table.table == self.table.table:
                self.is_altered = True
            elif isinstance(part, Changes | Truncation) and part.table.table == self.table.table:
                self._taken.append(_Taken(part, ends))
                if isinstance(part, Changes):
                    masks = 0 if part.unchanged is None else part.unchanged.nbytes
                    self.size += part.rows.nbytes + part.marker.nbytes + masks

    def behind(self, chunk: ReadChunk, until: LogPoint | None = None) -> pa.Table:
        """What makes a file of a chunk: its rows, and what happened to its range beyond its point,
        `until` a later one if that is given.

        While no transaction is open, and nothing is missing that the chunk may hold. Raises
        Spoiled.
        """
        if not chunk.point.covers(self.since):
            raise Spoiled("the snapshot is of a server that is behind the stream")
        if self.is_altered:
            raise Spoiled("the table was altered")
        found = [_upserts(self.table, chunk.rows)]
        for taken in self._taken:
            if isinstance(taken.part, Truncation):
                if _is_between(chunk.point, taken.ends[taken.part.transaction], until):
                    found = []
            elif (segment := self._segment(taken.part, taken.ends, chunk, until)) is not None:
                found.append(segment)
        return table_of(found or [_upserts(self.table, chunk.rows.slice(0, 0))])

    def unchanged(self, chunk: ReadChunk) -> pa.Table:
        """Of the rows of a chunk those that are still what was read where the stream stands; of a
        table without a key all, unless it was emptied. While `behind` does not raise."""
        changed = []
        for taken in self._taken:
            if isinstance(taken.part, Truncation):
                if _is_between(chunk.point, taken.ends[taken.part.transaction], None):
                    return chunk.rows.slice(0, 0)
            elif (segment := self._segment(taken.part, taken.ends, chunk, None)) is not None:
                changed.append(pa.Table.from_batches([segment.rows]))
        if not (changed and self.table.key):
            return chunk.rows
        return chunk.rows.take(_others(chunk.rows, changed, self.table.key))

    def _segment(
        self,
        part: Changes,
        ends: Sequence[LogPoint | None],
        chunk: ReadChunk,
        until: LogPoint | None,
    ) -> RowSegment | None:
        """The changes of the range beyond the point of the chunk; None when there are none."""
        numbers = np.unique(part.transaction).tolist()
        beyond = [n for n in numbers if _is_between(chunk.point, ends[n], until)]
        later = np.isin(part.transaction, beyond)
        if not later.any():
            return None
        if part.table.schema != self.table.schema:
            raise Spoiled("the table was altered")
        inside = chunk.keys.contains(pa.Table.from_batches([part.rows]))
        masked = np.zeros(len(later), bool)
        if part.unchanged is not None:
            masked = np.asarray(part.unchanged.any(axis=1))
        # A row that came from another key has values that stand at that key: before it, in the
        # same file, or at a place that is not known here. One that was not selected there comes
        # without a deletion.
        moved = masked & (part.marker == Marker.INSERT)
        if (later & inside & moved & ~_comes_from(part, inside)).any():
            raise Spoiled("a row moved into the range, with values that the source did not send")
        which = np.flatnonzero(later & inside)
        if not len(which):
            return None
        # What is between the points of the chunk may be in its rows, or not.
        marker = part.replacing().marker if part.table.key else part.marker
        unchanged = part.unchanged
        return RowSegment(
            table=part.table,
            rows=_plain(part.rows.take(pa.array(which))),
            unchanged=None if unchanged is None else packed(unchanged[which]),
            marker=pa.array(marker[which].astype(np.int8), pa.int8()),
            span=_SPAN,
        )


def _others(rows: pa.Table, changed: Sequence[pa.Table], key: Sequence[str]) -> pa.Array:
    """The numbers of the rows that have no key of the changed ones, in order."""
    names = [str(number) for number in range(len(key))]
    keys = rows.select(key).rename_columns(names)
    gone = pa.concat_tables([one.select(key).rename_columns(names) for one in changed])
    numbered = keys.append_column("row", pa.array(np.arange(rows.num_rows)))
    found = numbered.join(gone.group_by(names).aggregate([]), names, join_type="left anti")
    return pa.array(np.sort(found["row"].to_numpy()))


def _comes_from(part: Changes, inside: np.ndarray) -> np.ndarray:
    """Which rows come from another key that is `inside`: directly behind the deletion there."""
    found = np.zeros(len(inside), bool)
    is_one = part.ordinal[1:] == part.ordinal[:-1]
    is_one &= part.transaction[1:] == part.transaction[:-1]
    found[1:] = is_one & (part.marker[:-1] == Marker.DELETE) & inside[:-1]
    return found


def _is_between(point: LogPoint, end: LogPoint | None, until: LogPoint | None) -> bool:
    """Whether a transaction ends beyond a point, and not beyond a later one. One that is open ends
    beyond both."""
    if until is not None:
        return end is not None and until.covers(end) and not point.covers(end)
    assert end is not None, "a transaction is open"
    return not point.covers(end)


def _upserts(table: SourceTable, rows: pa.Table) -> RowSegment:
    kind = Marker.UPSERT if table.key else Marker.INSERT
    marker = pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows)
    return RowSegment(table, _plain(rows), None, marker, _SPAN)


def _plain(rows: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """The rows with columns that may all be NULL, as they are in deletions."""
    columns = [contiguous(column) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
