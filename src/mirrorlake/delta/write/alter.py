"""Rewrites files of a table after its columns were altered.

As in `rewrite`, nothing here commits. Rows whose values change are updates in the change feed;
other rows are not in it. The caller decides by the number of changed rows whether the commit is a
data change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.rewrite import Action, change_types, write_changes, write_data_files
from mirrorlake.model.arrow import arrow_schema, contiguous
from mirrorlake.model.types import is_wider


@dataclass(frozen=True, slots=True)
class ColumnAssignment:
    """The new values of the columns of a table. before, after: its schemas; copied, filled: as in
    `Alteration`; converted, widened: as in `AlterColumns`."""

    before: TableSchema
    after: TableSchema
    copied: Mapping[str, str]
    filled: pa.RecordBatch | None
    converted: Collection[str] = ()
    widened: Collection[str] = ()

    @property
    def retypes(self) -> bool:
        """Whether a column gets another type in all files. Dropped columns stay in the files."""
        before = self.before.schema
        return any(
            before[column.name].type != column.type and column.name not in self.widened
            for column in self.after.schema
        )

    def images(self, rows: pa.Table) -> pa.Table:
        """The before images of rows, with the columns of `after`. A column whose new type cannot
        represent all former values is NULL."""
        columns = []
        for column, field in zip(self.after.schema, arrow_schema(self.after.schema), strict=True):
            former = self.before.schema[column.name].type
            if column.type == former or is_wider(column.type, former):
                columns.append(rows[column.name].cast(field.type))
            else:
                columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
        return pa.table(columns, schema=arrow_schema(self.after.schema))

    def rows(self, rows: pa.Table) -> pa.Table:
        """The altered rows. Raises ArrowInvalid for a value that does not fit its column."""
        columns = []
        for field in arrow_schema(self.after.schema):
            if self.filled is not None and field.name in self.filled.schema.names:
                value = self.filled.column(field.name)[0].cast(field.type)
                columns.append(pa.chunked_array([pa.repeat(value, rows.num_rows)], field.type))
            else:
                values = rows[self.copied.get(field.name, field.name)]
                fits = _converted if field.name in self.converted else pa.ChunkedArray.cast
                columns.append(fits(values, field.type))
        return pa.table(columns, schema=arrow_schema(self.after.schema))

    def changed(self, before: pa.Table, after: pa.Table) -> pa.Array:
        """Whether each row has a changed value; bool. Both tables have the types of `after`."""
        filled = () if self.filled is None else self.filled.schema.names
        changed = pa.repeat(pa.scalar(False), after.num_rows)
        for name in {*self.copied, *filled, *self.converted}:
            differs = _differs(contiguous(before[name]), contiguous(after[name]))
            changed = pc.or_(changed, differs)
        return changed


def alter(
    table: Path, add: Mapping[str, Any], assigned: ColumnAssignment, key: Sequence[str]
) -> tuple[list[Action], int]:
    """Rewrite the live rows of a file. Returns the actions and the number of changed rows; no
    actions if the file need not be rewritten."""
    rows = live_rows(table, add, assigned.before)
    before, after = assigned.images(rows), assigned.rows(rows)
    changed = assigned.changed(before, after)
    count = int(pc.sum(changed).as_py() or 0)
    if not (count or assigned.retypes):
        return [], 0
    actions = write_data_files(table, assigned.after, after, list(key), data_change=False)
    actions.append({"remove": data_files.removed(add, data_change=False)})
    if count:
        images = [before.filter(changed), after.filter(changed)]
        which = pa.repeat(pa.scalar(True), count).to_numpy(zero_copy_only=False)
        of_each = [
            change_types(which, "update_preimage", "update_postimage"),
            change_types(~which, "update_preimage", "update_postimage"),
        ]
        actions += write_changes(
            table, pa.concat_tables(images), pa.chunked_array(of_each), assigned.after
        )
    return actions, count


def _converted(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert values to another type; all NULL if left cannot be converted."""
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.chunked_array([pa.nulls(len(values), kind)])


def _differs(left: pa.Array, right: pa.Array) -> pa.Array:
    """Whether two values differ; bool. NaN equals NaN, -0.0 differs from 0.0."""
    if pa.types.is_floating(left.type):
        bits = pa.int32() if left.type == pa.float32() else pa.int64()
        left, right = left.view(bits), right.view(bits)
    known = pc.fill_null(pc.not_equal(left, right), False)
    return pc.or_(known, pc.xor(left.is_null(), right.is_null()))
