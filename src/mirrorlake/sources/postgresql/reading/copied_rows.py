"""The output of a COPY as Arrow.

Rows come as CSV, whose unquoted empty field is NULL and whose quoted one is the empty text; Arrow
parses whole messages at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.csv

from mirrorlake.errors import BadValue
from mirrorlake.model.arrow import arrow_type, contiguous
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.values import ColumnDecoder
from mirrorlake.sources.table import SourceTable

VERSION = pa.schema([("ctid", pa.string()), ("xmin", pa.int64())])
"""What tells a row from every other in a heap, and from itself after a change: its place, and the
transaction that wrote it there."""

Block = bytes | memoryview
"""Of `copied`: rows, each behind a field that says nothing."""

_NAMELESS = ""
"""That field; no column can have this name."""


def rows_of(block: Block, table: SourceTable, decoders: Sequence[ColumnDecoder]) -> pa.RecordBatch:
    """Rows with the columns of a table. Raises BadValue."""
    # Numbers are read on the way; everything else is a text that its decoder understands.
    return _decoded(_parsed(block, table, _types(table, decoders)), table, decoders)


def versioned_rows_of(
    block: Block, table: SourceTable, decoders: Sequence[ColumnDecoder]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Rows that come behind their versions, and those. Raises BadValue."""
    types = dict(zip(VERSION.names, VERSION.types, strict=True)) | _types(table, decoders)
    found = _parsed(block, table, types)
    return _decoded(found, table, decoders), _versions(found)


def versions_of(block: Block, table: SourceTable) -> pa.RecordBatch:
    """Versions of rows, without those."""
    types = dict(zip(VERSION.names, VERSION.types, strict=True))
    return _versions(_parsed(block, table, types))


def _types(table: SourceTable, decoders: Sequence[ColumnDecoder]) -> dict[str, pa.DataType]:
    direct = {d.column: arrow_type(d.type.type) for d in decoders if _is_direct(d)}
    return {name: direct.get(name, pa.string()) for name in table.schema.names}


def _is_direct(decoder: ColumnDecoder) -> bool:
    number = decoder.type.form is Form.NUMBER
    return number and decoder.type.type.name not in {"float", "double"}


def _decoded(
    rows: pa.Table, table: SourceTable, decoders: Sequence[ColumnDecoder]
) -> pa.RecordBatch:
    columns = [
        contiguous(rows[d.column]) if _is_direct(d) else d.decode(contiguous(rows[d.column]))
        for d in decoders
    ]
    return pa.RecordBatch.from_arrays(columns, names=table.schema.names)


def _versions(rows: pa.Table) -> pa.RecordBatch:
    columns = [contiguous(rows[name]) for name in VERSION.names]
    return pa.RecordBatch.from_arrays(columns, schema=VERSION)


def _parsed(block: Block, table: SourceTable, types: Mapping[str, pa.DataType]) -> pa.Table:
    """The fields as columns of these types, in this order."""
    try:
        return pyarrow.csv.read_csv(
            pa.BufferReader(block),
            read_options=pyarrow.csv.ReadOptions(
                column_names=[_NAMELESS, *types], block_size=len(block) + 1, use_threads=False
            ),
            parse_options=pyarrow.csv.ParseOptions(
                newlines_in_values=True, ignore_empty_lines=False
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise BadValue(
            f"a value does not fit its column: {error}",
            table=str(table.table),
            hint="This is a bug. Report it with the types of the columns.",
        ) from error
