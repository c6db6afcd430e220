"""The output of a COPY in binary format: from the socket itself where that is possible, otherwise
by libpq's own calls, because psycopg's loop costs three times as much per row."""

from __future__ import annotations

import select
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress

import numpy as np
import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn, PGresult

from mirrorlake.sources.postgresql.connect import Connection
from mirrorlake.sources.postgresql.reading.copy_socket import CopiedBlock, CopySocket, can_read

BLOCK = 8 << 20
"""Bytes that are handed on together."""

_CANCEL_SECONDS = 5.0

_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_FLAGS, _LENGTH = 4, 4
_END = b"\xff\xff"
"""In the place of a row: the end of all rows."""


def copied(
    connection: Connection, query: bytes, heard: Callable[[], None] = lambda: None
) -> Generator[CopiedBlock, None, None]:
    """The rows in blocks: every message of the server is one row. A block is valid until the next
    one is asked for. heard: called when something has come from the server.

    Raises psycopg.Error. A connection whose output was not read to its end is of no further use
    before `cancel`.
    """
    yield from rows_in(_messages(connection, query, heard))


def rows_in(messages: Iterable[CopiedBlock]) -> Iterator[CopiedBlock]:
    """The rows in the messages of a whole COPY, in blocks that are not empty: the first message
    begins with a header, and the last one is the end."""
    is_first = True
    for block in messages:
        begins, ends = block.begins, block.ends
        if is_first:
            begins = begins.copy()
            begins[0] += _header(block.content[begins[0] : ends[0]].tobytes())
            is_first = False
        if block.content[begins[-1] : ends[-1]].tobytes() == _END:
            begins, ends = begins[:-1], ends[:-1]
        if len(begins):
            yield CopiedBlock(block.content, begins, ends)


def _header(message: bytes) -> int:
    """The length of the header at the beginning of a message."""
    assert message.startswith(_SIGNATURE), "the output is in binary format"
    end = len(_SIGNATURE) + _FLAGS + _LENGTH
    return end + int.from_bytes(message[end - _LENGTH : end], "big")


def _messages(
    connection: Connection, query: bytes, heard: Callable[[], None]
) -> Generator[CopiedBlock, None, None]:
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


def block_of(messages: Iterable[bytes | bytearray | memoryview]) -> CopiedBlock:
    """A block of these messages; not for none."""
    found = [bytes(message) for message in messages]
    ends = np.cumsum([len(message) for message in found], dtype=np.int64)
    begins = np.concatenate(([0], ends[:-1]))
    return CopiedBlock(np.frombuffer(b"".join(found), np.uint8), begins, ends)


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
