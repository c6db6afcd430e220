"""What is read of a COPY from the socket, and what libpq is left with, byte by byte."""

from __future__ import annotations

import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress

import numpy as np
import pytest

from mirrorlake.sources.postgresql.reading.copy_socket import CopySocket, _rows_in


class Server:
    """A server that sends bytes, and a libpq that keeps what it reads."""

    def __init__(self, content: bytes, piece: int, *, ends: bool) -> None:
        self._client, self._server = socket.socketpair()
        self._client.setblocking(False)
        self.socket, self.left = self._client.fileno(), b""
        self._thread = threading.Thread(target=self._send, args=(content, piece, ends))
        self._thread.start()

    def _send(self, content: bytes, piece: int, ends: bool) -> None:
        for start in range(0, len(content), piece):
            self._server.sendall(content[start : start + piece])
            time.sleep(0.0005)
        if ends:
            self._server.close()

    def flush(self) -> int:
        return 0

    def consume_input(self) -> None:
        with suppress(BlockingIOError):
            self.left += os.read(self.socket, 16_384)

    def close(self) -> None:
        self._client.close()
        self._server.close()


def message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content


BEGIN = message(b"H", b"\1\0\1\0\1")
END = message(b"c") + message(b"C", b"COPY 3\0") + message(b"Z", b"I")
NOTICE, SETTING = message(b"N", b"well\0"), message(b"S", b"a\0b\0")
ROW = message(b"d", b"\0\1later")
BAD = message(b"E", b"no\0") + message(b"Z", b"E")

FIELDS = b"\0\1"
SHORT = [FIELDS + b"%d,%s" % (n, b"x" * (n % 200)) for n in range(500)]
LONG = [FIELDS + b"a", FIELDS + b"y" * 300_000, FIELDS, FIELDS + b"b"]
LIKE_A_ROW = b"d\0\0\0\x09" + FIELDS + b"abc"
ODD = [
    b"x" * 25_595,  # without the number of fields, as the first one and the last one
    FIELDS + b"y" * 100 + LIKE_A_ROW * 50,
    *(FIELDS + LIKE_A_ROW[: n % 10] + b"d" * (n % 7) for n in range(800)),
    FIELDS + b"d" * 681_979,
    b"\xff\xff",
]
"""With bytes that look like the beginning of a row, and without those."""


@pytest.fixture(params=[700, 1 << 30])
def piece(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def read(rows: Sequence[bytes], end: bytes, piece: int, *, ends: bool = False) -> Iterator[bytes]:
    """The rows, and then what libpq is left with behind the beginning."""
    server = Server(BEGIN + b"".join(message(b"d", row) for row in rows) + end, piece, ends=ends)
    own = CopySocket(server, 4_096, lambda: None)  # type: ignore[arg-type]
    assert own.begin()
    assert server.left == BEGIN
    for block in own.rows():
        for start, stop in zip(block.begins, block.ends, strict=True):
            yield block.content[start:stop].tobytes()
    left = server.left
    server.close()
    yield left.removeprefix(BEGIN)


@pytest.mark.parametrize("rows", [[], SHORT, LONG, ODD], ids=["none", "short", "long", "odd"])
@pytest.mark.parametrize(
    "end",
    [END, NOTICE + ROW + END, BAD, END + SETTING],
    ids=["end", "notice", "error", "setting"],
)
def test_rows_are_taken_and_all_else_is_left(rows: Sequence[bytes], end: bytes, piece: int) -> None:
    piece = max(piece, sum(map(len, rows)) // 100)
    *found, left = read(rows, end, piece)
    assert found == list(rows)
    assert end.startswith(left)  # the rest comes later, on the socket itself
    assert left


def test_of_a_row_that_is_cut_off_all_bytes_are_left(piece: int) -> None:
    *found, left = read(SHORT, ROW[:-3], piece, ends=True)
    assert found == SHORT
    assert left == ROW[:-3]


def test_what_is_no_copy_is_left(piece: int) -> None:
    server = Server(BAD, piece, ends=False)
    own = CopySocket(server, 4_096, lambda: None)  # type: ignore[arg-type]
    assert not own.begin()
    assert server.left == BAD
    server.close()


def test_what_is_left_may_be_more_than_a_pair_of_sockets_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = socket.socketpair

    def small() -> tuple[socket.socket, socket.socket]:
        ours, theirs = pair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        return ours, theirs

    row = message(b"d", b"z" * 100_000 + b"\n")[:-1]
    server = Server(BEGIN + row, 1 << 30, ends=True)
    monkeypatch.setattr(socket, "socketpair", small)
    own = CopySocket(server, 1 << 20, lambda: None)  # type: ignore[arg-type]
    assert own.begin()
    assert list(own.rows()) == []
    assert server.left == BEGIN + row
    server.close()


def test_a_long_row_has_its_buffer_only_while_it_is_read() -> None:
    rows = b"".join(message(b"d", row) for row in [*LONG, *SHORT * 20])
    server = Server(BEGIN + rows + END, 1 << 30, ends=False)
    own = CopySocket(server, 4_096, lambda: None)  # type: ignore[arg-type]
    assert own.begin()
    sizes = [len(own._bytes) for _block in own.rows()]
    assert max(sizes) > 300_000
    assert sizes[-1] == 4_096
    server.close()


@pytest.mark.parametrize("status", [b"I", b"T", b"E"])
def test_a_number_before_a_size_is_not_taken_for_the_end(status: bytes) -> None:
    ready = message(b"Z", status)
    assert is_ready(ready)
    for index, byte in [(0, 0), (4, 4), (5, 0)]:
        other = bytearray(ready)
        other[index] = byte
        assert not is_ready(bytes(other)), index
    assert not is_ready(ready[1:])


def is_ready(content: bytes) -> bool:
    """Whether these bytes seem to be the end of an answer."""
    server = Server(BEGIN, 1 << 30, ends=False)
    own = CopySocket(server, 4_096, lambda: None)  # type: ignore[arg-type]
    assert own.begin()
    server._server.sendall(content)
    assert own._read(1)
    found = own._is_ready()
    server.close()
    return found


@pytest.mark.parametrize("is_whole", [True, False])
def test_letters_that_are_a_number_of_fields_take_no_memory_of_their_own(is_whole: bool) -> None:
    size = 1 << 20
    row = message(b"d", b"\0d" + b"d" * size)  # of a hundred fields
    content = np.frombuffer(row if is_whole else row[:-1], np.uint8)
    tracemalloc.start()
    starts, length = _rows_in(content, b"\0d")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (starts.tolist(), length) == (([0], len(row)) if is_whole else ([], 0))
    assert peak < 4 * size
