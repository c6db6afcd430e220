"""What the landing zone asks of a storage.

Paths are relative to the root of one mirrored database, with `/` between their parts, and are made
of names that `landing.names` has made safe; a store refuses every other path.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as a listing shows it. `etag` differs whenever content or identity differ."""

    name: str
    size: int
    modified: float
    etag: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One level of a folder; both parts are sorted by name."""

    files: tuple[Entry, ...]
    folders: tuple[str, ...]


class UnsafePath(ValueError):
    """A path that is absolute, empty, or would leave the root."""


class StorageFailed(OSError):
    """A storage did not give what it has, or not all of it: no fault of what is stored there."""


class Store(Protocol):
    """Durable files below one root.

    Every method that writes is durable when it returns, and all or nothing: a reader never sees
    half of it, also after a crash. A deletion and a move may be undone by a power failure, whole:
    whoever needs them finds that they are not done, and does them again. Nothing retries; the
    caller does.
    """

    def list(self, folder: str) -> Listing:
        """One level of `folder`, of the root for ""; empty when it does not exist.

        Links are not shown, and no link is followed that leaves the root: every other method
        refuses such a path as unsafe.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole file. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A seekable reader of the file as it is now. Raises FileNotFoundError.

        Once the file is replaced it reads the older content still, or raises OSError.
        """
        ...

    def stage(self, path: str) -> AbstractContextManager[BinaryIO]:
        """A writer under an underscore name, which no reader looks at (LZ-021, LZ-131).

        The file is durable when the context ends, and gone when it ends by an exception. An older
        file of the same name is replaced.
        """
        ...

    def publish(self, staged: str, final: str) -> None:
        """Give a staged file its final name, whole or not at all.

        Raises FileExistsError when the final name exists: it is never overwritten (LZ-134). After a
        crash, or an answer that was lost, that may be this very file: compare.
        """
        ...

    def make_folder(self, folder: str) -> None:
        """Make an empty folder, where the storage knows such; there may be one already."""
        ...

    def flush(self, folder: str) -> None:
        """Make the names in a folder durable that it got from others, who may have been killed
        before they had made them so; there may be no such folder."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Write a small new file. Raises FileExistsError."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file in the place of an older one, if there is one."""
        ...

    def move(self, path: str, target: str) -> None:
        """Rename; an existing target is replaced. Raises FileNotFoundError."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; it may be gone already."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all it holds; it may be gone already."""
        ...

    def location(self, path: str) -> str:
        """The place as Spark and other readers address it."""
        ...


def checked(path: str) -> list[str]:
    """The parts of a store path. Raises UnsafePath."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part or "\\" in part for part in parts):
        raise UnsafePath(f"not a path below the root: {path!r}")
    return parts
