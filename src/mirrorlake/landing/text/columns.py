"""The columns of the table in a delimited text, by its header and the declared schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue, MisspeltMarker, UnsupportedColumn
from mirrorlake.landing.parquet.reader import check_names, markers, match_columns
from mirrorlake.landing.text.convert import Unconvertible, convert, expectation
from mirrorlake.landing.text.format import RESERVED, DeclaredColumn, TextFormat
from mirrorlake.landing.text.origin import Origin, shown
from mirrorlake.landing.text.records import Block
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.model.table import Column, Schema

_TEXT = "String"


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The origin of the values of a table's column.

    index: of the column in the file, None if it is missing; declared: the declared type of its
    texts; is_required: NULL is an error, in a key also for a delete (LZ-205); null: the text that
    means NULL.
    """

    column: Column
    index: int | None
    declared: DeclaredColumn
    is_required: bool
    is_key: bool
    null: str
    origin: Origin

    def values(self, block: Block, changes: pa.Array) -> pa.Array:
        """The values of a block's rows. changes: which rows are not deletes."""
        if self.index is None:
            values = pa.nulls(block.rows, arrow_type(self.column.type))
        else:
            values = self._converted(block)
        if self.is_required and values.null_count:
            self._check(block, values, changes)
        return values

    def _converted(self, block: Block) -> pa.Array:
        assert self.index is not None
        texts = block.column(self.index)
        is_text = self.declared.type == _TEXT
        texts = _with_nulls(texts, block.quoted(self.index), self.null, is_text=is_text)
        try:
            return convert(texts, self.declared)
        except Unconvertible as error:
            value = texts[error.index].as_py()
            raise self._bad_value(
                f"{shown(value)!r} is {expectation(self.declared)}", block, error.index, value
            ) from None

    def _check(self, block: Block, values: pa.Array, changes: pa.Array) -> None:
        missing = values.is_null()
        wrong = missing if self.is_key else pc.and_(missing, changes)
        row = pc.index(wrong, True).as_py()
        if row >= 0:
            what = "the file does not have the column" if self.index is None else "it is NULL"
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
    """The texts, with NULL where they mean it (LZ-203, LZ-204)."""
    empty = pc.equal(pc.binary_length(texts), 0)
    if null:
        gone = pc.equal(texts, null)
        gone = gone if is_text else pc.or_(gone, empty)
    else:
        gone = pc.and_(empty, pa.array(~quoted)) if is_text else empty
    return pc.if_else(gone, None, texts) if pc.any(gone).as_py() else texts


def markers_of(block: Block, index: int | None, default: Marker, origin: Origin) -> pa.Array:
    if index is None:
        return pa.repeat(pa.scalar(int(default), pa.int8()), block.rows)
    return markers(block.column(index), table=origin.table, file=origin.file, before=block.first)


def sources_of(
    header: list[str], schema: Schema, text: TextFormat, key: Sequence[str], origin: Origin
) -> list[ColumnSource]:
    columns = columns_of(header, text, origin)
    declared = {column.name: column for column in columns}
    of_table = match_columns(schema.names, list(declared))
    of_file = match_columns(list(declared), data_names(header))
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
            ColumnSource(
                column=column,
                index=None if name is None else header.index(name),
                declared=found or DeclaredColumn(column.name, _TEXT),
                is_required=required,
                is_key=is_key,
                null=text.null or "",
                origin=origin,
            )
        )
    return sources


def columns_of(header: list[str], text: TextFormat, origin: Origin) -> list[DeclaredColumn]:
    """The declared columns without the marker (LZ-197), or those of the header as texts.

    Raises BadFile if the first row contains none of the declared columns: it is not a header
    (LZ-198).
    """
    _check_header(header, origin)
    unsupported = partial(UnsupportedColumn, table=origin.table, file=origin.file, row=0)
    if not data_names(header):
        raise unsupported(
            "the header names no column except the marker",
            hint="Write at least the key columns (LZ-103).",
        )
    if text.columns is not None:
        columns = [c for c in text.columns if c.name.casefold() not in RESERVED]
        if not match_columns([column.name for column in columns], data_names(header)):
            raise origin.bad_file(
                "its first row names none of the declared columns, so the header seems to be "
                "missing (LZ-159)",
                row=0,
                hint="Write the declared column names in the first row.",
            )
        return columns
    for index, name in enumerate(header):
        if not name:
            raise unsupported(
                f"column {index + 1} of the header has no name",
                hint="Name every column in the first row (LZ-159).",
            )
    return [DeclaredColumn(name, _TEXT) for name in data_names(header)]


def _check_header(header: list[str], origin: Origin) -> None:
    """Raises MisspeltMarker, and UnsupportedColumn for a repeated name (LZ-199), with row 0."""
    try:
        check_names(header, origin.table, origin.file)
    except (MisspeltMarker, UnsupportedColumn) as error:
        raise type(error)(
            f"{error.what}, in the header (LZ-199)",
            table=origin.table,
            file=origin.file,
            row=0,
            column=error.column,
            hint=error.hint,
        ) from None


def data_names(header: list[str]) -> list[str]:
    return [name for name in header if name != MARKER_COLUMN]
