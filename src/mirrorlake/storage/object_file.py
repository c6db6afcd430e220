"""A reader of one version of an object: small objects by one request, large ones by ranges."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO

from obstore.exceptions import BaseError, PreconditionError

from mirrorlake.storage.ranges import reader
from mirrorlake.storage.store import StorageFailed

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore as Client

WHOLE = 1 << 20
"""Size up to which an object is read by the first request, in bytes."""

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

    def fetch(start: int, end: int) -> memoryview:
        with translated():
            try:
                found = client.get(key, options={"range": (start, end), "if_match": meta["e_tag"]})
                return memoryview(found.bytes())
            except PreconditionError:
                raise StorageFailed(
                    errno.ESTALE, "it was replaced while it was read", key
                ) from None

    return reader(first, meta["size"], fetch)
