"""What a snapshot reads under the name of a column, while a lock keeps the table as it is.

A snapshot shows the rows of its moment by the columns of now: a column that was renamed since the
stream described it is read under its new name, and a table that was rewritten since the snapshot
looks empty. So both are compared before any row is read; until the lock ends nothing is altered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mirrorlake.errors import SourceUnavailable, TableAltered
from mirrorlake.sources.postgresql.catalog import read_types, with_partition_tree
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.recognition.known import Known
from mirrorlake.sources.table import SourceTable

_COLUMNS = """
select attname::text, attnum, atttypid::bigint, atttypmod from pg_attribute
where attrelid = %s::oid and attnum > 0 and not attisdropped order by attnum
"""
_FILES = with_partition_tree(
    """
select c.oid::bigint, c.relfilenode::bigint, n.nspname::text, c.relname::text
from tree t join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace
order by c.oid
"""
)


def check(connection: Connection, now: Connection, table: SourceTable, known: Known | None) -> None:
    """Compare a table, locked by its name in the snapshot of `connection`, with that snapshot, and
    with what the stream knows. now: a connection that sees what is committed; known: None where
    nothing is known.

    Raises SourceUnavailable when another snapshot can be read, TableAltered when the stream has
    not described the columns yet.
    """
    seen, found = _look(connection, table), _look(now, table)
    if seen != found:
        raise SourceUnavailable(
            f"{table.table} was altered, renamed or rewritten while a snapshot was taken",
            hint="Another snapshot is taken.",
        )
    if known and known.key_names not in {None, table.key}:
        key = ", ".join(table.key)
        raise _unseen(table, key, f"a change finds its row by ({key})")
    columns: Mapping[str, Any] = {name: facts for name, *facts in found[0]}
    names = {name: number for number, name in known.columns.items()} if known else {}
    types = read_types(now)
    for name in table.schema.names:
        if name not in columns:
            raise _unseen(table, name, f"column {name} was dropped or renamed")
        number, kind, modifier = columns[name]
        if names.get(name) != number:
            raise _unseen(table, name, f"column {name} is another column than it was")
        found_type = types.resolve(kind, modifier)
        known_type = known.types.get(number) if known else None
        if found_type != table.source_types[name] or known_type not in {None, str(found_type.type)}:
            raise _unseen(table, name, f"column {name} has another type")


def _look(connection: Connection, table: SourceTable) -> tuple[list[Any], list[Any]]:
    columns = connection.execute(_COLUMNS, [table.identity]).fetchall()
    return columns, connection.execute(_FILES, [table.identity]).fetchall()


def _unseen(table: SourceTable, column: str, what: str) -> TableAltered:
    return TableAltered(
        f"the columns of {table.table} have changed since the stream described them: {what}",
        table=str(table.table),
        column=column,
        hint="Capture lets the stream describe them within 30 seconds, unless it may not execute "
        "pg_logical_emit_message; then a change of any row does. After that, run `mirrorlake "
        f"backfill {table.table}` again.",
    )
