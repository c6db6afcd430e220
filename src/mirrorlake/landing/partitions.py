"""Partition folders of a table, such as `Day=20260128/Region=eastus` (LZ-059).

An extension, off unless a project switches it on. Each partition folder has a sequence of files of
its own, which begins at number 1, and a cleanup folder of its own; the table folder itself may have
them too. What the names of the folders say is no data: a row has the columns of its file.
"""

from __future__ import annotations

from collections.abc import Iterator

from mirrorlake.storage.store import Listing
from mirrorlake.storage.tree import Lister

DEEPEST = 8
"""Levels of partition folders. Deeper ones are not looked at."""


def is_partition(name: str) -> bool:
    """Whether a folder is one of a partition: a name, an equals sign, a value that may be empty."""
    return not name.startswith(("_", "=")) and "=" in name


def partitions(store: Lister, folder: str, listing: Listing) -> Iterator[tuple[str, Listing]]:
    """The folders below a table folder in which files may lie, the table folder first, called "".

    Their paths are relative to the table folder; each comes with its listing.
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
