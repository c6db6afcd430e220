"""The rows of a COPY, read from the socket itself, because libpq makes a call for each row.

libpq reads its socket only when it is asked to. So once a query is sent, its answer can be read
here, thousands of rows at a time. What is not a row, and a row of which only a part has come, is
handed back: for a moment, one end of a pair of sockets takes the place of libpq's own, and libpq
reads from it as if nothing had been read before. So errors, notices and the end of a COPY are left
to libpq, which learns nothing of the rows that are read here.

A row is one CopyData message, as the protocol promises: the byte `d`, a length in four bytes
(big-endian, of itself and the row), and the row in binary format, which begins with the number of
its fields. What looks like that may be the beginning of a row; that each length leads to the next
one is the proof.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import psycopg
from psycopg.pq.abc import PGconn

_COPY_OUT, _ROW = b"Hd"
_HEADER = 5
_READY = {b"Z\0\0\0\5" + status for status in (b"I", b"T", b"E")}
"""The whole messages that say that the server waits for the next query."""
_READY_BYTES = 6
_FIELDS = slice(6, 8)
"""The number of fields of a row, in the message that begins a COPY."""
_RARELY = 16
"""In one of so many bytes at most."""
_LEAST = 4096
"""Bytes of a buffer, in which the message fits that begins a COPY."""
_GATHERING_SECONDS = 0.0005
"""In which more comes: to read what the server sends at once, 8 KiB, takes most of the time that it
takes to read ten times as much."""
_QUIET_SECONDS = 0.05
"""For which nothing comes until it is looked whether the COPY has ended, which the last bytes show
nearly always; then twice as long."""


@dataclass(frozen=True, slots=True)
class CopiedBlock:
    """Rows of a COPY. content: uint8; begins, ends: int64, ascending, where each row is."""

    content: np.ndarray
    begins: np.ndarray
    ends: np.ndarray


def can_read(pgconn: PGconn) -> bool:
    """Whether what comes on the socket can be read here. GSSAPI may encrypt it, which libpq does
    not tell, but then it does not begin as a COPY does."""
    return os.name == "posix" and not pgconn.ssl_in_use


class CopySocket:
    """The socket of a connection whose query was sent, and what has come on it and is not taken
    yet, which begins with a header."""

    def __init__(self, pgconn: PGconn, size: int, heard: Callable[[], None]) -> None:
        """size: of a block of rows, in bytes; heard: called when something has come."""
        self._pgconn, self._heard = pgconn, heard
        self._descriptor = pgconn.socket
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)
        self._size = max(size, _LEAST)
        self._bytes = np.empty(self._size, np.uint8)
        self._start = self._stop = 0
        self._fields = b""
        self._has_ended = False

    def begin(self) -> bool:
        """Let libpq know that a COPY begins. Returns whether it does; then its rows are to be read
        here. Raises psycopg.OperationalError."""
        while self._pgconn.flush():
            select.select([], [self._descriptor], [])
        length = _HEADER
        while self._stop < length and self._read(None):
            if self._stop >= _HEADER and self._bytes[0] == _COPY_OUT:
                length = min(1 + _length(self._bytes, 0), _LEAST)
        is_begun = self._stop >= length and self._bytes[0] == _COPY_OUT
        self._start = length if is_begun else self._stop
        self._fields = self._bytes[_FIELDS].tobytes()
        _hand_back(self._pgconn, self._bytes[: self._start])
        return is_begun

    def rows(self) -> Iterator[CopiedBlock]:
        """The rows in blocks: one is valid until the next is asked for.

        Ends before what is not a row, and when the connection ends: libpq goes on from there, and
        also from where this is closed. Raises psycopg.OperationalError.
        """
        try:
            while self._is_row() and (block := self._next()):
                self._start = len(block.content)
                yield block
        finally:
            _hand_back(self._pgconn, self._bytes[self._start : self._stop])

    def _is_row(self) -> bool:
        """Whether a row is next, as far as is known."""
        return self._start == self._stop or self._bytes[self._start] == _ROW

    def _next(self) -> CopiedBlock | None:
        """Read whole rows to the beginning of the buffer, as many as it holds or as come."""
        self._make_room()
        patience = _QUIET_SECONDS
        while True:
            starts, length = _rows_in(self._bytes[: self._stop], self._fields)
            is_full = self._stop == len(self._bytes)
            is_other = length < self._stop and self._bytes[length] != _ROW
            if self._has_ended or is_other or (is_full and length):
                break
            if is_full:
                self._make_room()
            patience = _QUIET_SECONDS if self._fill(patience) else min(2 * patience, 1.0)
        if not length:
            return None
        return CopiedBlock(self._bytes[:length], starts + _HEADER, np.append(starts[1:], length))

    def _make_room(self) -> None:
        """Move what is left to the beginning; a row that is longer than a block gets a larger
        buffer, as long as it is needed."""
        left = self._bytes[self._start : self._stop]
        room = self._bytes
        if len(left) == len(room):
            room = np.empty(2 * len(room), np.uint8)
        elif len(left) < self._size < len(room):
            room = np.empty(self._size, np.uint8)
        room[: len(left)] = left.copy()
        self._bytes, self._start, self._stop = room, 0, len(left)

    def _fill(self, patience: float) -> bool:
        """Read until the buffer is full, or the answer seems to be complete. Returns False if
        nothing came for some seconds, or the connection has ended."""
        while self._read(patience):
            if self._stop == len(self._bytes) or self._is_ready():
                return True
            time.sleep(_GATHERING_SECONDS)
        return False

    def _is_ready(self) -> bool:
        """Whether the last message seems to say that the server waits for the next query. Rows are
        looked for whenever it does: part of it is often in rows, as a number and a size."""
        last = self._bytes[max(self._stop - _READY_BYTES, 0) : self._stop]
        return last.tobytes() in _READY

    def _read(self, seconds: float | None) -> bool:
        """Read what has come, or comes in time. Returns whether something came."""
        free = [self._bytes.data[self._stop :]]
        try:
            count = os.readv(self._descriptor, free)
        except BlockingIOError:
            if not self._poll.poll(None if seconds is None else seconds * 1000):
                return False
            return self._read(seconds)
        except OSError:
            count = 0  # libpq reads as well that the connection has ended
        self._stop += count
        self._has_ended = not count
        if count:
            self._heard()
        return not self._has_ended


def _length(content: np.ndarray, start: int) -> int:
    return int.from_bytes(content[start + 1 : start + _HEADER].tobytes(), "big")


def _rows_in(content: np.ndarray, fields: bytes) -> tuple[np.ndarray, int]:
    """Where the rows start that are there as a whole, and where they end. fields: the bytes with
    which most of them begin."""
    if len(content) < _HEADER or 1 + _length(content, 0) > len(content):
        return np.zeros(0, np.int64), 0  # looked at with every read of a long row
    likely, ends = _likely_rows(content, fields)
    # After each of these, the next one does not begin where it ends.
    breaks = np.flatnonzero(ends[:-1] != likely[1:])
    found, at = [np.zeros(0, np.int64)], 0
    while at + _HEADER <= len(content) and content[at] == _ROW:
        first = int(np.searchsorted(likely, at))
        if first < len(likely) and likely[first] == at:
            number = int(np.searchsorted(breaks, first))
            last = int(breaks[number]) if number < len(breaks) else len(likely) - 1
            starts, end = likely[first : last + 1], int(ends[last])
        else:  # a row that does not look like one, as those with the header and the end
            starts, end = np.array([at], np.int64), at + 1 + _length(content, at)
        if end > len(content):
            found.append(starts[:-1])
            return np.concatenate(found), int(starts[-1])
        found.append(starts)
        at = end
    return np.concatenate(found), at


def _likely_rows(content: np.ndarray, fields: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Where a row may start, ascending, and end: with a length that leads to another one, or to
    where nothing has come yet."""
    # The last byte of the number of fields is rarely in a text, unlike the first one of a message.
    is_at = content[_HEADER + 1 :] == fields[1]
    others = (0, _ROW), (_HEADER, fields[0])
    if np.count_nonzero(is_at) > len(is_at) // _RARELY:  # a letter of texts
        for index, byte in others:
            is_at &= content[index : index + len(is_at)] == byte
    at = np.flatnonzero(is_at)
    for index, byte in others:
        at = at[content[at + index] == byte]
    lengths = np.zeros(len(at), np.int64)
    for index in range(1, _HEADER):
        lengths = lengths << 8 | content[at + index]
    ends = at + 1 + lengths
    is_likely = content[np.minimum(ends, len(content) - 1)] == _ROW
    is_likely |= ends >= len(content)
    return at[is_likely], ends[is_likely]


