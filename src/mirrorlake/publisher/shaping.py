"""Converts rows of the caller to rows of a data file: names, operations, types, markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mirrorlake.errors import (
    KeyColumnMissing,
    MisspeltMarker,
    SchemaMergeFailure,
    UnsupportedColumn,
    UsageError,
)
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import FEED_COLUMNS, MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.types import DataType
from mirrorlake.publisher.describe import Description, Layout
from mirrorlake.publisher.encoding.types import conformed, landable, landed_type, text_type
from mirrorlake.publisher.input.rows import RowBlock
from mirrorlake.publisher.operations import (
    Meaning,
    check_rows,
    marked,
    markers_of,
    with_deletes,
)


class Shaper:
    """Shapes the blocks of one batch.

    columns: the types of the table's columns as far as they are known; grows with new columns.
    types: types that the caller specifies for columns that the table does not have yet.
    """

    def __init__(
        self,
        description: Description,
        columns: Mapping[str, DataType],
        types: Mapping[str, DataType],
        meaning: Meaning,
    ) -> None:
        self.columns = dict(columns)
        self._types, self._meaning, self._description = types, meaning, description
        self._table = str(description.table)
        self._fixed = bool(columns) and description.text is not None

    def shape(self, blocks: Iterator[RowBlock]) -> Iterator[pa.Table]:
        """The rows of each block, with their marker if one is written.

        Raises UsageError or TableError, always before any row of the block is returned.
        """
        for block in blocks:
            yield self._shaped(block)

    def _shaped(self, block: RowBlock) -> pa.Table:
        meaning = self._meaning_of(block)
        block = replace(block, rows=self._named(block.rows, meaning))
        markers = markers_of(block, meaning, table=self._table)
        taken = meaning.taken() - {*self._description.key}
        names = [name for name in block.rows.column_names if name not in taken]
        absent = [name for name in self.columns if name not in names]
        check_rows(block, markers, self._description.key, absent, table=self._table)
        data = self._typed(block, names)
        if meaning.previous:
            earlier = self._earlier(block, meaning)
            data, markers = with_deletes(data, markers, self._description.key, earlier)
        if not self._has_markers:
            return data
        return marked(data, markers, first=self._description.layout is Layout.V1)

    @property
    def _has_markers(self) -> bool:
        """Initial Parquet has no markers, unless the v1 layout is requested (LZ-093, LZ-073)."""
        described = self._description
        return (
            not self._meaning.is_load or described.text is not None or described.layout is Layout.V1
        )

    def _meaning_of(self, block: RowBlock) -> Meaning:
        names, meaning = block.rows.column_names, self._meaning
        for name in names:
            if name != MARKER_COLUMN and name.casefold() == MARKER_COLUMN.casefold():
                raise MisspeltMarker(
                    f"column {name} must be named {MARKER_COLUMN}",
                    table=self._table,
                    column=name,
                    hint="Rename it (LZ-086).",
                )
        if MARKER_COLUMN not in names or meaning.column == MARKER_COLUMN:
            return meaning
        if meaning.is_load or meaning.column:
            raise UsageError(
                f"the rows have a column {MARKER_COLUMN}, but the operation is also given in "
                "another way",
                where=f"table {self._table}",
                hint="Publish them as changes, with the operation in this column only.",
            )
        return replace(meaning, column=MARKER_COLUMN)

    def _named(self, rows: pa.Table, meaning: Meaning) -> pa.Table:
        """The rows under the names that the table already has (LZ-156)."""
        taken = meaning.taken()
        folded: dict[str, str] = {}
        for name in rows.column_names:
            if name in {UNCHANGED_COLUMN, *FEED_COLUMNS} or not name:
                raise self._unsupported(name, "its name is reserved", "Rename it.")
            if (alike := folded.get(name.casefold())) is not None:
                what = f"columns {alike} and {name} have the same name, apart from case (LZ-156)"
                raise self._unsupported(name, what, "Rename one of them.")
            folded[name.casefold()] = name
        names = list(dict.fromkeys([*self._description.key, *self.columns]))
        found = [name for name in rows.column_names if name not in taken]
        known = {there: name for name, there in match_columns(names, found).items()}
        return rows.rename_columns([known.get(name, name) for name in rows.column_names])

    def _typed(self, block: RowBlock, names: list[str]) -> pa.Table:
        """The data columns in the types of the table; columns that only the table has are NULL."""
        rows = block.rows
        columns: dict[str, pa.Array] = {}
        for name in names:
            values = landable(rows[name], table=self._table, column=name)
            if (kind := self._type_of(name, values.type)) is not None:
                if self._description.text and pa.types.is_decimal(values.type):
                    values = values.cast(pa.string())
                columns[name] = conformed(
                    values, kind, table=self._table, column=name, row=block.before
                )
        for name in self._description.key:
            if name not in columns:
                raise KeyColumnMissing(
                    f"column {name} contains only NULL, so its type is not known",
                    table=self._table,
                    column=name,
                    hint="Specify its type.",
                )
        if not columns and not self.columns:
            raise self._unsupported("", "no column has a known type", "Specify the types.")
        schema = pa.schema([pa.field(name, arrow_type(k)) for name, k in self.columns.items()])
        missing = {f.name: pa.nulls(rows.num_rows, f.type) for f in schema if f.name not in columns}
        return pa.table([(columns | missing)[name] for name in schema.names], schema=schema)

    def _type_of(self, name: str, found: pa.DataType) -> DataType | None:
        """The type of a column in the table; None if it is not known."""
        if name in self.columns:
            return self.columns[name]
        if self._fixed:
            raise SchemaMergeFailure(
                "columns cannot be added to a text table that declares its columns (LZ-168)",
                table=self._table,
                column=name,
                hint="Drop the table and load it again with the column.",
            )
        if name in self._types:
            kind = self._types[name]
        elif pa.types.is_null(found):
            return None
        else:
            kind = landed_type(found, table=self._table, column=name)
        self.columns[name] = text_type(kind) if self._description.text else kind
        return self.columns[name]

    def _earlier(self, block: RowBlock, meaning: Meaning) -> dict[str, pa.Array]:
        earlier = {}
        for name, source in meaning.previous.items():
            if name not in self._description.key or source not in block.rows.column_names:
                raise UsageError(
                    f"{source} cannot hold the previous value of {name}: both must be columns, "
                    f"and {name} part of the key",
                    where=f"table {self._table}",
                    hint=f"The key is {', '.join(self._description.key)}.",
                )
            values = landable(block.rows[source], table=self._table, column=source)
            kind = self.columns[name]
            earlier[name] = conformed(
                values, kind, table=self._table, column=source, row=block.before
            )
        return earlier

    def _unsupported(self, column: str, what: str, hint: str) -> UnsupportedColumn:
        return UnsupportedColumn(what, table=self._table, column=column, hint=hint)


def operations_of(rows: pa.Table) -> Counter[str]:
    """The number of rows per operation; a row without a marker is an insert."""
    if MARKER_COLUMN not in rows.column_names:
        return Counter({"insert": rows.num_rows})
    kinds, counts = np.unique(rows[MARKER_COLUMN].to_numpy(), return_counts=True)
    named = {Marker(int(kind)).name.lower(): int(n) for kind, n in zip(kinds, counts, strict=True)}
    return Counter(named)
