"""Locks on all that a query reads: a table, its partitions, and the indexes of these.

A query waits for each of them as long as `lock_timeout` says, and keeps meanwhile those that it
has, so that others may queue behind it for as many times that long. `LOCK TABLE` is no way around:
it needs more than the right to read a column, and partitions are read by the right to their root.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import sql

from mirrorlake.sources.postgresql.catalog import with_partition_tree
from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.table import SourceTable

_LOCKS = with_partition_tree(
    """
select array(select oid::bigint from tree
             union all
             select x.indexrelid::bigint from pg_index x join tree t on t.oid = x.indrelid),
       (select setting::int from pg_settings where name = 'lock_timeout')
"""
)
# Whoever waits for such a lock is in the way as much as who has it.
_IN_THE_WAY = """
select distinct relation::bigint from pg_locks
where locktype = 'relation' and mode = 'AccessExclusiveLock' and relation = any(%s::oid[])
and database = (select oid from pg_database where datname = current_database())
"""
_AWAIT = "select pg_relation_size(%s::oid)"  # keeps no lock
_SET_TIMEOUT = "select set_config('lock_timeout', %s, true)"
_WITHIN = "savepoint awaited; set local lock_timeout = {}; {}; release savepoint awaited"
_GIVE_WAY = "rollback to savepoint awaited; release savepoint awaited"


def lock(connection: Connection, table: SourceTable, relation: sql.Composable) -> None:
    """Keep a table, and its partitions, as they are until the transaction ends. Needs no more
    than the right to read a column. Raises psycopg.errors.LockNotAvailable."""
    run(connection, table.identity, sql.SQL("select from {} limit 0").format(relation))


def run(
    connection: Connection, table: str | int, query: sql.Composable
) -> psycopg.Cursor[tuple[Any, ...]]:
    """The result of a query on a table, given by its oid, in a transaction that is open. It waits
    for all locks together no longer than for one, and for most of that time keeps none. What it
    has locked stays locked until the transaction ends.

    Raises psycopg.errors.LockNotAvailable.
    """
    ((relations, timeout),) = connection.execute(_LOCKS, [table]).fetchall()
    deadline = time.monotonic() + timeout / 1000
    while True:
        # One that is locked is found within a part of the time, by a query that keeps the others.
        share = max(_left(deadline) // (2 * len(relations)), 1)
        try:
            within = sql.SQL(_WITHIN).format(sql.Literal(f"{share}ms"), query)
            cursor = connection.execute(within, prepare=False)  # several statements cannot be
        except psycopg.errors.LockNotAvailable:
            if _left(deadline) == 0:
                raise
        else:
            connection.execute(_SET_TIMEOUT, [f"{timeout}ms"])
            cursor.nextset()
            cursor.nextset()
            return cursor
        connection.execute(_GIVE_WAY)
        for (one,) in connection.execute(_IN_THE_WAY, [relations]).fetchall():
            connection.execute(_SET_TIMEOUT, [f"{max(_left(deadline), 1)}ms"])
            connection.execute(_AWAIT, [one])


def _left(deadline: float) -> int:
    """Milliseconds until then, 0 if it is over."""
    return max(int(1000 * (deadline - time.monotonic())), 0)
