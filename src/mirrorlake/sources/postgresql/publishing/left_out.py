"""Rows and columns that a publication leaves out: nothing of them is in the stream.

The project selects rows by `source.rows`, and our publications filter by it. Columns it selects by
`source.columns`, and our publications list none. Where others filter the rows of a table, or list
its columns, changes would come of others than were loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

import psycopg
from psycopg import sql

from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.connect import NAMES_ALIKE, Connection
from mirrorlake.sources.table import SourceTable

# Filters are joined by `or`, so a table is filtered where every member of the publication is.
IS_FILTERED = """
(select bool_and(m.filtered) from member m
 where m.oid = c.oid and m.publication = w.publication)
"""
"""A query whether the publication of table `c` filters its rows, which `member` has; NULL where it
does not carry the table. PostgreSQL before 15 has no filters."""


_FILTER = """
select pg_get_expr(r.prqual, r.prrelid)
from pg_publication_rel r join pg_publication p on p.oid = r.prpubid
where p.pubname = %s and r.prrelid = %s::oid
"""
# In the list of columns nothing of it is left to indexes, constraints and partitions.
_PLAN: LiteralString = "explain (verbose, costs off) select ({}) from only {}"
_BRIEFLY = "set local lock_timeout = '100ms'"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """By the publication of a table, of that name. is_filtered: as of `IS_FILTERED`; columns: that
    it does not list, if it lists some; is_filtered_otherwise: as of that function."""

    publication: str = ""
    is_filtered: bool | None = None
    columns: tuple[str, ...] = ()
    is_filtered_otherwise: bool = False


def is_filtered_otherwise(
    connection: Connection, publication: str, oid: int, table: TableId, condition: str
) -> bool | None:
    """Whether a publication filters the rows of a table by another condition than this one, both as
    PostgreSQL plans them. None where that is not known: the table is locked by others, or one of
    the columns is not there any more. table: its name there.
    """
    try:
        with connection.transaction():
            connection.execute(NAMES_ALIKE)
            connection.execute(_BRIEFLY)
            row = connection.execute(_FILTER, [publication, oid]).fetchone()
            if row is None or row[0] is None:
                return None
            return _plan(connection, table, row[0]) != _plan(connection, table, condition)
    except psycopg.errors.LockNotAvailable:
        return None
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return None


def otherwise(
    connection: Connection, publication: str, tables: Sequence[SourceTable]
) -> list[SourceTable]:
    """Those of the tables, of the ones that a publication names, of which it filters other rows
    than the project selects."""
    if connection.info.server_version < _WITH_FILTERS:
        return []
    filtered: dict[int, bool] = dict(connection.execute(_FILTERED, [publication]).fetchall())
    found = []
    for table in tables:
        oid, condition = int(table.identity), table.selection.get("rows")
        if oid not in filtered:
            continue
        is_other: bool | None = filtered[oid] != (condition is not None)
        if condition is not None and filtered[oid]:
            is_other = is_filtered_otherwise(
                connection, publication, oid, table.in_source, condition
            )
        if is_other:
            found.append(table)
    return found


_WITH_FILTERS = 150_000
_FILTERED = """
select r.prrelid::bigint, r.prqual is not null
from pg_publication_rel r join pg_publication p on p.oid = r.prpubid where p.pubname = %s
"""


def _plan(connection: Connection, table: TableId, condition: str) -> list[str]:
    # The condition is the project's own SQL, or what the server has of one.
    query = sql.SQL(_PLAN).format(
        sql.SQL(condition),
        sql.Identifier(table.schema, table.name),
    )
    return [line for (line,) in connection.execute(query)]


def refusal(
    table: TableId, source: TableId, found: LeftOut, chosen: Sequence[str], condition: str | None
) -> tuple[str, str] | None:
    """Why a table cannot be captured, and what to do. source: its name there; chosen: those of the
    columns that are left out that the project selects; condition: by which it selects rows."""
    name = found.publication
    if chosen:
        what = f"publication {name} leaves out column {chosen[0]}, and source.columns does not"
    elif found.is_filtered_otherwise:
        what = f"publication {name} filters rows of the table by another condition than source.rows"
    elif found.is_filtered is None or found.is_filtered == (condition is not None):
        return None
    elif condition is None:
        what = f"publication {name} leaves out rows of the table, and source.rows does not"
    else:
        what = f"source.rows leaves out rows of the table, and publication {name} does not"
    return what, (
        f"Run `{_published_anew(name, source, condition)}`. If the table was mirrored before, then "
        f"run `mirrorlake repair {table}`."
    )


def _published_anew(publication: str, table: TableId, condition: str | None) -> str:
    """The statements after which a publication carries a table as the project selects it."""
    alter = sql.SQL("alter publication {} {} table only {}")
    name, member = sql.Identifier(publication), sql.Identifier(table.schema, table.name)
    statements = alter.format(name, sql.SQL("drop"), member) + sql.SQL("; ")
    statements += alter.format(name, sql.SQL("add"), member)
    if condition is not None:
        statements += sql.SQL(" where (") + sql.SQL(condition) + sql.SQL(")")
    return statements.as_string()
