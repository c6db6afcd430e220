"""A landed text file against the declared schema and the columns of the table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue, MisspeltMarker, TableError, UnsupportedColumn
from mirrorlake.landing.delimited.convert import Unconvertible, convert, expectation
from mirrorlake.landing.delimited.origin import Origin, shown
from mirrorlake.landing.delimited.records import Block, Records
from mirrorlake.landing.parquet import Inspected, Rows, check_names, markers, match_columns
from mirrorlake.landing.textformat import DeclaredColumn, TextFormat
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.table import Column, Schema

COUNTED = 8 << 20
"""Bytes of text up to which rows are counted; of more they are estimated from as many."""

_TEXT = "String"


def inspect(handle: BinaryIO, size: int, text: TextFormat, *, table: str, file: str) -> Inspected:
    """Read the header, and as many rows as tell how many there are.

    size: of the file in bytes, compressed as it is. The schema is the declared one, or a nullable
    text for each column (LZ-192). Raises BadFile, UnsupportedColumn, MisspeltMarker.
    """
    records = Records(handle, size, text, Origin(table, file), COUNTED)
    columns = _columns(records.header, text, table, file)
    rows = used = 0
    for block in records.blocks():
        rows, used = rows + block.rows, used + block.tokens.used
        if used >= COUNTED // 2:
            break
    total = used
    if not records.is_whole:
        total = max(used, used * size // max(handle.tell(), 1))
    data = _data_names(records.header)
    found = match_columns([column.name for column in columns], data)
    return Inspected(
        schema=Schema.of([Column(column.name, column.data_type) for column in columns]),
        rows=rows * total // max(used, 1),
        size=total,
        has_marker=MARKER_COLUMN in records.header,
        has_unchanged=False,
        footer=None,
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
) -> Rows:
    """All rows of a file as rows of the table.

    schema: the table's columns; one that the file lacks is NULL (LZ-195, LZ-214). default: what a
    row without a marker does (LZ-091, LZ-094). key: the key columns, which are not nullable unless
    they are declared so (LZ-206). threads: how many may work at a time. Memory: the rows, and a few
    times one block of the text per thread.
    Raises BadFile, BadValue, UnknownMarker.
    """
    origin = Origin(table, file)
    records = Records(handle, size, text, origin)
    sources = _sources(records.header, schema, text, key, origin)
    place = records.header.index(MARKER_COLUMN) if MARKER_COLUMN in records.header else None
    target = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in schema])

    def values(block: Block) -> Converted:
        marker = _markers(block, place, default, origin)
        changes = pc.not_equal(marker, int(Marker.DELETE))
        columns = [source.values(block, text, changes) for source in sources]
        return pa.record_batch(columns, schema=target), marker

    parts = list(_in_order(records.blocks(), values, threads))
    return Rows(
        data=pa.Table.from_batches([batch for batch, _marker in parts], target),
        marker=pa.concat_arrays([marker for _batch, marker in parts] or [pa.array([], pa.int8())]),
        unchanged=None,
        names=tuple(_data_names(records.header)),
    )


Converted = tuple[pa.RecordBatch, pa.Array]


def _in_order(
    blocks: Iterator[Block], values: Callable[[Block], Converted], threads: int
) -> Iterator[Converted]:
    """The values of all blocks in their order, and of several faults the first."""
    if threads < 2:
        yield from map(values, blocks)
        return
    # One thread finds the fields, the others make values of them.
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
    """A fault of the text itself waits its turn, as one of a value does."""
    try:
        for block in blocks:
            yield pool.submit(values, block)
    except TableError as error:
        failed: Future[Converted] = Future()
        failed.set_exception(error)
        yield failed


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the values of a table's column come from.

    place: of the column in the file, None where the file lacks it; declared: what its texts are;
    is_required: NULL is an error, in a key also for a deletion (LZ-205).
    """

    column: Column
    place: int | None
    declared: DeclaredColumn
    is_required: bool
    is_key: bool
    origin: Origin

    def values(self, block: Block, text: TextFormat, changes: pa.Array) -> pa.Array:
        """The values of a block's rows. changes: which rows are no deletions."""
        if self.place is None:
            values = pa.nulls(block.rows, arrow_type(self.column.type))
        else:
            values = self._converted(block, text)
        if self.is_required and values.null_count:
            self._check(block, values, changes)
        return values

    def _converted(self, block: Block, text: TextFormat) -> pa.Array:
        assert self.place is not None
        texts = block.column(self.place)
        is_text = self.declared.type == _TEXT
        texts = _with_nulls(texts, block.quoted(self.place), text.null or "", is_text=is_text)
        try:
            return convert(texts, self.declared)
        except Unconvertible as error:
            value = texts[error.place].as_py()
            raise self._bad_value(
                f"{shown(value)!r} is {expectation(self.declared)}", block, error.place, value
            ) from None

    def _check(self, block: Block, values: pa.Array, changes: pa.Array) -> None:
        missing = values.is_null()
        wrong = missing if self.is_key else pc.and_(missing, changes)
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            what = "the file lacks the column" if self.place is None else "it is NULL"
            raise self._bad_value(f"{what}, which may not be NULL (LZ-205)", block, row, None)

    def _bad_value(self, what: str, block: Block, row: int, value: str | None) -> BadValue:
        return self.origin.bad_value(
            f"{what}, on line {block.line_of(row)}",
            row=block.first + row + 1,
            column=self.column.name,
            value=value,
        )


