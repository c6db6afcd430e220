"""Partition folders of a table, such as `Day=20260128/Region=eastus` (LZ-059).

An extension that a project must enable. Each partition folder has its own sequence of files,
starting at number 1, and its own cleanup folder; the table folder may have both as well. The names
of the folders are not data: a row has the columns of its file.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.storage.store import Listing
from mirrorlake.storage.tree import Lister

DEEPEST = 8
"""Maximum depth of partition folders. Deeper ones are ignored."""


def is_partition(name: str) -> bool:
    """Whether the name is that of a partition: a name, an equals sign, a value that may be
    empty."""
    return not name.startswith(("_", "=")) and "=" in name


def partitions(store: Lister, folder: str, listing: Listing) -> Iterator[tuple[str, Listing]]:
    """The folders below a table folder that may contain files, with the table folder first, as "".

    Paths are relative to the table folder; each comes with its listing.
    """
    yield "", listing
    yield from _inner(store, folder, "", listing, DEEPEST)


def _inner(
    store: Lister, folder: str, path: str, listing: Listing, levels: int
) -> Iterator[tuple[str, Listing]]:
    for name in listing.folders if levels else ():
        if is_partition(name):
            inner = f"{path}/{name}" if path else name
            found = store.list(f"{folder}/{inner}")
            yield inner, found
            yield from _inner(store, folder, inner, found, levels - 1)
