"""Messages that wait for the end of their transaction: the last of them in memory, all before in a
file without a name, which is gone with the process.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO
from weakref import WeakSet

from mirrorlake.errors import StorageUnavailable

Message = tuple[int, bytes]
"""A message of pgoutput, and where it stands in the log."""

_FRAME = struct.Struct("=IQ")  # bytes of the message, where it stands in the log
_BLOCK = 1 << 20  # bytes that are read at once


class Spool:
    """Messages in the order in which they came. An offset in it is a number of bytes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._written = 0  # bytes in the file, before those in memory
        self._latest = bytearray()

    @property
    def in_memory(self) -> int:
        """Bytes that `write_out` would free."""
        return len(self._latest)

    @property
    def end(self) -> int:
        """The offset behind the last message."""
        return self._written + len(self._latest)

    def append(self, lsn: int, message: bytes) -> None:
        self._latest += _FRAME.pack(len(message), lsn)
        self._latest += message

    def write_out(self) -> None:
        """Move what is in memory to the file. Raises StorageUnavailable."""
        with _explained():
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 it is closed with the spool
            self._file.seek(self._written)
            left = memoryview(self._latest)
            while left:
                left = left[self._file.write(left) :]
        self._written += len(self._latest)
        self._latest = bytearray()

    def cut(self, offset: int) -> None:
        """Forget all messages from an offset on."""
        if offset >= self._written:
            del self._latest[offset - self._written :]
            return
        assert self._file is not None
        self._file.truncate(offset)
        self._written = offset
        self._latest = bytearray()

    def messages(self) -> Iterator[Message]:
        """All of them. The spool is closed afterwards, also if the caller stops early."""
        try:
            read, rest = 0, b""
            while read < self.end:
                block = self._read(read, _missing(rest))
                read += len(block)
                rest, begin = rest + block, 0
                while _missing(rest, begin) <= 0:
                    size, lsn = _FRAME.unpack_from(rest, begin)
                    end = begin + _FRAME.size + size
                    yield lsn, rest[begin + _FRAME.size : end]
                    begin = end
                rest = rest[begin:]
        finally:
            self.close()

    def _read(self, offset: int, least: int) -> bytes:
        """What stands at an offset: `least` bytes or more, if there are so many."""
        if offset >= self._written:
            return bytes(self._latest[offset - self._written :])
        assert self._file is not None
        with _explained():
            self._file.seek(offset)
            block = self._file.read(min(max(least, _BLOCK), self._written - offset))
        assert block, "the file of a transaction is shorter than what was written to it"
        return block

    def close(self) -> None:
        self._latest = bytearray()
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None
        self._written = 0


class Spools:
    """The spools of one connection, which have bounded memory together."""

    def __init__(self, memory: int) -> None:
        """memory: bytes of messages that are not written to files."""
        self._memory = memory
        self._used = 0  # at least as much as is in memory
        self._open: WeakSet[Spool] = WeakSet()

    @property
    def in_memory(self) -> int:
        return sum(spool.in_memory for spool in self._open)

    def new(self) -> Spool:
        spool = Spool()
        self._open.add(spool)
        return spool

    def append(self, spool: Spool, lsn: int, message: bytes) -> None:
        """Raises StorageUnavailable."""
        before = spool.in_memory
        spool.append(lsn, message)
        self._used += spool.in_memory - before
        if self._used > self._memory:
            self._make_room()

    def _make_room(self) -> None:
        while (used := self.in_memory) > self._memory // 2:
            max(self._open, key=lambda spool: spool.in_memory).write_out()
        self._used = used


def _missing(block: bytes, begin: int = 0) -> int:
    """How many bytes of the message that begins at `begin` are not in the block; none for 0 or
    less."""
    there = len(block) - begin
    if there < _FRAME.size:
        return _FRAME.size - there
    size, _lsn = _FRAME.unpack_from(block, begin)
    return int(_FRAME.size + size - there)


@contextmanager
def _explained() -> Iterator[None]:
    """Errors of the file name the folder, and what to do."""
    try:
        yield
    except OSError as error:
        raise StorageUnavailable.of_temporary(
            error,
            "a transaction in progress cannot be kept in a temporary file",
            "Free space there, set TMPDIR to a folder with more, or set source.streaming: "
            "false, so that PostgreSQL keeps transactions until their commit. Nothing is lost.",
        ) from error
