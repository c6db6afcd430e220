"""What the landing zone asks of a storage.

Paths are relative to the root of one mirrored database, with `/` between their parts, and are made
of names that `landing.names` has made safe; a store refuses every other path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import BinaryIO, Protocol

from mirrorlake.storage.options import ObjectOptions


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


class Absence(StrEnum):
    """Why a listing leaves something out."""

    LINK = "a link"
    LINK_OUT = "a link that leads out of the root"
    NAME = "a name that is not a valid path in a store"
    KIND = "neither a file nor a folder"


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Something in a folder that its listing does not show. `name` may have escapes."""

    name: str
    why: Absence


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
        """The path or URL by which Spark and other readers address it."""
        ...

    def options(self, path: str) -> ObjectOptions | None:
        """What another process needs, beside its location, to reach a path."""
        ...

    def tree(self, folder: str) -> Mapping[str, Listing] | None:
        """Every folder that is reached from `folder`, by its path, without entering one whose name
        begins with an underscore: such are shown by their names. None where it takes as much as to
        list them one by one. Raises OSError."""
        ...

    def unlisted(self, folder: str) -> Sequence[Unlisted]:
        """What `list` does not show of a folder, by name."""
        ...

    def keyed(self, path: str) -> KeyedFolders | None:
        """How folders are taken away there, where a storage has keys and no folders; None where a
        folder is renamed and removed whole."""
        ...


class KeyedFolders(Protocol):
    """Folders of a storage that has only keys: what is done to one is done key by key, to those
    below its subfolder `last` last, so that a process that ends in between has not hidden it."""

    def copy_folder(self, folder: str, target: str, last: str) -> None:
        """Copy all keys of a folder. What `target` has of the same names is replaced."""
        ...

    def delete_folder(self, folder: str, last: str = "") -> None:
        """Remove all keys of a folder; there may be none."""
        ...


class FolderStore:
    """What a store has to say whose folders are real, and which needs nothing but its location."""

    def options(self, path: str) -> ObjectOptions | None:  # noqa: ARG002  (of the contract)
        return None

    def tree(self, folder: str) -> Mapping[str, Listing] | None:  # noqa: ARG002
        return None

    def unlisted(self, folder: str) -> Sequence[Unlisted]:  # noqa: ARG002
        return ()

    def keyed(self, path: str) -> KeyedFolders | None:  # noqa: ARG002
        return None


def checked(path: str) -> list[str]:
    """The parts of a store path. Raises UnsafePath."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part or "\\" in part for part in parts):
        raise UnsafePath(f"not a path below the root: {path!r}")
    return parts
