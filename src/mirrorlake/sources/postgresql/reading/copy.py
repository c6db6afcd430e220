"""The output of a COPY, by libpq's own calls: psycopg's loop costs three times as much per row."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from mirrorlake.sources.postgresql.connect import Connection

BLOCK = 8 << 20
"""Bytes that are handed on together."""

_CANCEL_SECONDS = 5.0


def copied(
    connection: Connection, query: bytes, heard: Callable[[], None] = lambda: None
) -> Iterator[bytes]:
    """The output in blocks of whole rows: every message of the server is one row. heard: called
    when something has come from the server.

    Raises psycopg.Error. A connection whose output was not read to its end is of no further use
    before `cancel`.
    """
    pgconn = connection.pgconn
    pgconn.send_query(query)
    _expect(pgconn, ExecStatus.COPY_OUT)
    rows: list[bytes] = []
    size = 0
    while (count := (message := pgconn.get_copy_data(1))[0]) >= 0:
        if count == 0:
            _wait(pgconn)
            heard()
            continue
        rows.append(bytes(message[1]))  # a copy: the collector follows every view
        size += count
        if size >= BLOCK:
            yield b"".join(rows)
            rows, size = [], 0
    if rows:
        yield b"".join(rows)
    _expect(pgconn, ExecStatus.COMMAND_OK)
    while _result(pgconn) is not None:
        pass


def cancel(connection: Connection) -> None:
    """End a COPY whose output nobody reads to its end: its transaction has failed then, unless all
    of it was sent before. Raises psycopg.Error."""
    connection.cancel_safe(timeout=_CANCEL_SECONDS)
    pgconn = connection.pgconn
    with suppress(psycopg.OperationalError):  # all of the output was read
        while (count := pgconn.get_copy_data(1)[0]) >= 0:
            if count == 0:
                _wait(pgconn)
    while _result(pgconn) is not None:
        pass


def _expect(pgconn: PGconn, status: ExecStatus) -> None:
    result = _result(pgconn)
    assert result is not None
    if result.status != status:
        raise psycopg.errors.error_from_result(result)


def _result(pgconn: PGconn) -> PGresult | None:
    while pgconn.is_busy():
        _wait(pgconn)
    return pgconn.get_result()


def _wait(pgconn: PGconn) -> None:
    select.select([pgconn.socket], [], [])
    pgconn.consume_input()
