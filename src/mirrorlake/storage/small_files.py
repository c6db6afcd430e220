"""Reads small local files, of which a log or a feed has hundreds."""

from __future__ import annotations

import os


def content_of(path: str, size: int | None = None) -> bytes:
    """The bytes of a file. size: their number, if known. Raises OSError."""
    # Without a file object, which takes as long as reading the file does.
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if size is None:
            size = os.fstat(handle).st_size
        content = os.read(handle, size + 1)
        if len(content) == size:
            return content
        parts = [content]  # some file systems return less than they were asked for
        while parts[-1]:
            parts.append(os.read(handle, max(size, 4_096)))
        return b"".join(parts)
    finally:
        os.close(handle)
