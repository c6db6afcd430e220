"""Rows and columns that a publication leaves out: nothing of them is in the stream.

The project selects rows by `source.rows`, and our publications filter by it. Columns it selects by
`source.columns`, and our publications list none. Where others filter the rows of a table, or list
its columns, changes would come of others than were loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from mirrorlake.model.table import TableId

# Filters are joined by `or`, so a table is filtered where every member of the publication is.
IS_FILTERED = """
(select bool_and(m.filtered) from member m
 where m.oid = c.oid and m.publication = w.publication)
"""
"""A query whether the publication of table `c` filters its rows, which `member` has; NULL where it
does not carry the table. PostgreSQL before 15 has no filters."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """By the publication of a table, of that name. is_filtered: as of `IS_FILTERED`; columns: that
    it does not list, if it lists some."""

    publication: str = ""
    is_filtered: bool | None = None
    columns: tuple[str, ...] = ()


def refusal(
    table: TableId, source: TableId, found: LeftOut, chosen: Sequence[str], condition: str | None
) -> tuple[str, str] | None:
    """Why a table cannot be captured, and what to do. source: its name there; chosen: those of the
    columns that are left out that the project selects; condition: by which it selects rows."""
    name = found.publication
    if chosen:
        what = f"publication {name} leaves out column {chosen[0]}, and source.columns does not"
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
