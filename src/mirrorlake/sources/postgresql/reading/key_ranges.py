"""Queries for the rows of a range of keys, in the order of these keys, and how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from psycopg import sql

from mirrorlake.errors import CannotBackfill
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.reading.copied_rows import CopiedColumn
from mirrorlake.sources.postgresql.reading.named_columns import relation_of, selected
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.table import SourceTable

_SAMPLE_BYTES = 8 << 20
_UNKNOWN = """
select pg_relation_size(c.oid) + coalesce((
    select sum(pg_relation_size(p.relid))
    from pg_partition_tree(c.oid) p where p.isleaf and p.relid <> c.oid), 0)::bigint
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = %s::oid and not exists (
    select from pg_stats s
    where s.schemaname = n.nspname and s.tablename = c.relname and s.attname = %s)
"""
"""The bytes of a table, if nothing is known of what is in a column of it."""


def copy(
    table: SourceTable, relation: sql.Composed, keys: KeyRange, columns: Sequence[CopiedColumn]
) -> sql.Composed:
    """All rows in a range, in the order of their keys as we have them."""
    # In ORDER BY, a bare name is first that of an output column, as `case` of a text.
    *_only, whole = relation
    names = [sql.Composed([whole, sql.SQL("."), sql.Identifier(name)]) for name in table.key]
    order = sql.SQL(", ").join(map(partial(_sortable, table), table.key, names))
    return sql.SQL("copy (select {} from {}{}{}) to stdout with (format binary)").format(
        selected(columns),
        relation,
        _where(table, keys),
        sql.SQL(" order by ") + order if table.key else sql.SQL(""),
    )


def estimated(connection: Connection, table: SourceTable, keys: KeyRange) -> int:
    """How many rows are in a range: as the planner estimates it, or from a sample where it knows
    nothing of the key."""
    first = next(iter(table.key), None)
    size = connection.execute(_UNKNOWN, [table.identity, first]).fetchone()
    if first and size:
        return _sampled(connection, table, keys, size=size[0])
    return _planned(connection, table, keys)


def _planned(connection: Connection, table: SourceTable, keys: KeyRange) -> int:
    """How many rows the planner expects in a range."""
    query = sql.SQL("explain (format json) select from {}{}").format(
        relation_of(connection, table), _where(table, keys)
    )
    ((plan,),) = connection.execute(query).fetchall()
    return int(plan[0]["Plan"]["Plan Rows"])


def _sampled(connection: Connection, table: SourceTable, keys: KeyRange, size: int) -> int:
    """How many rows are in a range, of as many as some pages have. size: of the table, in bytes."""
    percent = min(100.0, 100.0 * _SAMPLE_BYTES / max(size, 1))
    query = sql.SQL("select count(*) from {} tablesample system ({}){}").format(
        relation_of(connection, table), sql.Literal(percent), _where(table, keys)
    )
    ((count,),) = connection.execute(query).fetchall()
    return int(count * 100 / percent)


def _where(table: SourceTable, keys: KeyRange) -> sql.Composable:
    """What chooses the selected rows in a range."""
    conditions: list[sql.Composable] = []
    if keys.low is not None:
        conditions.append(_bounded(table, keys.low, ">=" if keys.is_closed else ">"))
    if keys.high is not None:
        conditions.append(_bounded(table, keys.high, "<="))
    if keys.least is not None:
        conditions.append(_bounded(table, keys.least, ">="))
    if keys.below is not None:
        conditions.append(_bounded(table, keys.below, "<"))
    if condition := table.selection.get("rows"):
        conditions.append(sql.SQL("(") + sql.SQL(condition) + sql.SQL(")"))
    return sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL("")


def _bounded(table: SourceTable, bound: pa.Table, sign: str) -> sql.Composed:
    try:
        values = [sql.Literal(column[0].as_py()) for column in bound.columns]
    except (ValueError, OverflowError) as error:  # a day that Python's calendar does not know
        raise CannotBackfill(
            "its key has a moment before the year 1 or after the year 9999",
            table=str(table.table),
            hint=f"`mirrorlake reset {table.table}` loads it anew.",
        ) from error
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(
            _sortable(table, name, sql.Identifier(name)) for name in bound.column_names
        ),
        sql.SQL(sign),
        sql.SQL(", ").join(values),
    )


_SORTED_ALIKE = {"uuid"}
"""Types that become texts, which have the order of their values."""
_TEXTS = {"text", "varchar", "name"}


def _sortable(table: SourceTable, name: str, column: sql.Composable) -> sql.Composed:
    """A key column in the order of its values as they are landed: of texts by their bytes. column:
    how a query names it."""
    kind = table.source_types[name]
    if kind.form is Form.ARRAY:
        raise CannotBackfill(
            f"key column {name} is an array",
            table=str(table.table),
            column=name,
            hint=f"`mirrorlake reset {table.table}` loads it anew.",
        )
    if kind.form is not Form.TEXT or kind.name in _SORTED_ALIKE:
        return sql.Composed([column])
    # Other types have a text that is landed, and a cast to text that may give another.
    text = "{}::text" if kind.name in _TEXTS else "format('%s', {})"
    return sql.SQL("(" + text + ' collate "C")').format(column)
