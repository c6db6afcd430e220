"""Several stores combined into one: some folders are in another storage than their root."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import BinaryIO

from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.store import KeyedFolders, Listing, Store, Unlisted, UnsafePath


class MountedStore:
    """A `Store` whose folders `parts`, with their content, are those of another store.

    Paths are the same in both. Content of `rest` below one of the parts is hidden. A file cannot
    move between the two.
    """

    def __init__(self, rest: Store, parts: Sequence[str], elsewhere: Store) -> None:
        self._rest, self._parts, self._elsewhere = rest, tuple(parts), elsewhere

    def __repr__(self) -> str:
        return f"MountedStore({self._rest!r}, {self._parts!r}, {self._elsewhere!r})"

    def list(self, folder: str) -> Listing:
        if folder and self._is_part(folder):
            return self._elsewhere.list(folder)
        listing = self._rest.list(folder)
        inside = f"{folder}/" if folder else ""
        inner = {part.removeprefix(inside) for part in self._parts if part.startswith(inside)}
        if not inner:
            return listing
        # A part is listed from the other store; a parent folder of a part exists if it is in
        # either store.
        parts = {path for path in inner if "/" not in path}
        names = {path.partition("/")[0] for path in inner}
        folders = set(listing.folders) - parts
        if not names <= folders:
            folders |= set(self._elsewhere.list(folder).folders) & names
        return Listing(
            tuple(file for file in listing.files if file.name not in parts),
            tuple(sorted(folders)),
            listing.omits,
        )

    def tree(self, folder: str) -> Mapping[str, Listing] | None:
        return self.at(folder).tree(folder)

    def unlisted(self, folder: str) -> Sequence[Unlisted]:
        return self.at(folder).unlisted(folder)

    def options(self, path: str) -> ObjectOptions | None:
        return self.at(path).options(path)

    def keyed(self, path: str) -> KeyedFolders | None:
        return self.at(path).keyed(path)

    def read(self, path: str) -> bytes:
        return self.at(path).read(path)

    def open(self, path: str) -> BinaryIO:
        return self.at(path).open(path)

    def stage(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self.at(path).stage(path)

    def publish(self, staged: str, final: str) -> None:
        self._both(staged, final).publish(staged, final)

    def make_folder(self, folder: str) -> None:
        self.at(folder).make_folder(folder)

    def flush(self, folder: str) -> None:
        self.at(folder).flush(folder)

    def create(self, path: str, content: bytes) -> None:
        self.at(path).create(path, content)

    def replace(self, path: str, content: bytes) -> None:
        self.at(path).replace(path, content)

    def move(self, path: str, target: str) -> None:
        self._both(path, target).move(path, target)

    def delete(self, path: str) -> None:
        self.at(path).delete(path)

    def delete_folder(self, folder: str) -> None:
        if any(part.startswith(f"{folder}/") for part in self._parts):
            raise UnsafePath(f"a part of it is on another storage: {folder!r}")
        self.at(folder).delete_folder(folder)

    def discard_empty_folders(self) -> None:
        self._elsewhere.discard_empty_folders()
        self._rest.discard_empty_folders()

    def location(self, path: str) -> str:
        return self.at(path).location(path)

    def at(self, path: str) -> Store:
        """The store that contains a path."""
        return self._elsewhere if self._is_part(path) else self._rest

    def _both(self, path: str, other: str) -> Store:
        store = self.at(path)
        if store is not self.at(other):
            raise OSError(errno.EXDEV, "the file would move to another storage", path, None, other)
        return store

    def _is_part(self, path: str) -> bool:
        return any(path == part or path.startswith(f"{part}/") for part in self._parts)