def _hand_back(pgconn: PGconn, content: np.ndarray) -> None:
    """Let libpq read bytes as if they came on its socket. Raises psycopg.OperationalError."""
    if not len(content):
        return
    descriptor, (ours, theirs) = pgconn.socket, socket.socketpair()
    with ours, theirs, socket.socket(fileno=os.dup(descriptor)) as own:
        theirs.setblocking(False)
        ours.setblocking(False)  # how much the pair holds differs by system
        os.dup2(theirs.fileno(), descriptor, inheritable=False)
        is_closed = False
        try:
            left = content.data
            while len(left):
                try:
                    left = left[ours.send(left) :]
                except BrokenPipeError:  # it was shut, which libpq reads as well
                    left = left[:0]
                while select.select([theirs], [], [], 0)[0]:
                    pgconn.consume_input()
        except psycopg.OperationalError:
            is_closed = True  # by libpq, so that another file may have the number
            raise
        finally:
            if not is_closed:
                os.dup2(own.fileno(), descriptor, inheritable=False)
            if _is_shut(ours):  # by another thread, meant for the connection
                with suppress(OSError):
                    own.shutdown(socket.SHUT_RDWR)


def _is_shut(end: socket.socket) -> bool:
    """Of one that does not block."""
    try:
        return not end.recv(1)
    except BlockingIOError:
        return False
