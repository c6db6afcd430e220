"""Locks on several tables at once.

A statement that needs several waits for each of them as long as `lock_timeout` says, and keeps
meanwhile those that it has, so that others may queue behind it for as many times that long.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg
from psycopg import sql

from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.table import SourceTable

_LOCK = sql.SQL("lock table {} in share update exclusive mode{}")
_TIMEOUT = "select setting::int from pg_settings where name = 'lock_timeout'"  # milliseconds
_SET_TIMEOUT = "select set_config('lock_timeout', %s, true)"


def take(connection: Connection, tables: Sequence[SourceTable]) -> None:
    """Lock tables as a change of a publication does, until the end of the transaction, and wait for
    all of them together no longer than for one. Raises psycopg.errors.LockNotAvailable.

    What else is in the way of a lock, as a missing privilege, is left to the change to say.
    """
    names = [
        sql.SQL("only ") + sql.Identifier(table.in_source.schema, table.in_source.name)
        for table in tables
    ]
    try:
        with connection.transaction():
            connection.execute(_LOCK.format(sql.SQL(", ").join(names), sql.SQL(" nowait")))
    except psycopg.errors.LockNotAvailable:
        _wait(connection, names)
    except psycopg.OperationalError:
        raise
    except psycopg.Error:
        return


def _wait(connection: Connection, names: Sequence[sql.Composed]) -> None:
    ((timeout,),) = connection.execute(_TIMEOUT).fetchall()
    deadline = time.monotonic() + timeout / 1000
    for name in names:
        left = max(int(1000 * (deadline - time.monotonic())), 1)
        connection.execute(_SET_TIMEOUT, [f"{left}ms"])
        connection.execute(_LOCK.format(name, sql.SQL("")))
    connection.execute(_SET_TIMEOUT, [f"{timeout}ms"])
