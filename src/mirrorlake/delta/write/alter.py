"""Writes files of a table anew with what its columns have become.

As in `rewrite`, nothing here commits. Rows whose values have changed are told as updates, others
not at all; whoever commits decides by their number whether the files change any data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.rewrite import Action, kinds, told, written
from mirrorlake.model.arrow import arrow_schema, contiguous


@dataclass(frozen=True, slots=True)
class Assigned:
    """What the columns of a table become. before, after: its schemas; copied, filled: as in
    `Alteration`."""

    before: TableSchema
    after: TableSchema
    copied: Mapping[str, str]
    filled: pa.RecordBatch | None

    @property
    def widens(self) -> bool:
        return self.before.schema != self.after.schema

    def rows(self, rows: pa.Table) -> pa.Table:
        """Rows of the table as they are now. Raises ArrowInvalid for a value that does not fit."""
        columns = []
        for field in arrow_schema(self.after.schema):
            if self.filled is not None and field.name in self.filled.schema.names:
                value = self.filled.column(field.name)[0].cast(field.type)
                columns.append(pa.chunked_array([pa.repeat(value, rows.num_rows)], field.type))
            else:
                columns.append(rows[self.copied.get(field.name, field.name)].cast(field.type))
        return pa.table(columns, schema=arrow_schema(self.after.schema))

    def changed(self, before: pa.Table, after: pa.Table) -> pa.Array:
        """bool, of rows in the types of `after`: whether a value is another."""
        filled = () if self.filled is None else self.filled.schema.names
        changed = pa.repeat(pa.scalar(False), after.num_rows)
        for name in (*self.copied, *filled):
            differs = _differs(contiguous(before[name]), contiguous(after[name]))
            changed = pc.or_(changed, differs)
        return changed


def alter(
    table: Path, add: Mapping[str, Any], assigned: Assigned, key: Sequence[str]
) -> tuple[list[Action], int]:
    """Write the live rows of a file anew. Returns the actions, and how many rows have changed; no
    action for a file that can stay."""
    rows = live_rows(table, add, assigned.before)
    target = arrow_schema(assigned.after.schema)
    before = pa.table([rows[f.name].cast(f.type) for f in target], schema=target)
    after = assigned.rows(rows)
    changed = assigned.changed(before, after)
    count = int(pc.sum(changed).as_py() or 0)
    if not (count or assigned.widens):
        return [], 0
    actions = written(table, assigned.after, after, list(key), data_change=False)
    actions.append({"remove": data_files.removed(add, data_change=False)})
    if count:
        images = [before.filter(changed), after.filter(changed)]
        which = pa.repeat(pa.scalar(True), count).to_numpy(zero_copy_only=False)
        of_each = [
            kinds(which, "update_preimage", "update_postimage"),
            kinds(~which, "update_preimage", "update_postimage"),
        ]
        actions += told(table, pa.concat_tables(images), pa.chunked_array(of_each), assigned.after)
    return actions, count


def _differs(one: pa.Array, other: pa.Array) -> pa.Array:
    """bool: whether two values are not the same. A NaN is the same as itself, -0.0 is not 0.0."""
    if pa.types.is_floating(one.type):
        bits = pa.int32() if one.type == pa.float32() else pa.int64()
        one, other = one.view(bits), other.view(bits)
    known = pc.fill_null(pc.not_equal(one, other), False)
    return pc.or_(known, pc.xor(one.is_null(), other.is_null()))
