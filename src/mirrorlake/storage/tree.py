"""Many folders in one listing, for storages that list keys instead of folders.

An object store returns a thousand keys per request, from any number of folders: listing each folder
takes one request per folder, listing all of them one request per thousand keys. Folders with an
underscore name are not listed (LZ-021), because cleanup folders may contain any number of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mirrorlake.storage.store import Entry, Listing, Store

PAGE = 1_000
"""Keys per response of S3 and Google Cloud Storage."""


class Lister(Protocol):
    """Lists one level of a folder, as `Store.list` does."""

    def list(self, folder: str) -> Listing: ...


class ListedTree:
    """A lister of a tree that was read before."""

    def __init__(self, tree: Mapping[str, Listing]) -> None:
        self._tree = tree

    def list(self, folder: str) -> Listing:
        return self._tree.get(folder, Listing((), ()))


def lister_for(store: Store, folder: str) -> Lister:
    """A lister for `folder` and the folders below it that takes the fewest requests: it reads all
    of them now, or it is the store itself. Folders below an underscore name are not included."""
    try:
        tree = store.tree(folder)
    except OSError:
        return store  # which reports for each folder whether it can be read
    return store if tree is None else ListedTree(tree)


class Tree:
    """Converts the keys below `prefix`, in ascending order, to listings."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.inside: str | None = None
        """The underscore folder that contains the last key, if there is one."""
        self._files: dict[str, list[Entry]] = {}
        self._folders: dict[str, dict[str, None]] = {}

    def add(self, key: str, entry: Entry) -> None:
        folder = self.prefix
        *above, _name = key.removeprefix(f"{folder}/").split("/")
        self.inside = None
        for name in above:
            self._folders.setdefault(folder, {})[name] = None
            folder = f"{folder}/{name}" if folder else name
            if name.startswith("_"):
                self.inside = folder
                return
        self._files.setdefault(folder, []).append(entry)

    def listings(self) -> dict[str, Listing]:
        return {
            folder: Listing(
                tuple(sorted(self._files.get(folder, ()), key=lambda f: f.name)),
                tuple(sorted(self._folders.get(folder, ()))),
            )
            for folder in {*self._files, *self._folders}
        }
