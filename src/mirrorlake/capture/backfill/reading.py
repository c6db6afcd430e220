"""Reads a range of a table in chunks, each of which holds all rows of its part of the range.

The chunks of one reading come from one snapshot, in the order of their keys. What they say of the
order is checked: a chunk is only as good as the range that it is said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from mirrorlake.errors import CannotBackfill, SourceUnavailable, TableError
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.clock import Clock
from mirrorlake.model.keys import KeyRange, bound_of, is_ascending
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.ordered import LARGEST_WHOLE, too_large
from mirrorlake.sources.table import SourceTable


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Where a chunk ends: at so many rows, or bytes in memory. seconds: how long a snapshot is read
    from, because a table cannot be altered meanwhile; the chunk at hand ends then too. whole: bytes
    in memory of a table without a key, which is one chunk."""

    rows: int = 500_000
    size: int = 64 << 20
    seconds: float = 3.0
    whole: int = LARGEST_WHOLE


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """All rows of a table with a key in `keys`, by their keys.

    They have everything that `point` covers, nothing that `upto` does not, and of what is between
    some. is_last: the range that was to be read ends here.
    """

    rows: pa.Table
    keys: KeyRange
    point: LogPoint
    upto: LogPoint
    is_last: bool


def chunks(
    snapshot: Snapshot,
    table: SourceTable,
    keys: KeyRange,
    limits: ChunkLimits,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[ReadChunk]:
    """The range in chunks, of which the last may have no rows. is_over: whether what is read is a
    chunk already. Raises CannotBackfill, and what `Snapshot.ordered` raises."""
    empty = nullable_schema(table.schema).empty_table()
    held, upto = empty, snapshot.point
    for batch, point in snapshot.ordered(table, keys):
        upto = upto.join(point)
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(empty.schema)])
        if not table.key:
            if held.nbytes > limits.whole:
                raise too_large(table)
            continue
        while held.num_rows and (count := _full(held, limits, is_over())):
            high = bound_of(held, table.key, count - 1)
            part = keys.ends_at(high)
            yield _checked(
                ReadChunk(held.slice(0, count), part, snapshot.point, upto, False), table
            )
            held, keys = held.slice(count), keys.beyond(high)
    yield _checked(ReadChunk(held, keys, snapshot.point, upto, True), table)


def _full(held: pa.Table, limits: ChunkLimits, is_over: bool) -> int:
    """How many rows make a chunk; 0 while there are too few."""
    most = limits.rows
    if held.nbytes >= limits.size:
        most = min(most, max(int(held.num_rows * limits.size / held.nbytes), 1))
    if held.num_rows >= most:
        return most
    return held.num_rows if is_over else 0


def _checked(chunk: ReadChunk, table: SourceTable) -> ReadChunk:
    """Refuse rows that do not stand in the range, and in the order, in which they should."""
    rows = chunk.rows
    if table.key and not (is_ascending(rows, table.key) and chunk.keys.contains(rows).all()):
        raise CannotBackfill(
            "the source orders its key in another way than its values here",
            table=str(table.table),
            hint=f"`mirrorlake reset {table.table}` loads it anew.",
        )
    return chunk


class ChunkReading:
    """One snapshot, from which chunks are taken one after another. For one thread at a time.

    It closes itself behind a chunk when its time is over, and has no more chunks then. expected:
    about how many rows the range has, once the first chunk is read, if that `is_estimated`.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        table: SourceTable,
        keys: KeyRange,
        limits: ChunkLimits,
        clock: Clock,
        *,
        is_estimated: bool = False,
    ) -> None:
        self._take, self._table, self._keys, self._limits = snapshot, table, keys, limits
        self._clock, self._begun = clock, float("inf")
        self._is_estimated = is_estimated
        self.expected: int | None = None
        self._snapshot: Snapshot | None = None
        self._chunks: Iterator[ReadChunk] | None = None

    def is_over(self) -> bool:
        return self._clock.monotonic() - self._begun >= self._limits.seconds

    def next(self) -> ReadChunk | TableError | SourceUnavailable:
        """The next chunk, or why there is none. Not after the last one."""
        try:
            if self._chunks is None:
                self._snapshot = self._take()
                self._begun = self._clock.monotonic()
                self._chunks = chunks(
                    self._snapshot, self._table, self._keys, self._limits, self.is_over
                )
            found = next(self._chunks)
            if self._is_estimated and self._snapshot and self.expected is None:
                self.expected = self._snapshot.estimated(self._table, self._keys)
        except (TableError, SourceUnavailable) as error:
            return error
        if self.is_over():
            self.close()
        return found

    def close(self) -> None:
        if self._snapshot is not None:
            self._chunks = None
            self._snapshot.close()
            self._snapshot = None
