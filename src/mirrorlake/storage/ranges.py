"""A reader of one version of a remote file, of which the first request has read the beginning."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import BinaryIO, cast

AHEAD = 4 << 20
"""Bytes per request while a large file is read sequentially."""


def reader(first: bytes, size: int, fetch: Callable[[int, int], bytes | memoryview]) -> BinaryIO:
    """A seekable reader of `size` bytes, which begin with `first`.

    fetch: the bytes from one offset to another; raises OSError if the file was replaced.
    """
    if size <= len(first):
        return io.BytesIO(first)
    return cast("BinaryIO", io.BufferedReader(_Ranges(first, size, fetch), AHEAD))


class _Ranges(io.RawIOBase):
    def __init__(
        self, first: bytes, size: int, fetch: Callable[[int, int], bytes | memoryview]
    ) -> None:
        self._first, self._size, self._fetch = memoryview(first), size, fetch
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "before the beginning")
        self._at = base + offset
        return self._at

    def readall(self) -> bytes:
        """Read the rest by one call: the inherited method reads it in small pieces."""
        return self.read(max(self._size - self._at, 0)) or b""

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        start, end = self._at, min(self._at + len(buffer), self._size)
        if end <= start:
            return 0
        known = end <= len(self._first)
        data = memoryview(self._first[start:end] if known else self._fetch(start, end))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
