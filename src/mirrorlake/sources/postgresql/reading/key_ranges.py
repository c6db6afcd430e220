"""Queries for the rows of a range of keys, in the order of these keys, and how many there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from mirrorlake.errors import CannotBackfill
from mirrorlake.model.keys import KeyRange
from mirrorlake.sources.ordered import has_ranges
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.foreign_text import has_other_bytes
from mirrorlake.sources.postgresql.reading import lock_waits
from mirrorlake.sources.postgresql.reading.copied_rows import CopiedColumn
from mirrorlake.sources.postgresql.reading.named_columns import relation_of, selected
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.values import (
    FIRST_DAY,
    FIRST_MOMENT,
    LAST_DAY,
    LAST_MOMENT,
)
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
    connection: Connection,
    table: SourceTable,
    relation: sql.Composed,
    keys: KeyRange,
    columns: Sequence[CopiedColumn],
    stretch: KeyStretch,
    *,
    by_index: bool = False,
) -> bytes:
    """The query for all rows in a stretch of a range, in the order of their keys as we have them;
    in any order where the table has no ranges. by_index: as an index of the key has them, which is
    the same up to the first of `unsure`."""
    # In ORDER BY, a bare name is first that of an output column, as `case` of a text.
    *_only, whole = relation
    names = [sql.Composed([whole, sql.SQL("."), sql.Identifier(name)]) for name in table.key]
    converts = has_other_bytes(connection)
    order = [
        _clamped(table, name, column)
        if _is_clamped(table, index, stretch) and not by_index
        else _sortable(table, name, column, converts=converts)
        for index, (name, column) in enumerate(zip(table.key, names, strict=True))
        if has_ranges(table)
    ]
    query = sql.SQL("copy (select {} from {}{}{}) to stdout with (format binary)").format(
        selected(columns),
        relation,
        _where(table, keys, stretch, converts=converts),
        sql.SQL(" order by ") + sql.SQL(", ").join(order) if order else sql.SQL(""),
    )
    return query.as_bytes(connection)


def unsure(table: SourceTable, stretch: KeyStretch) -> list[str]:
    """The key columns in which an infinity may stand in another place of an index than in the
    mirror, of a stretch that has the order of an index otherwise."""
    if stretch in {KeyStretch.FIRST, KeyStretch.LAST} or not has_ranges(table):
        return []
    return [name for index, name in enumerate(table.key) if _is_clamped(table, index, stretch)]


def before_ends(rows: pa.RecordBatch, names: Sequence[str]) -> int:
    """How many rows stand before the first that may have an infinity in one of these columns."""
    found = int(rows.num_rows)
    for name in names:
        column = rows.column(name)
        ends = _DAYS if pa.types.is_date(column.type) else _MOMENTS
        is_end = pc.is_in(column, value_set=pa.array(ends, column.type))
        first = int(pc.index(is_end, True).as_py())
        if first >= 0:
            found = min(found, first)
    return found


class KeyStretch(Enum):
    """The part of a range with some values of the first key column."""

    ALL = "all"
    FIRST = "{0} <= {1}"  # those that are the first day or moment in the mirror
    BETWEEN = "{0} > {1} and {0} < {2}"
    LAST = "{0} >= {2}"


def stretches(table: SourceTable, keys: KeyRange) -> list[KeyStretch]:
    """What a range is read in. Between the ends of the calendar an index has the order of the
    mirror, so that a large table is not sorted for a few infinities."""
    if len(table.key) < 2 or _ends(table, table.key[0]) is None or not has_ranges(table):
        return [KeyStretch.ALL]
    first = table.key[0]
    lows, highs = (
        [
            end_of(table, first, _values(table, bound.select([first]))[0])
            for bound in bounds
            if bound is not None and first in bound.column_names
        ]
        for bounds in ((keys.low, keys.least), (keys.high, keys.below))
    )
    found = [KeyStretch.FIRST] if all(end < 0 for end in lows) else []
    if all(end < 1 for end in lows) and all(end >= 0 for end in highs):
        found.append(KeyStretch.BETWEEN)
    return [*found, KeyStretch.LAST] if all(end > 0 for end in highs) else found


def _is_clamped(table: SourceTable, index: int, stretch: KeyStretch) -> bool:
    """Whether the order by a key column is another one than that of the mirror. That by the last
    column is not: what is the same in the mirror would be one row."""
    if index == len(table.key) - 1 or _ends(table, table.key[index]) is None:
        return False
    return index > 0 or stretch is not KeyStretch.BETWEEN


def estimated(connection: Connection, table: SourceTable, keys: KeyRange) -> int:
    """How many rows are in a range: as the planner estimates it, or from a sample where it knows
    nothing of the key. Keeps the table locked until the transaction ends."""
    relation = relation_of(connection, table)
    lock_waits.lock(connection, table, relation)
    first = next(iter(table.key), None)
    size = connection.execute(_UNKNOWN, [table.identity, first]).fetchone()
    if first and size:
        return _sampled(connection, table, relation, keys, size=size[0])
    return _planned(connection, table, relation, keys)


def _planned(
    connection: Connection, table: SourceTable, relation: sql.Composed, keys: KeyRange
) -> int:
    """How many rows the planner expects in a range."""
    query = sql.SQL("explain (format json) select from {}{}").format(
        relation, _where(table, keys, converts=has_other_bytes(connection))
    )
    ((plan,),) = connection.execute(query).fetchall()
    return int(plan[0]["Plan"]["Plan Rows"])


def _sampled(
    connection: Connection, table: SourceTable, relation: sql.Composed, keys: KeyRange, size: int
) -> int:
    """How many rows are in a range, of as many as some pages have. size: of the table, in bytes."""
    percent = min(100.0, 100.0 * _SAMPLE_BYTES / max(size, 1))
    query = sql.SQL("select count(*) from {} tablesample system ({}){}").format(
        relation,
        sql.Literal(percent),
        _where(table, keys, converts=has_other_bytes(connection)),
    )
    ((count,),) = connection.execute(query).fetchall()
    return int(count * 100 / percent)


def _where(
    table: SourceTable, keys: KeyRange, stretch: KeyStretch = KeyStretch.ALL, *, converts: bool
) -> sql.Composable:
    """What chooses the selected rows in a stretch of a range. converts: as in `_sortable`."""
    bounded = partial(_bounded, table, converts=converts)
    conditions: list[sql.Composable] = []
    if stretch is not KeyStretch.ALL:
        name, (first, last) = table.key[0], _ends(table, table.key[0]) or ("", "")
        condition = sql.SQL(stretch.value)
        conditions.append(condition.format(sql.Identifier(name), sql.SQL(first), sql.SQL(last)))
    if keys.low is not None:
        conditions += bounded(keys.low, ">=" if keys.is_closed else ">")
    if keys.high is not None:
        conditions += bounded(keys.high, "<=")
    if keys.least is not None:
        conditions += bounded(keys.least, ">=")
    if keys.below is not None:
        conditions += bounded(keys.below, "<")
    if rows := table.selection.get("rows"):
        conditions.append(sql.SQL("(") + sql.SQL(rows) + sql.SQL(")"))
    return sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL("")


def _bounded(
    table: SourceTable, bound: pa.Table, sign: str, *, converts: bool
) -> list[sql.Composed]:
    """Which keys are on one side of a bound, as the mirror compares them; and, where PostgreSQL
    cannot tell that from an index, what it can tell: that much is implied."""
    values = _values(table, bound)
    plain, exact, sent, ends = [], [], [], []
    for name, value in zip(bound.column_names, values, strict=True):
        column, end = sql.Identifier(name), end_of(table, name, value)
        is_bytes = converts and _is_sorted_as_text(table, name)
        sent.append(value.encode() if is_bytes else value)
        plain.append(_sortable(table, name, column, converts=converts))
        exact.append(_clamped(table, name, column) if end else plain[-1])
        ends.append(end)
    found = [_compared(exact, sign, sent)]
    if any(ends):
        # An infinity is beyond the end that it becomes: only what stands before it is implied.
        short = -1 if sign.startswith(">") else 1
        if count := ends.index(short) if short in ends else len(ends):
            loose = sign if count == len(ends) else sign[0] + "="
            found.append(_compared(plain[:count], loose, sent[:count]))
    return found


def _values(table: SourceTable, bound: pa.Table) -> list[Any]:
    """Those of a bound. Raises CannotBackfill where PostgreSQL would take one for another value, or
    for none, so that it reads other rows than those that the mirror has in the range."""
    try:
        values = [column[0].as_py() for column in bound.columns]
    except (ValueError, OverflowError) as error:  # a day that Python's calendar does not know
        raise CannotBackfill(
            "its key has a moment before the year 1 or after the year 9999",
            table=str(table.table),
            hint=f"`mirrorlake reset {table.table}` loads it anew.",
        ) from error
    for name, value in zip(bound.column_names, values, strict=True):
        kind = table.source_types[name].name.rpartition("(")[2].rstrip(")")  # that of a domain
        if not _is_value(kind, value):
            raise CannotBackfill(
                f"a bound is no value of its key column {name}, which is a {kind}",
                table=str(table.table),
                column=name,
            )
    return values


def _is_value(kind: str, value: Any) -> bool:
    """Whether PostgreSQL takes a value for the same one of a type as the mirror."""
    if kind in _UNSIGNED:
        return bool(0 <= value < 1 << 32)
    if kind == "uuid":
        return _UUID.fullmatch(value) is not None
    return not isinstance(value, str) or "\0" not in value


def _compared(columns: Sequence[sql.Composable], sign: str, values: Sequence[Any]) -> sql.Composed:
    return sql.SQL("({}) {} ({})").format(
        sql.SQL(", ").join(columns), sql.SQL(sign), sql.SQL(", ").join(map(sql.Literal, values))
    )


_ENDS: Mapping[Form, tuple[str, str]] = {
    Form.DATE: (f"'{FIRST_DAY}'::date", f"'{LAST_DAY}'::date"),
    Form.TIMESTAMP: (f"'{FIRST_MOMENT}'::timestamp", f"'{LAST_MOMENT}'::timestamp"),
    Form.INSTANT: (f"'{FIRST_MOMENT}+00'::timestamptz", f"'{LAST_MOMENT}+00'::timestamptz"),
}
"""What the infinities of a key become."""
_DAYS = (date.min, date.max)
_MOMENTS = (datetime.combine(date.min, time.min, UTC), datetime.combine(date.max, time.max, UTC))


def _ends(table: SourceTable, name: str) -> tuple[str, str] | None:
    return _ENDS.get(table.source_types[name].form)


def end_of(table: SourceTable, name: str, value: Any) -> int:
    """-1 for the first day or moment of the calendar in a column of these, 1 for the last one: it
    may be an infinity in the source. 0 for others."""
    if _ends(table, name) is None:
        return 0
    ends = _MOMENTS if isinstance(value, datetime) else _DAYS
    return int(value == ends[1]) - int(value == ends[0])


def _clamped(table: SourceTable, name: str, column: sql.Composable) -> sql.Composed:
    """A key column of days or moments, with infinities as they are landed."""
    first, last = map(sql.SQL, _ends(table, name) or ("", ""))
    return sql.SQL("greatest(least({}, {}), {})").format(column, last, first)


_UNSIGNED = {"oid", "xid", "cid"}
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SORTED_ALIKE = {"uuid"}
"""Types that become texts, which have the order of their values."""
_TEXTS = {"text", "varchar", "name"}


def _sortable(
    table: SourceTable, name: str, column: sql.Composable, *, converts: bool
) -> sql.Composed:
    """A key column in the order of its values as they are landed: of texts by their bytes. column:
    how a query names it; converts: whether these are other ones in the database."""
    kind = table.source_types[name]
    if not _is_sorted_as_text(table, name):
        return sql.Composed([column])
    # Other types have a text that is landed, and a cast to text that may give another.
    text = "{}::text" if kind.name in _TEXTS else "format('%s', {})"
    if converts:
        return sql.SQL("convert_to(" + text + ", 'UTF8')").format(column)
    return sql.SQL("(" + text + ' collate "C")').format(column)


def _is_sorted_as_text(table: SourceTable, name: str) -> bool:
    kind = table.source_types[name]
    return kind.form is Form.TEXT and kind.name not in _SORTED_ALIKE
