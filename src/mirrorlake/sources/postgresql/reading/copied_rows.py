"""The output of a COPY as Arrow: a row is the number of its fields, and each field its size and its
bytes. All rows of a block are decoded together, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from psycopg import sql

from mirrorlake.errors import BadValue
from mirrorlake.sources.postgresql.reading.copy_socket import CopiedBlock
from mirrorlake.sources.postgresql.types.binary_values import (
    Fields,
    Read,
    binary_reader,
    numbers_at,
    texts,
    tids,
    transactions,
)
from mirrorlake.sources.postgresql.types.values import ColumnDecoder
from mirrorlake.sources.table import SourceTable

VERSION = pa.schema([("ctid", pa.int64()), ("xmin", pa.int64())])
"""What tells a row from every other in a heap, and from itself after a change: its place, and the
transaction that wrote it there. A place has the number of the page above 16 bits for that of the
row in it."""

_COUNT, _SIZE = 2, 4
"""Bytes of the number of fields, and of the size of a field."""

_BUG = "This is a bug. Report it with the types of the columns."


@dataclass(frozen=True, slots=True)
class CopiedColumn:
    """A column of a COPY: what is selected for it, and what reads its values."""

    name: str
    selected: sql.Composable
    read: Read


VERSION_COLUMNS = (
    CopiedColumn("ctid", sql.Identifier("ctid"), tids),
    CopiedColumn("xmin", sql.Identifier("xmin"), transactions),
)


def columns_of(types: Sequence[int], decoders: Sequence[ColumnDecoder]) -> list[CopiedColumn]:
    """The columns of a table. types: their oids, as a query that selects them describes them."""
    return [_column(oid, decoder) for oid, decoder in zip(types, decoders, strict=True)]


def _column(oid: int, decoder: ColumnDecoder) -> CopiedColumn:
    name = sql.Identifier(decoder.column)
    if read := binary_reader(oid, decoder):
        return CopiedColumn(decoder.column, name, read)
    # Not a cast, which may give another text than the type's output function; and a composite of
    # nothing but NULL `is null`.
    as_text = sql.SQL("case pg_catalog.num_nulls({0}) when 0 then pg_catalog.concat({0}) end")
    return CopiedColumn(
        decoder.column, as_text.format(name), lambda fields: decoder.decode(texts(fields))
    )


def tid_text(tid: int) -> str:
    """A value of `tid`, as in `VERSION`, as PostgreSQL writes it."""
    return f"({tid >> 16},{tid & 0xFFFF})"


def rows_of(
    block: CopiedBlock, table: SourceTable, columns: Sequence[CopiedColumn]
) -> pa.RecordBatch:
    """The rows of a block, with these columns. Raises BadValue."""
    content, ends = block.content, block.ends
    at, found = block.begins + _COUNT, list[pa.Array]()
    if (at > ends).any() or (numbers_at(content, ">i2", block.begins) != len(columns)).any():
        raise _is_bug(f"a row does not have {len(columns)} fields", table)
    for column in columns:
        if (at + _SIZE > ends).any():
            raise _is_bug("a row ends before its last field", table)
        sent = numbers_at(content, ">i4", at).astype(np.int64)
        begin, size, is_null = at + _SIZE, sent, None
        if sent.min() < 0:
            is_null, size = sent < 0, np.maximum(sent, 0)
        at = begin + size
        if (at > ends).any():
            raise _is_bug("a field ends behind its row", table)
        try:
            found.append(column.read(Fields(content, begin, size, is_null)))
        except ValueError as error:  # Arrow's errors, and those of binascii, are such
            raise _is_bug(f"{column.name}: {error}", table) from error
    if (at != ends).any():
        raise _is_bug("a row has more than its fields", table)
    return pa.RecordBatch.from_arrays(found, names=[column.name for column in columns])


def versioned(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows without the versions before them, and those."""
    names = rows.schema.names
    count = len(VERSION.names)
    return (
        pa.RecordBatch.from_arrays(rows.columns[count:], names=names[count:]),
        pa.RecordBatch.from_arrays(rows.columns[:count], schema=VERSION),
    )


def _is_bug(what: str, table: SourceTable) -> BadValue:
    return BadValue(f"a value does not fit its column: {what}", table=str(table.table), hint=_BUG)
