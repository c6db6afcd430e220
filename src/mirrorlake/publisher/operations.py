"""Row markers: the operation of each row, and the rows of a changed key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import (
    IncompleteRow,
    KeyColumnMissing,
    KeyedChangeWithoutKey,
    UnknownMarker,
    UsageError,
)
from mirrorlake.model.arrow import contiguous, decoded
from mirrorlake.model.change import MARKER_COLUMN, Marker
from mirrorlake.publisher.input.rows import RowBlock


class Operation(StrEnum):
    """The operation of the rows of a batch. LOAD is for the initial rows of a table."""

    LOAD = "load"
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    UPSERT = "upsert"

    @property
    def marker(self) -> Marker:
        return Marker.INSERT if self is Operation.LOAD else Marker[self.name]


_WORDS = {
    **{word: marker for marker in Marker for word in (marker.name.lower(), str(int(marker)))},
    "i": Marker.INSERT,
    "u": Marker.UPDATE,
    "d": Marker.DELETE,
}
"""The values of a column of operations, in any case: the word, its first letter, or the marker."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """How the rows of a batch are interpreted.

    operation: of all rows, unless `column` names the column with the operation of each row;
    previous: for changed keys, maps a key column to the column with its previous value.
    """

    operation: Operation = Operation.LOAD
    column: str | None = None
    previous: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_load(self) -> bool:
        return self.column is None and self.operation is Operation.LOAD

    def taken(self) -> set[str]:
        """The columns that describe the row and are not data."""
        return {*self.previous.values(), *([self.column] if self.column else [])}


def markers_of(block: RowBlock, meaning: Meaning, *, table: str) -> pa.Array:
    """The marker of each row, int32. Raises UnknownMarker, KeyColumnMissing for a missing
    column."""
    if meaning.column is None:
        marker = pa.scalar(int(meaning.operation.marker), pa.int32())
        return pa.repeat(marker, block.rows.num_rows)
    if meaning.column not in block.rows.column_names:
        raise UsageError(
            f"there is no column {meaning.column} to read the operation from",
            where=f"table {table}",
            hint="Specify what the rows are: initial rows, one operation for all of them, or the "
            "column that contains the operation.",
        )
    values = contiguous(block.rows[meaning.column])
    if pa.types.is_dictionary(values.type):
        values = decoded(values)
    words = pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(pa.string())))
    indexes = pc.index_in(words, value_set=pa.array(list(_WORDS)))
    found = pa.array([int(marker) for marker in _WORDS.values()], pa.int32()).take(indexes)
    if found.null_count:
        row = pc.index(found.is_null(), True).as_py()
        value = values[row].as_py()
        raise UnknownMarker(
            f"{'NULL' if value is None else repr(value)} is not an operation",
            table=table,
            row=block.before + row + 1,
            column=meaning.column,
            value=None if value is None else str(value),
            hint="Use insert, update, delete or upsert, or 0, 1, 2 or 4.",
        )
    return found


def check_rows(
    block: RowBlock, markers: pa.Array, key: Sequence[str], absent: Sequence[str], *, table: str
) -> None:
    """Check that each row has what its operation needs.

    absent: columns of the table that these rows do not have. Raises KeyedChangeWithoutKey (LZ-043),
    KeyColumnMissing, and IncompleteRow for an update without a column (LZ-100, LZ-101).
    """
    kinds = markers.to_numpy()
    if not key and (kinds != Marker.INSERT).any():
        raise KeyedChangeWithoutKey(
            "an update, delete or upsert finds its row by the key, but the table has no key",
            table=table,
            row=block.before + int((kinds != Marker.INSERT).argmax()) + 1,
            hint="Name the key columns; they can be added at any time (LZ-035).",
        )
    for name in key:
        if name not in block.rows.column_names:
            raise KeyColumnMissing(
                f"there is no column {name}, which is part of the key",
                table=table,
                column=name,
                hint=f"The columns are: {', '.join(block.rows.column_names)}.",
            )
    full = np.isin(kinds, [Marker.UPDATE, Marker.UPSERT])
    for index, name in block.lacking.items():
        if full[index] or name in key:
            raise _incomplete(table, block.before + index + 1, name)
    if absent and full.any():
        raise _incomplete(table, block.before + int(full.argmax()) + 1, absent[0])


def with_deletes(
    data: pa.Table, markers: pa.Array, key: Sequence[str], previous: Mapping[str, pa.Array]
) -> tuple[pa.Table, pa.Array]:
    """Write each changed key as a delete of the previous key and an insert of the row (LZ-102).

    previous: maps a key column to its previous values in the column's type, NULL if it did not
    change. The delete is directly before its insert, and has only the key columns (LZ-103).
    """
    earlier = {
        name: pc.coalesce(values, contiguous(data[name])) for name, values in previous.items()
    }
    changed = np.zeros(data.num_rows, bool)
    for name, values in earlier.items():
        differs = pc.fill_null(pc.not_equal(values, contiguous(data[name])), True)
        given = previous[name].is_valid()
        changed |= pc.and_(given, differs).to_numpy(zero_copy_only=False)
    changed &= np.isin(markers.to_numpy(), [Marker.UPDATE, Marker.UPSERT])
    if not changed.any():
        return data, markers
    indexes = np.repeat(np.arange(data.num_rows), 1 + changed)
    deletes = np.append(indexes[1:] == indexes[:-1], [False])  # the first row of each pair
    kinds = markers.to_numpy()[indexes].copy()
    kinds[np.flatnonzero(deletes)] = Marker.DELETE
    kinds[np.flatnonzero(deletes) + 1] = Marker.INSERT
    where, mask = pa.array(indexes), pa.array(deletes)
    columns = []
    for name, column in zip(data.column_names, data.columns, strict=True):
        values = contiguous(column).take(where)
        if name in earlier:
            values = pc.if_else(mask, earlier[name].take(where), values)
        elif name not in key:
            values = pc.if_else(mask, pa.scalar(None, values.type), values)
        columns.append(values)
    return pa.table(columns, schema=data.schema), pa.array(kinds, pa.int32())


def marked(data: pa.Table, markers: pa.Array, *, first: bool) -> pa.Table:
    """The rows with their marker column, as the first (LZ-070) or the last column (LZ-072)."""
    index = 0 if first else data.num_columns
    return data.add_column(index, pa.field(MARKER_COLUMN, pa.int32()), markers)


def _incomplete(table: str, row: int, column: str) -> IncompleteRow:
    return IncompleteRow(
        "an update needs the full row, but a column is missing",
        table=table,
        row=row,
        column=column,
        hint="Pass every column, with NULL where the value is NULL; or drop the table and load "
        "it again without the column (LZ-216).",
    )
