"""Checks whether the rows of one schema fit into another, with renamed columns and wider types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column
from mirrorlake.model.types import is_wider


def fits(old: TableSchema, new: TableSchema) -> bool:
    """Whether `new` only adds columns to `old`: rows of it are read unchanged, with NULL for new
    columns."""
    return unfit_column(old, new) is None


def unfit_column(old: TableSchema, new: TableSchema) -> str | None:
    """The first column of `old` that `new` lacks or has changed; None when there is none."""
    for column, physical in zip(old.schema, old.physical, strict=True):
        later = _at(new, physical)
        if later is None or (later.name, later.type) != (column.name, column.type):
            return column.name
        if column.nullable and not later.nullable:
            return column.name
    return None


def reused_name(old: TableSchema, new: TableSchema) -> str | None:
    """The first column of `old` that has another name in `new`, or whose name is that of another
    column there; None when there is none."""
    names = dict(zip(new.schema.names, new.physical, strict=True))
    for column, physical in zip(old.schema, old.physical, strict=True):
        later = _at(new, physical)
        is_renamed = later is not None and later.name != column.name
        if is_renamed or names.get(column.name, physical) != physical:
            return column.name
    return None


def names_in(schema: TableSchema, columns: Sequence[str], of: TableSchema) -> tuple[str, ...]:
    """The names that columns of a schema have in another one, where they may have been renamed; a
    column that one of the two lacks keeps its name."""
    physical = dict(zip(of.schema.names, of.physical, strict=True))
    names = dict(zip(schema.physical, schema.schema.names, strict=True))
    return tuple(names.get(physical.get(name, ""), name) for name in columns)


def share_files(old: TableSchema, new: TableSchema) -> bool:
    """Whether `fits`, and files contain the same columns: the values of partition columns are
    in the log."""
    return fits(old, new) and old.partitions == new.partitions


def obstacle(old: TableSchema, new: TableSchema) -> str | None:
    """A column of `old` whose values do not fit in `new`; None when there is none."""
    for column, physical in zip(old.schema, old.physical, strict=True):
        later = _at(new, physical)
        if later is None or (later.type != column.type and not is_wider(later.type, column.type)):
            return column.name
    return None


def conform(rows: pa.Table, old: TableSchema, new: TableSchema) -> pa.Table:
    """Rows with the columns of `old`, and others after them, with the columns of `new`."""
    target = arrow_schema(new.schema)
    names = dict(zip(old.physical, old.schema.names, strict=True))
    columns = [
        rows[names[physical]].cast(field.type)
        if physical in names
        else pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        for physical, field in zip(new.physical, target, strict=True)
    ]
    more = rows.column_names[len(old.physical) :]
    fields = [*target, *(rows.schema.field(name) for name in more)]
    return pa.table([*columns, *(rows[name] for name in more)], schema=pa.schema(fields))


def _at(schema: TableSchema, physical: str) -> Column | None:
    found = zip(schema.schema, schema.physical, strict=True)
    return next((column for column, name in found if name == physical), None)
