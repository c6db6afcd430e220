"""Reading a landed text file with the declared schema and the columns of the table."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import FileTooLarge, TableError
from mirrorlake.landing.parquet.bounded import NO_LIMIT, SPLIT
from mirrorlake.landing.parquet.reader import Inspected, Rows, match_columns
from mirrorlake.landing.text import splits
from mirrorlake.landing.text.columns import (
    ColumnSource,
    columns_of,
    data_names,
    markers_of,
    sources_of,
)
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.origin import Origin
from mirrorlake.landing.text.records import Block, TextRecords
from mirrorlake.landing.text.splits import TextPart
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import Column, Schema

COUNTED = 8 << 20
"""Size of text up to which rows are counted, in bytes; the rows of larger texts are estimated
from as much."""

BLOCK_BYTES = 32 << 20
"""Approximate size in memory of the rows of a block."""

THREAD_PART = 16 << 20
"""Size of the text that one thread reads at a time, in bytes."""


def inspect(handle: BinaryIO, size: int, text: TextFormat, *, table: str, file: str) -> Inspected:
    """Read the header, and enough rows to estimate their number.

    size: compressed size of the file in bytes. The schema is the declared one, or a nullable text
    for each column (LZ-192). Raises BadFile, UnsupportedColumn, MisspeltMarker.
    """
    origin = Origin(table, file)
    records = TextRecords(handle, size, text, origin, COUNTED)
    columns = columns_of(records.header, text, origin)
    rows = used = 0
    for block in records.blocks():
        rows, used = rows + block.rows, used + block.tokens.used
        if used >= COUNTED // 2:
            break
    total = used
    if not records.is_whole:
        total = max(used, used * size // max(handle.tell(), 1))
    data = data_names(records.header)
    found = match_columns([column.name for column in columns], data)
    return Inspected(
        schema=Schema.of([Column(column.name, column.data_type) for column in columns]),
        rows=rows * total // max(used, 1),
        size=total,
        has_marker=MARKER_COLUMN in records.header,
        has_unchanged=False,
        footer=None,
        marker_last=MARKER_COLUMN not in records.header or records.header[-1] == MARKER_COLUMN,
        is_exact=records.is_whole,
        ignored=tuple(sorted(set(data) - set(found.values()))),
    )


def read(
    handle: BinaryIO,
    size: int,
    schema: Schema,
    default: Marker,
    text: TextFormat,
    *,
    table: str,
    file: str,
    key: Sequence[str] = (),
    threads: int = 1,
    most: int = NO_LIMIT,
) -> Rows:
    """All rows of a file as rows of the table.

    schema: the table's columns; a column that is missing from the file is NULL (LZ-195, LZ-214).
    default: the operation of rows without a marker (LZ-091, LZ-094). key: the key columns, which
    are not nullable unless they are declared so (LZ-206). threads: maximum number of threads. most:
    maximum size of the rows in memory, in bytes. Memory: the rows, and a few times one block of the
    text per thread. Raises BadFile, BadValue, UnknownMarker, FileTooLarge.
    """
    reading = _Reading(handle, size, schema, default, text, Origin(table, file), key)
    taken = reading.limited(reading.everything(threads), most)
    return reading.rows(list(taken))


def read_blocks(
    handle: BinaryIO,
    size: int,
    schema: Schema,
    default: Marker,
    text: TextFormat,
    *,
    table: str,
    file: str,
    key: Sequence[str] = (),
    part: TextPart | None = None,
    about: int = BLOCK_BYTES,
) -> Iterator[Rows]:
    """The rows of a file, or of a part of it, in blocks of about `about` bytes; see `read`.

    Yields at least one block. Memory: two blocks, however large the file is.
    """
    reading = _Reading(handle, size, schema, default, text, Origin(table, file), key)
    pending: list[Converted] = []
    taken, is_empty = 0, True
    for block in reading.converted(part):
        pending.append(block)
        taken += block[0].nbytes
        if taken >= about:
            yield reading.rows(pending)
            pending, taken, is_empty = [], 0, False
    if pending or is_empty:
        yield reading.rows(pending)


Converted = tuple[pa.RecordBatch, pa.Array]
"""Rows in the columns of the table, and their markers."""


class _Reading:
    """One file, and the table that its rows are for."""

    def __init__(
        self,
        handle: BinaryIO,
        size: int,
        schema: Schema,
        default: Marker,
        text: TextFormat,
        origin: Origin,
        key: Sequence[str],
    ) -> None:
        self._handle, self._size, self._text, self._origin = handle, size, text, origin
        self._schema, self._default, self._key = schema, default, key
        self._target = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in schema])
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()

    def rows(self, converted: Sequence[Converted]) -> Rows:
        """Blocks as one table. Call it after the first block was read."""
        marker = [marker for _batch, marker in converted]
        return Rows(
            data=pa.Table.from_batches([batch for batch, _marker in converted], self._target),
            marker=pa.concat_arrays(marker or [pa.array([], pa.int8())]),
            unchanged=None,
            names=self._names,
        )

    def converted(self, part: TextPart | None = None, threads: int = 1) -> Iterator[Converted]:
        """The rows of a part, or of the whole file, in blocks."""
        records = TextRecords(
            self._handle, self._size, self._text, self._origin, part=part, lock=self._lock
        )
        self._names = tuple(data_names(records.header))
        values = self._values(records.header)
        yield from _in_order(records.blocks(), values, threads)

    def everything(self, threads: int) -> Iterator[Converted]:
        """The rows of the file, read by `threads` threads."""
        if threads < 2:
            yield from self.converted()
            return
        with ThreadPoolExecutor(threads, thread_name_prefix="text") as pool:
            found = splits.cut(self._handle, self._size, self._text, THREAD_PART, pool, self._lock)
            if len(found) > 1:
                yield from _of_parts(pool, found, self.converted, threads)
                return
        self._handle.seek(0)
        yield from self.converted(threads=threads)

    def limited(self, converted: Iterator[Converted], most: int) -> Iterator[Converted]:
        """Pass blocks through until they take more than `most` bytes. Raises FileTooLarge."""
        taken = 0
        for block in converted:
            taken += block[0].nbytes
            if taken > most:
                raise FileTooLarge(
                    f"its rows take more than {most:,} bytes in memory",
                    table=self._origin.table,
                    file=self._origin.file,
                    hint=SPLIT,
                )
            yield block

    def _values(self, header: list[str]) -> Callable[[Block], Converted]:
        sources = sources_of(header, self._schema, self._text, self._key, self._origin)
        index = header.index(MARKER_COLUMN) if MARKER_COLUMN in header else None
        change = _Change(sources, index, self._default, self._origin, self._target)
        return change.values


@dataclass(frozen=True, slots=True)
class _Change:
    """Converts the texts of a block to values. index: of the marker in the file."""

    sources: Sequence[ColumnSource]
    index: int | None
    default: Marker
    origin: Origin
    target: pa.Schema

    def values(self, block: Block) -> Converted:
        """Raises the first error of the block by row, then by column."""
        try:
            return self._values(block)
        except TableError as error:
            raise self._first(block, error) from None

    def _values(self, block: Block) -> Converted:
        marker = markers_of(block, self.index, self.default, self.origin)
        changes = pc.not_equal(marker, int(Marker.DELETE))
        columns = [source.values(block, changes) for source in self.sources]
        return pa.record_batch(columns, schema=self.target), marker

    def _first(self, block: Block, error: TableError) -> TableError:
        """Columns are converted one by one: a later column may be wrong in an earlier row."""
        while (before := (error.row or 0) - block.first - 1) > 0:
            block = block.head(before)
            try:
                self._values(block)
            except TableError as earlier:
                error = earlier
            else:
                break
        return error


def _in_order(
    blocks: Iterator[Block], values: Callable[[Block], Converted], threads: int
) -> Iterator[Converted]:
    """The values of all blocks in order; of several errors, the first is raised."""
    if threads < 2:
        yield from map(values, blocks)
        return
    # One thread finds the fields, the others convert them.
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="text") as pool:
        pending: deque[Future[Converted]] = deque()
        for future in _submitted(pool, blocks, values):
            pending.append(future)
            if len(pending) > threads:
                yield pending.popleft().result()
        yield from (future.result() for future in pending)


def _submitted(
    pool: ThreadPoolExecutor, blocks: Iterator[Block], values: Callable[[Block], Converted]
) -> Iterator[Future[Converted]]:
    """Submit all blocks. An error of the text itself becomes the last future, so that it is raised
    after errors of earlier values."""
    try:
        for block in blocks:
            yield pool.submit(values, block)
    except TableError as error:
        failed: Future[Converted] = Future()
        failed.set_exception(error)
        yield failed


def _of_parts(
    pool: ThreadPoolExecutor,
    parts: Sequence[TextPart],
    converted: Callable[[TextPart], Iterator[Converted]],
    threads: int,
) -> Iterator[Converted]:
    """The values of all parts in order, with one thread each; of several errors, the first is
    raised."""
    pending: deque[Future[list[Converted]]] = deque()
    try:
        for part in parts:
            pending.append(pool.submit(lambda part: list(converted(part)), part))
            if len(pending) > threads:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
