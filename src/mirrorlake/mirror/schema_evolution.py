"""Columns of files against columns of the table (section 10 of the specification)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from mirrorlake.errors import KeyColumnMissing, SchemaMergeFailure, UnsupportedColumn
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import FEED_COLUMNS, Alteration
from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType, is_wider


def merge(
    table: str,
    known: Schema,
    found: Schema,
    file: str,
    *,
    widens: bool = False,
    grows: bool = True,
) -> Schema:
    """The table's columns after this file: new ones follow at the end (LZ-227).

    widens: the file is of our own capture, and may bring a wider type of a known column; grows:
    it may bring new columns. Raises SchemaMergeFailure for any other type (LZ-221 to LZ-224) or a
    column that may not come, and UnsupportedColumn for a name that a table of ours cannot have.
    """
    matched = match_columns(known.names, found.names)
    types: dict[str, DataType] = {}
    for name, in_file in matched.items():
        here, there = known[name].type, found[in_file].type
        if here != there and widens and is_wider(there, here):
            types[name] = there
        elif here != there:
            raise SchemaMergeFailure(
                f"Type mismatch for column '{name}'. Incoming type: '{there}', existing type: "
                f"'{here}'",
                table=table,
                file=file,
                column=name,
                hint=f"If the table is captured from a source, run `mirrorlake reset {table}` to "
                "reload it. In a landing zone that others fill, recreate the table folder "
                "with all data in the new type (LZ-220), or write the file in the existing "
                "type.",
            )
    taken = set(matched.values())
    new = [Column(c.name, c.type) for c in found if c.name not in taken]
    for column in new:
        _check_name(table, column.name, file)
    if new and not grows:
        raise SchemaMergeFailure(
            f"the file has a new column {new[0].name}, and mirror.schema_change says stop for "
            "column_added",
            table=table,
            file=file,
            column=new[0].name,
            hint="Set mirror.schema_change to evolve to add it, with NULL in earlier rows; or run "
            f"`mirrorlake reset {table}` to reload the table with it.",
        )
    known = Schema.of([replace(c, type=types.get(c.name, c.type)) for c in known])
    return Schema.of([*known, *new])


def alteration(
    step: AlterColumns, schema: Schema, known: Schema, wanted: Alteration | None
) -> AlterColumns | None:
    """The step with what has to be done to the columns of `known`, for which `schema` follows; None
    when that is nothing.

    wanted: what the first file tells; what is new in `schema` need not be filled with NULL.
    Raises SchemaMergeFailure when a column that it tells of is not there.
    """
    copied, filled = dict[str, str](), dict[str, pa.Array]()
    if wanted is not None:
        names = {*wanted.copied.values(), *wanted.columns}
        every = [(name, match_columns(schema.names, [name])) for name in sorted(names)]
        found = {name: column for name, matched in every for column in matched}
        if absent := sorted(names - found.keys()):
            raise SchemaMergeFailure(
                f"the file tells what became of column {absent[0]}, but there is no such column",
                table=str(step.table),
                column=absent[0],
                hint=f"Run `mirrorlake reset {step.table}` to reload it.",
            )
        pairs = [(found[name], found[source]) for name, source in wanted.copied.items()]
        copied = {name: source for name, source in pairs if name != source}
        values = wanted.filled.to_pydict() if wanted.filled is not None else {}
        filled = {
            found[name]: wanted.filled.column(name).cast(arrow_type(schema[found[name]].type))
            for name, (value,) in values.items()
            if wanted.filled is not None and (value is not None or found[name] in known)
        }
    types = {c.name: schema[c.name].type for c in known if schema[c.name].type != c.type}
    if not (copied or filled or types):
        return None
    rows = pa.RecordBatch.from_pydict(filled) if filled else None
    return replace(step, copied=copied, filled=rows, types=types)


def key_columns(table: str, key: Sequence[str], schema: Schema, file: str) -> tuple[str, ...]:
    """The key in the names of the table's columns (LZ-046). Raises KeyColumnMissing."""
    matched = match_columns(schema.names, list(key))
    names = {wanted: name for name, wanted in matched.items()}
    for wanted in key:
        if wanted not in names:
            raise KeyColumnMissing(
                f"keyColumns contains {wanted}, but there is no such column",
                table=table,
                file=file,
                column=wanted,
                hint="Correct keyColumns in _metadata.json, or write the column.",
            )
    return tuple(names[wanted] for wanted in key)


def needs_mapping(schema: Schema) -> bool:
    """Whether a column name needs Delta's column mapping (LZ-157)."""
    return any(set(column.name) & set(" ,;{}()\n\t=") for column in schema)


def _check_name(table: str, name: str, file: str) -> None:
    if name.casefold() in FEED_COLUMNS:
        what = f"{name} is the name of a column of the change feed"
    elif name.startswith("__") or not name:
        what = f"column names that begin with two underscores are reserved: {name}"
    else:
        return
    hint = "Rename the column."
    raise UnsupportedColumn(what, table=table, file=file, column=name, hint=hint)
