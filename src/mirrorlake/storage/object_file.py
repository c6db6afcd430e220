"""A reader of one version of an object: small objects by one request, large ones by ranges."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO, cast

from obstore.exceptions import BaseError, PreconditionError

from mirrorlake.storage.store import StorageFailed

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client

WHOLE = 1 << 20
"""Size up to which an object is read by the first request, in bytes."""

_AHEAD = 4 << 20  # bytes per request while a large object is read sequentially

Translated = Callable[[], AbstractContextManager[None]]


def beginning(client: Client, key: str) -> tuple[ObjectMeta, bytes]:
    """The metadata of an object and its first `WHOLE` bytes, by one request."""
    try:
        found = client.get(key, options={"range": (0, WHOLE)})
    except FileNotFoundError:
        raise
    except BaseError:
        meta = client.head(key)
        if meta["size"]:
            raise
        return meta, b""  # an empty range cannot be requested
    return found.meta, found.bytes().to_bytes()


def opened(client: Client, key: str, translated: Translated) -> BinaryIO:
    """A seekable reader. translated: converts errors of the client to those of a store."""
    with translated():
        meta, first = beginning(client, key)
    if meta["size"] <= len(first):
        return io.BytesIO(first)
    raw = _Ranges(client, key, meta, first, translated)
    return cast("BinaryIO", io.BufferedReader(raw, _AHEAD))


class _Ranges(io.RawIOBase):
    def __init__(
        self, client: Client, key: str, meta: ObjectMeta, first: bytes, translated: Translated
    ) -> None:
        self._client, self._key, self._translated = client, key, translated
        self._size, self._etag = meta["size"], meta["e_tag"]
        self._first, self._at = first, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(base + offset, 0)
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        data = self._range(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _range(self, start: int, end: int) -> memoryview:
        if end <= len(self._first):
            return memoryview(self._first)[start:end]
        with self._translated():
            try:
                found = self._client.get(
                    self._key, options={"range": (start, end), "if_match": self._etag}
                )
                return memoryview(found.bytes())
            except PreconditionError:
                raise StorageFailed(
                    errno.ESTALE, "it was replaced while it was read", self._key
                ) from None
