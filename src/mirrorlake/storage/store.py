"""The contract of a storage.

Paths are relative to the root of one mirrored database, with `/` as separator, and consist of names
that `landing.names` has encoded; a store rejects every other path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Protocol

from mirrorlake.errors import RecordDamaged
from mirrorlake.storage.options import ObjectOptions


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a listing. `etag` changes whenever content or identity changes."""

    name: str
    size: int
    modified: float
    etag: str


@dataclass(frozen=True, slots=True)
class Listing:
    """One level of a folder; both lists are sorted by name. omits: whether something is left out
    that `unlisted` names; not every storage notices."""

    files: tuple[Entry, ...]
    folders: tuple[str, ...]
    omits: bool = False


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
    """A path that is absolute, empty, or leads out of the root."""


class StorageFailed(OSError):
    """The storage did not return a file, or not all of it, although the file is not at fault."""


class InvalidKey(StorageFailed):
    """A folder has keys that are no paths, because a part of them is empty, `.` or `..`, and its
    storage does not list it with them.

    beside: lists what else it has, but the names that come before `0` as bytes. Raises OSError.
    """

    beside: Callable[[], Listing]


class Store(Protocol):
    """Durable files below one root.

    Every method that writes is durable when it returns, and atomic: readers never see a partial
    result, also after a crash. A deletion or a move may be undone as a whole by a power failure; a
    caller that depends on it finds it undone and repeats it. Methods do not retry; the caller does.
    """

    def list(self, folder: str) -> Listing:
        """One level of `folder`, or of the root for ""; empty if it does not exist.

        Links are not listed, and links that lead out of the root are not followed: every other
        method rejects such a path as unsafe.
        """
        ...

    def read(self, path: str) -> bytes:
        """Read the whole file. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a seekable reader of the current content. Raises FileNotFoundError.

        After the file is replaced, the reader still returns the old content, or raises OSError.
        """
        ...

    def stage(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a writer under an underscore name, which readers ignore (LZ-021, LZ-131).

        The file is durable when the context ends, and deleted if it ends with an exception. An
        existing file of the same name is replaced.
        """
        ...

    def publish(self, staged: str, final: str) -> None:
        """Give a staged file its final name, completely or not at all.

        Raises FileExistsError if the final name exists: it is never overwritten (LZ-134). After a
        crash or a lost response, the existing file may be the same file: compare the content.
        """
        ...

    def make_folder(self, folder: str) -> None:
        """Create an empty folder, if the storage has folders; it may exist already."""
        ...

    def flush(self, folder: str) -> None:
        """Make durable the names that other processes created in a folder and may not have
        flushed before they were killed. The folder need not exist."""
        ...

    def create(self, path: str, content: bytes) -> None:
        """Write a small new file. Raises FileExistsError."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Write a small file, replacing an existing one."""
        ...

    def move(self, path: str, target: str) -> None:
        """Rename; an existing target is replaced. Raises FileNotFoundError."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, which need not exist."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Delete a folder with its content; it need not exist."""
        ...

    def discard_empty_folders(self) -> None:
        """Remove the empty folders that this store created, if the storage has real folders.
        Folders that others created are kept."""
        ...

    def location(self, path: str) -> str:
        """The path or URL of a file or folder, for Spark and other readers."""
        ...

    def options(self, path: str) -> ObjectOptions | None:
        """What another process needs to access a path in addition to its location."""
        ...

    def tree(self, folder: str) -> Mapping[str, Listing] | None:
        """The listings of `folder` and all folders below it, by path, if the storage can list them
        together; None if listing folders one by one takes as many requests. Folders whose name
        begins with an underscore are listed by name, but not entered. Raises OSError."""
        ...

    def unlisted(self, folder: str) -> Sequence[Unlisted]:
        """What `list` omits from a folder, sorted by name."""
        ...

    def keyed(self, path: str) -> KeyedFolders | None:
        """The operations on folders of a storage that has keys instead of folders; None if folders
        can be renamed and removed as a whole."""
        ...


class KeyedFolders(Protocol):
    """Operations on folders of a storage that has only keys.

    They process one key after another, those below the subfolder `last` after all others, so that
    readers can recognize an incomplete folder if the process ends in between.
    """

    def copy_folder(self, folder: str, target: str, last: str) -> None:
        """Copy all keys of a folder, replacing keys of the same names in `target`."""
        ...

    def delete_folder(self, folder: str, last: str = "") -> None:
        """Delete all keys of a folder, if there are any."""
        ...


class FolderStore:
    """Defaults for stores that have real folders and need no options."""

    def options(self, path: str) -> ObjectOptions | None:  # noqa: ARG002  (of the contract)
        return None

    def discard_empty_folders(self) -> None:
        """Does nothing: an empty folder is not worth a request."""

    def tree(self, folder: str) -> Mapping[str, Listing] | None:  # noqa: ARG002
        return None

    def unlisted(self, folder: str) -> Sequence[Unlisted]:  # noqa: ARG002
        return ()

    def keyed(self, path: str) -> KeyedFolders | None:  # noqa: ARG002
        return None


def read_record(store: Store, path: str, hint: str) -> dict[str, Any]:
    """A JSON object of ours, with its `format`. Raises FileNotFoundError, and RecordDamaged with a
    hint for what is none: the disk, or who restored the file, has left a part of it."""
    try:
        record = json.loads(store.read(path))
    except ValueError:
        record = None
    if not isinstance(record, dict) or "format" not in record:
        raise RecordDamaged(
            "a file in which mirrorlake remembers something is damaged",
            where=store.location(path),
            hint=hint,
        )
    return record


def checked(path: str) -> list[str]:
    """The parts of a store path. Raises UnsafePath."""
    parts = path.split("/")
    if any(part in {"", ".", ".."} or "\0" in part or "\\" in part for part in parts):
        raise UnsafePath(f"not a path below the root: {path!r}")
    return parts
