"""Reads a range of a table in chunks, each of which holds all rows of its part of the range.

The chunks of one reading come from one snapshot, in the order of their keys. What they say of the
order is checked: a chunk is only as good as the range that it is said to be.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import pyarrow as pa

from mirrorlake.capture.backfill.noted_rows import NotedRows
from mirrorlake.capture.backfill.stored_rows import StoredRows
from mirrorlake.errors import (
    CannotBackfill,
    SourceUnavailable,
    StorageUnavailable,
    TableError,
    Unavailable,
)
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.clock import Clock
from mirrorlake.model.keys import KeyRange, bound_of, is_ascending
from mirrorlake.model.position import LogPoint
from mirrorlake.model.row_hashes import HashRange
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.ordered import LARGEST_WHOLE, has_ranges, same_hash, too_large
from mirrorlake.sources.table import SourceTable


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Where a chunk ends: at so many rows, or bytes in memory. seconds: how long a snapshot is read
    from, because a table cannot be altered meanwhile; the chunk at hand ends then too. whole: bytes
    in memory up to which a table without ranges is one chunk. Of a larger one all rows are read at
    once, and stored in a file; a chunk has about a quarter of that then. divides: whether a larger
    one without a key is read at all."""

    rows: int = 500_000
    size: int = 64 << 20
    seconds: float = 3.0
    whole: int = LARGEST_WHOLE
    divides: bool = True


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """All rows of a table with a key in `keys`, by their keys. Without ranges of its key those with
    some hashes, or all.

    They have everything that `point` covers, nothing that `upto` does not, and of what is between
    some. taken: as in `Snapshot`. is_last: the range that was to be read ends here. is_read: all
    behind it is read already.
    """

    rows: pa.Table
    keys: KeyRange
    point: LogPoint
    upto: LogPoint
    taken: datetime
    is_last: bool
    is_read: bool = False


def chunks(
    snapshot: Snapshot,
    table: SourceTable,
    keys: KeyRange,
    limits: ChunkLimits,
    is_over: Callable[[], bool] = lambda: False,
    is_ended: Callable[[], bool] = lambda: False,
    noted: NotedRows | None = None,
) -> Iterator[ReadChunk]:
    """The range in chunks, of which the last may have no rows. is_over: whether what is read is a
    chunk already; is_ended: whether to read no more of a table without ranges; noted: keeps what is
    read of one. Raises CannotBackfill, and what `Snapshot.ordered` raises."""
    if not has_ranges(table):
        read = partial(noted.of, snapshot) if noted else snapshot.ordered
        yield from _pieces(snapshot, read, table, keys, limits, is_ended)
        return
    empty = nullable_schema(table.schema).empty_table()
    held, upto = empty, snapshot.point
    for batch, point in snapshot.ordered(table, keys):
        upto = upto.join(point)
        held = pa.concat_tables([held, pa.Table.from_batches([batch]).cast(empty.schema)])
        while held.num_rows and (count := _full(held, limits, is_over())):
            high = bound_of(held, table.key, count - 1)
            part = keys.ends_at(high)
            yield _checked(
                ReadChunk(held.slice(0, count), part, snapshot.point, upto, snapshot.taken, False),
                table,
            )
            held, keys = held.slice(count), keys.beyond(high)
    yield _checked(ReadChunk(held, keys, snapshot.point, upto, snapshot.taken, True), table)


def hashes_of(table: SourceTable) -> HashRange:
    """All rows of a table without ranges: by the hashes of their keys, without a key by those of
    all columns."""
    names = table.key or tuple(table.schema.names)
    return HashRange(tuple(names), tuple(str(table.schema[name].type) for name in names))


def _pieces(
    snapshot: Snapshot,
    read: Callable[[SourceTable, KeyRange], Iterator[tuple[pa.RecordBatch, LogPoint]]],
    table: SourceTable,
    keys: KeyRange,
    limits: ChunkLimits,
    is_ended: Callable[[], bool],
) -> Iterator[ReadChunk]:
    """All rows, or those with some hashes; in one chunk, or else by their hashes."""
    schema = nullable_schema(table.schema)
    hashes = keys.hashes or hashes_of(table)
    held, upto = schema.empty_table(), snapshot.point
    with closing(StoredRows(hashes, schema)) as stored:
        is_stored = False
        # Not by a name, which an error would keep open: it knows this frame.
        for batch, point in read(table, keys):
            upto = upto.join(point)
            rows = pa.Table.from_batches([batch]).cast(schema)
            held = pa.concat_tables([held, rows])
            if is_ended():
                raise SourceUnavailable("the reading was ended", where=str(table.table))
            if held.nbytes > limits.whole and not (limits.divides or table.key):
                raise too_large(table)
            if held.nbytes > (limits.whole // 8 if is_stored else limits.whole):
                stored.add(held)
                held, is_stored = schema.empty_table(), True
        if not is_stored:
            held = held if keys.hashes is None else held.filter(pa.array(keys.contains(held)))
            yield ReadChunk(held, keys, snapshot.point, upto, snapshot.taken, True)
            return
        stored.add(held)
        del held
        for part, size in stored.ranges(limits.whole // 4):
            if size > LARGEST_WHOLE:
                raise same_hash(table)
            rows, is_last = stored.read(part), part.end == hashes.end
            yield ReadChunk(
                rows, KeyRange(hashes=part), snapshot.point, upto, snapshot.taken, is_last, True
            )


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
    if not (is_ascending(rows, table.key) and chunk.keys.contains(rows).all()):
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
    is_read: whether all chunks are read from the snapshot, which is closed.
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
        noted: NotedRows | None = None,
    ) -> None:
        """noted: as of `chunks`."""
        self._take, self._table, self._keys, self._limits = snapshot, table, keys, limits
        self._clock, self._begun = clock, float("inf")
        self._is_estimated, self._noted = is_estimated, noted
        self.expected: int | None = None
        self._snapshot: Snapshot | None = None
        self._chunks: Iterator[ReadChunk] | None = None
        self.is_read = self._is_ended = False

    def is_over(self) -> bool:
        """Whether no more is read from the snapshot, or of what was read from it."""
        return not self.is_read and self._clock.monotonic() - self._begun >= self._limits.seconds

    def next(self) -> ReadChunk | TableError | Unavailable:
        """The next chunk, or why there is none. Not after the last one."""
        try:
            if self._chunks is None:
                self._snapshot = self._take()
                self._begun = self._clock.monotonic()
                self._chunks = chunks(
                    self._snapshot,
                    self._table,
                    self._keys,
                    self._limits,
                    self.is_over,
                    lambda: self._is_ended,
                    self._noted,
                )
            found = next(self._chunks)
            if self._is_estimated and self._snapshot and self.expected is None:
                self.expected = self._snapshot.estimated(self._table, self._keys)
        except (TableError, SourceUnavailable, StorageUnavailable) as error:
            return error
        except OSError as error:
            if (known := StorageUnavailable.of(error)) is None:
                raise
            return known
        if found.is_read:
            self.is_read = True
            self._release()
        if self.is_over():
            self.close()
        return found

    def end(self) -> None:
        """Let `next` return soon, which is under way on another thread."""
        self._is_ended = True
        if (snapshot := self._snapshot) is not None:
            snapshot.close()

    def _release(self) -> None:
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def close(self) -> None:
        chunks, self._chunks = self._chunks, None
        if isinstance(chunks, Generator):
            chunks.close()
        self._release()
