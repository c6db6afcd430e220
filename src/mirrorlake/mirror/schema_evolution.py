"""Schema evolution: the columns of files and of the table (section 10 of the specification)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from mirrorlake.errors import KeyColumnMissing, SchemaMergeFailure, UnsupportedColumn
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import FEED_COLUMNS, METADATA_COLUMNS, ROW_DELETED, Alteration
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
    ignores: bool = False,
    removes: bool = False,
    altered: Alteration | None = None,
    has_feed: bool = True,
) -> Schema:
    """The columns of the table after a file; new columns are added at the end (LZ-227).

    widens: the file is from our capture and may have wider types for existing columns; grows: it
    may have new columns; ignores: of these, only columns that were renamed are added; removes:
    columns that are gone in the source are removed; altered: its alteration, whose columns may get
    any type; has_feed: the table has a change feed, whose column names are reserved. Raises
    SchemaMergeFailure for another change of a type (LZ-221 to LZ-224) or a column that is not
    allowed, and UnsupportedColumn for a name that our tables cannot have.
    """
    altered = altered or Alteration()
    matched = match_columns(known.names, found.names)
    retyped = match_columns(known.names, list(altered.columns))
    types: dict[str, DataType] = {}
    for name, in_file in matched.items():
        here, there = known[name].type, found[in_file].type
        if here != there and (name in retyped or (widens and is_wider(there, here))):
            types[name] = there
        elif here != there:
            raise SchemaMergeFailure(
                f"Type mismatch for column '{name}'. Incoming type: '{there}', existing type: "
                f"'{here}'",
                table=table,
                file=file,
                column=name,
                hint=f"If the table is captured from a source, run `mirrorlake reset {table}` to "
                "reload it. In a landing zone of another publisher, recreate the table folder "
                "with all data in the new type (LZ-220), or write the file in the existing "
                "type.",
            )
    taken = set(matched.values())
    new = [Column(c.name, c.type) for c in found if c.name not in taken]
    if ignores:
        asked = {*METADATA_COLUMNS, *_renamed(known, altered)}
        new = [column for column in new if column.name in asked]
    for column in new:
        check_name(table, column.name, file, has_feed=has_feed)
    added = [column for column in new if column.name not in METADATA_COLUMNS]
    if added and not grows:
        raise SchemaMergeFailure(
            f"the file has a new column {added[0].name}, and mirror.schema_change says stop for "
            "column_added",
            table=table,
            file=file,
            column=added[0].name,
            hint="Set mirror.schema_change to evolve to add it, with NULL in earlier rows; or run "
            f"`mirrorlake reset {table}` to reload the table with it.",
        )
    new += [
        Column(saved, known[source].type)
        for source, saved in _saved(known, altered).items()
        if saved not in known
    ]
    gone = {*match_columns(known.names, list(altered.gone))} if removes else set[str]()
    left = [c for c in known if c.name not in {*altered.dropped, *(gone - matched.keys())}]
    return Schema.of([*(replace(c, type=types.get(c.name, c.type)) for c in left), *new])


def _renamed(known: Schema, altered: Alteration) -> set[str]:
    """The new names of columns of the table."""
    sources = {*match_columns(known.names, list(altered.copied.values())).values()}
    return {name for name, source in altered.copied.items() if source in sources}


def _saved(known: Schema, altered: Alteration) -> dict[str, str]:
    """The column in which the former values of a retyped column are kept, by the name of the
    latter in the table."""
    kept = {altered.copied.get(name, name): saved for name, saved in altered.saved.items()}
    return {name: kept[found] for name, found in match_columns(known.names, list(kept)).items()}


def check_not_deleted(table: str, found: Schema, file: str) -> None:
    """Raise UnsupportedColumn if a file of a table with soft deletes contains their column."""
    for name in match_columns([ROW_DELETED], found.names).values():
        raise UnsupportedColumn(
            f"{name} is the column by which soft deletes mark a row",
            table=table,
            file=file,
            column=name,
            hint="Rename the column.",
        )


def alteration(
    step: AlterColumns,
    schema: Schema,
    known: Schema,
    altered: Alteration | None,
    *,
    ignores: bool = False,
) -> AlterColumns | None:
    """Complete the step with the changes from the columns `known` to `schema`; None if existing
    rows do not change.

    altered: the alteration of the first file. Columns that are new in `schema` are not filled with
    NULL. ignores: as in `merge`. Raises SchemaMergeFailure if a column of the alteration does not
    exist.
    """
    copied, filled, converted = dict[str, str](), dict[str, pa.Array](), set[str]()
    if altered is not None:
        there = {*altered.columns} - {*altered.dropped, *altered.emptied}
        names = {*altered.copied.values(), *there}
        columns = list(dict.fromkeys((*schema.names, *known.names)))
        every = [(name, match_columns(columns, [name])) for name in sorted(names)]
        found = {name: column for name, matched in every for column in matched}
        absent = sorted(names - found.keys() - {*altered.gone})
        if absent and not ignores:
            raise SchemaMergeFailure(
                f"the file alters column {absent[0]}, but the table has no such column",
                table=str(step.table),
                column=absent[0],
                hint=f"Run `mirrorlake reset {step.table}` to reload it.",
            )
        into = {name: there for name, there in found.items() if there in schema}
        pairs = [(into[name], found.get(s)) for name, s in altered.copied.items() if name in into]
        copied = {name: source for name, source in pairs if source and name != source}
        lost = [name for name, source in pairs if source is None and name in known]
        kept = {name for name, source in pairs if source == name}  # renamed in its case alone
        copied |= {saved: source for source, saved in _saved(known, altered).items()}
        converted = {*match_columns(schema.names, list(altered.saved))}
        values = altered.filled.to_pydict() if altered.filled is not None else {}
        filled = {
            into[name]: _fitting(
                altered.filled.column(name),
                arrow_type(schema[into[name]].type),
                is_converted=into[name] in converted,
            )
            for name, (value,) in values.items()
            if altered.filled is not None
            and name in into
            and (value is not None or into[name] in known)
        }
        filled |= {
            name: pa.nulls(1, arrow_type(schema[name].type))
            for name in (*match_columns(known.names, list(altered.emptied)), *lost)
            if name in schema and name not in kept
        }
    left = [column for column in known if column.name in schema]
    types = {c.name: schema[c.name].type for c in left if schema[c.name].type != c.type}
    dropped = tuple(c.name for c in known if c.name not in schema)
    key = altered.key if altered is not None else None
    if not (copied or filled or types or dropped) and key is None:
        return None
    rows = pa.RecordBatch.from_pydict(filled) if filled else None
    return replace(
        step,
        copied=copied,
        filled=rows,
        types=types,
        converted=frozenset(converted),
        dropped=dropped,
        key=None if key is None else key_columns(str(step.table), key, schema, ""),
        whole_rows=altered is not None and altered.whole_rows,
    )


def _fitting(value: pa.Array, kind: pa.DataType, *, is_converted: bool) -> pa.Array:
    """A value that fills a column, in its type. Where the column got another type since it was
    filled, NULL if it cannot be converted."""
    try:
        return value.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if not is_converted:
            raise
        return pa.nulls(1, kind)


def key_columns(table: str, key: Sequence[str], schema: Schema, file: str) -> tuple[str, ...]:
    """The key, with the names of columns of the table (LZ-046). Raises KeyColumnMissing."""
    matched = match_columns(schema.names, list(key))
    names = {column: name for name, column in matched.items()}
    for column in key:
        if column not in names:
            raise KeyColumnMissing(
                f"keyColumns contains {column}, but there is no such column",
                table=table,
                file=file,
                column=column,
                hint="Correct keyColumns in _metadata.json, or write the column.",
            )
    return tuple(names[column] for column in key)


def needs_mapping(schema: Schema) -> bool:
    """Whether a column name needs Delta's column mapping (LZ-157)."""
    return any(set(column.name) & set(" ,;{}()\n\t=") for column in schema)


def check_name(table: str, name: str, file: str, *, has_feed: bool) -> None:
    """Raise UnsupportedColumn for the name of a new column that our tables cannot have."""
    hint = "Rename the column."
    if has_feed and name.casefold() in FEED_COLUMNS:
        what = f"{name} is the name of a column of the change feed"
        hint = (
            "Rename the column at the source, or mirror the table without a change feed: "
            f"mirror.tables: {{{table}: {{change_feed: false}}}}."
        )
    elif name.startswith("__") or not name:
        what = f"column names that begin with two underscores are reserved: {name}"
    else:
        return
    raise UnsupportedColumn(what, table=table, file=file, column=name, hint=hint)
