"""Columns of files against columns of the table (section 10 of the specification)."""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.errors import KeyColumnMissing, SchemaMergeFailure, UnsupportedColumn
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.model.change import FEED_COLUMNS
from mirrorlake.model.table import Column, Schema


def merge(table: str, known: Schema, found: Schema, file: str) -> Schema:
    """The table's columns after this file: new ones follow at the end (LZ-227).

    Raises SchemaMergeFailure for another type of a known column (LZ-221 to LZ-224), and
    UnsupportedColumn for a name that a table of ours cannot have.
    """
    matched = match_columns(known.names, found.names)
    for name, in_file in matched.items():
        here, there = known[name].type, found[in_file].type
        if here != there:
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
    return Schema.of([*known, *new])


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