def _with_nulls(
    texts: pa.Array, quoted: npt.NDArray[np.bool_], null: str, *, is_text: bool
) -> pa.Array:
    """The texts, and NULL where they stand for it (LZ-203, LZ-204)."""
    empty = pc.equal(pc.binary_length(texts), 0)
    if null:
        gone = pc.equal(texts, null)
        gone = gone if is_text else pc.or_(gone, empty)
    else:
        gone = pc.and_(empty, pa.array(~quoted)) if is_text else empty
    return pc.if_else(gone, None, texts) if pc.any(gone).as_py() else texts


def _markers(block: Block, place: int | None, default: Marker, origin: Origin) -> pa.Array:
    if place is None:
        return pa.repeat(pa.scalar(int(default), pa.int8()), block.rows)
    return markers(block.column(place), table=origin.table, file=origin.file, before=block.first)


def _sources(
    header: list[str], schema: Schema, text: TextFormat, key: Sequence[str], origin: Origin
) -> list[_Source]:
    columns = _columns(header, text, origin.table, origin.file)
    declared = {column.name: column for column in columns}
    of_table = match_columns(schema.names, list(declared))
    of_file = match_columns(list(declared), _data_names(header))
    sources = []
    for column in schema:
        found = declared.get(of_table.get(column.name, ""))
        name = of_file.get(found.name) if found else None
        is_key = column.name in key
        required = found is not None and (
            found.nullable is False
            or (found.nullable is None and text.columns is not None and (is_key or text.strict))
        )
        sources.append(
            _Source(
                column=column,
                place=None if name is None else header.index(name),
                declared=found or DeclaredColumn(column.name, _TEXT),
                is_required=required,
                is_key=is_key,
                origin=origin,
            )
        )
    return sources


def _columns(header: list[str], text: TextFormat, table: str, file: str) -> list[DeclaredColumn]:
    """The declared columns without the marker (LZ-197), else those of the header as texts."""
    _check_header(header, table, file)
    if not _data_names(header):
        raise UnsupportedColumn(
            "the header names no column but the marker",
            table=table,
            file=file,
            row=0,
            hint="Write the columns of the key at least (LZ-103).",
        )
    if text.columns is not None:
        reserved = {MARKER_COLUMN.casefold(), UNCHANGED_COLUMN.casefold()}
        return [c for c in text.columns if c.name.casefold() not in reserved]
    for place, name in enumerate(header):
        if not name:
            raise UnsupportedColumn(
                f"column {place + 1} of the header has no name",
                table=table,
                file=file,
                row=0,
                hint="Name every column in the first row (LZ-159).",
            )
    return [DeclaredColumn(name, _TEXT) for name in _data_names(header)]


def _check_header(header: list[str], table: str, file: str) -> None:
    """Raises MisspeltMarker, and UnsupportedColumn for a repeated name (LZ-199), with row 0."""
    try:
        check_names(header, table, file)
    except (MisspeltMarker, UnsupportedColumn) as error:
        raise type(error)(
            f"{error.what}, in the header (LZ-199)",
            table=table,
            file=file,
            row=0,
            column=error.column,
            hint=error.hint,
        ) from None


def _data_names(header: list[str]) -> list[str]:
    return [name for name in header if name != MARKER_COLUMN]
