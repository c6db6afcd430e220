"""A table and its columns as queries name them, whatever names they have now."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from mirrorlake.errors import TableRecreated
from mirrorlake.sources.postgresql.changed_rows import NotedIn, decoders_of
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.reading.copied_rows import CopiedColumn, columns_of
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.table import SourceTable


def relation_of(connection: Connection, table: SourceTable) -> sql.Composed:
    """The table by the name that it has now, with its partitions and no heirs."""
    query = (
        "select n.nspname, c.relname, c.relkind from pg_class c "
        "join pg_namespace n on n.oid = c.relnamespace where c.oid = %s::oid"
    )
    found = connection.execute(query, [table.identity]).fetchone()
    if found is None:
        raise TableRecreated(
            "the table was dropped in the source",
            table=str(table.table),
            hint=f"Run `mirrorlake reset {table.table}` to reload it.",
        )
    schema, name, kind = found
    only = sql.SQL("" if kind == "p" else "only ")
    return sql.Composed([only, sql.Identifier(schema, name)])


def named_columns(
    connection: Connection,
    table: SourceTable,
    relation: sql.Composable,
    extremes: Extremes,
    noted: NotedIn,
) -> list[CopiedColumn]:
    """The columns of a table, by the types that they have now."""
    names = sql.SQL(", ").join(map(sql.Identifier, table.schema.names))
    query = sql.SQL("select {} from {} limit 0").format(names, relation)
    described = connection.execute(query).pgresult
    assert described is not None
    types = [described.ftype(index) for index in range(len(table.schema.names))]
    return columns_of(types, decoders_of(table, extremes, noted))


def selected(columns: Sequence[CopiedColumn]) -> sql.Composed:
    return sql.SQL(", ").join(column.selected for column in columns)
