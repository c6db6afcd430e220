"""The output of a COPY: from the socket itself where that is possible, otherwise by libpq's own
calls, because psycopg's loop costs three times as much per row."""

from __future__ import annotations

import select
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.reading.copy_socket import EMPTY, CopySocket, can_read

BLOCK = 8 << 20
"""Bytes that are handed on together."""

_CANCEL_SECONDS = 5.0


def copied(
    connection: Connection, query: bytes, heard: Callable[[], None] = lambda: None
) -> Generator[bytes | memoryview, None, None]:
    """The output in blocks of whole rows, each row behind `EMPTY`: every message of the server is
    one row. A block is valid until the next one is asked for. heard: called when something has come
    from the server.

    Raises psycopg.Error. A connection whose output was not read to its end is of no further use
    before `cancel`.
    """
    pgconn = connection.pgconn
    pgconn.send_query(query)
    own = CopySocket(pgconn, BLOCK, heard) if can_read(pgconn) else None
    is_begun = own is not None and own.begin()
    _expect(pgconn, ExecStatus.COPY_OUT)
    if own is not None and is_begun:
        yield from own.rows()
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
            yield block_of(rows)
            rows, size = [], 0
    if rows:
        yield block_of(rows)
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


def block_of(rows: Iterable[bytes | bytearray | memoryview]) -> bytes:
    """A block of these rows; not for none."""
    return EMPTY + EMPTY.join(rows)


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
