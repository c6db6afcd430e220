"""Reads the rows that have given keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import pyarrow as pa
from psycopg import sql

from mirrorlake.model.arrow import nullable_schema
from mirrorlake.sources.postgresql.changed_rows import NotedIn
from mirrorlake.sources.postgresql.connect import NAMES_ALIKE, Connection
from mirrorlake.sources.postgresql.reading import lock_waits
from mirrorlake.sources.postgresql.reading.copied_rows import CopiedColumn, rows_of
from mirrorlake.sources.postgresql.reading.copy import block_of, rows_in
from mirrorlake.sources.postgresql.reading.key_ranges import end_of
from mirrorlake.sources.postgresql.reading.named_columns import named_columns, relation_of, selected
from mirrorlake.sources.postgresql.types.arrays import json_to_array
from mirrorlake.sources.postgresql.types.mapping import FIRST_OF_APPLICATIONS, Form
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.table import SourceTable


def read_rows(
    connection: Connection, table: SourceTable, keys: pa.Table, extremes: Extremes, noted: NotedIn
) -> pa.Table:
    """The rows with these keys as they are now. Those that are gone are absent."""
    # The types that a query was described with are locked until its transaction ends.
    with connection.transaction():
        relation = relation_of(connection, table)
        lock_waits.lock(connection, table, relation)
        if _are_builtin(connection, relation, keys.column_names):
            connection.execute(NAMES_ALIKE)
        columns = named_columns(connection, table, relation, extremes, noted)
        read = partial(_read, connection, table, keys.column_names, relation, columns)
        found = read(wanted := keys.to_pylist())
        if infinite := _infinite(table, wanted, found):
            found += read(infinite)
    schema = nullable_schema(table.schema)
    return pa.Table.from_batches(found, schema=None if found else schema)


def _infinite(
    table: SourceTable, wanted: Sequence[Mapping[str, Any]], found: Sequence[pa.RecordBatch]
) -> list[dict[str, Any]]:
    """What is to be read of rows that are not found: infinities may be in their keys, in the place
    of the days that they become."""
    ending = [row for row in wanted if any(end_of(table, *one) for one in row.items())]
    if not ending:
        return []
    there = {tuple(key.values()) for one in found for key in one.select([*ending[0]]).to_pylist()}
    return [
        dict(zip(row, values, strict=True))
        for row in ending
        if tuple(row.values()) not in there
        for values in product(*(_possible(end_of(table, *one), one[1]) for one in row.items()))
        if values != tuple(row.values())
    ]


def _possible(end: int, value: Any) -> list[Any]:
    return [value, "infinity" if end > 0 else "-infinity"] if end else [value]


def _are_builtin(connection: Connection, relation: sql.Composable, columns: Sequence[str]) -> bool:
    """Whether the types of some columns are of the server itself: with others, it may find by the
    path of the database alone how they are compared."""
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    query = sql.SQL("select {} from {} limit 0").format(names, relation)
    described = connection.execute(query).pgresult
    assert described is not None
    return all(described.ftype(index) < FIRST_OF_APPLICATIONS for index in range(len(columns)))


_COMPARED_AS_OID = {
    24: "regproc",
    2202: "regprocedure",
    2203: "regoper",
    2204: "regoperator",
    2205: "regclass",
    2206: "regtype",
    3734: "regconfig",
    3769: "regdictionary",
    4089: "regnamespace",
    4096: "regrole",
    4191: "regcollation",
}
"""Types, by oid, that have no comparison of their own: a text beside one is read as a number."""


def _parameter(table: SourceTable, column: str) -> sql.SQL:
    """Where a value is compared with the column."""
    name = _COMPARED_AS_OID.get(table.source_types[column].text)
    return sql.SQL(f"%s::pg_catalog.{name}" if name else "%s")


def _read(
    connection: Connection,
    table: SourceTable,
    key: Sequence[str],
    relation: sql.Composable,
    columns: Sequence[CopiedColumn],
    wanted: Sequence[Mapping[str, Any]],
) -> list[pa.RecordBatch]:
    """The rows with these keys."""
    names = [sql.Identifier(name) for name in key]
    parameters = [_parameter(table, name) for name in key]
    row = sql.SQL("({})").format(sql.SQL(", ").join(parameters))
    query = sql.SQL("copy (select {} from {} where ({}) in ({})) to stdout with (format binary)")
    is_array = [table.source_types[name].form is Form.ARRAY for name in key]
    values = [
        json_to_array(value) if array and value is not None else value
        for row in wanted
        for array, value in zip(is_array, row.values(), strict=True)
    ]
    filled = query.format(
        selected(columns),
        relation,
        sql.SQL(", ").join(names),
        sql.SQL(", ").join([row] * len(wanted)),
    )
    with connection.cursor() as cursor, cursor.copy(filled, values) as copy:
        messages = list(copy)
    return [rows_of(block, table, columns) for block in rows_in([block_of(messages)])]
