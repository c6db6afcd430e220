"""Listing, removing and moving the tables below a root.

A folder is removed by a rename, so that readers see the whole table or nothing, also after a crash.
Objects are removed one by one, those of the log last, so that a table whose removal was interrupted
is still recognized as a table, and the removal is repeated.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from pathlib import Path

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.first_commit import has_commit
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.root import TABLES
from mirrorlake.storage.store import KeyedFolders, Store


def remove(store: Store, path: str) -> None:
    """Remove the table at a path, if there is one. Raises OSError."""
    keyed = store.keyed(path)
    if keyed is not None:
        _delete(store, keyed, path)
    else:
        store.delete_folder(path)


def _delete(store: Store, keyed: KeyedFolders, path: str) -> None:
    """Remove all keys of a table except those that represent folders: Hadoop creates such a key for
    Delta, and only Hadoop can remove it. Raises OSError."""
    try:
        keyed.delete_folder(path, FOLDER)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY or has_files(store, path):
            raise


def has_files(store: Store, folder: str) -> bool:
    """Whether there is a file in a folder or below it. Raises OSError."""
    listing = store.list(folder)
    return bool(listing.files) or any(
        has_files(store, f"{folder}/{name}") for name in listing.folders
    )


def put_aside(store: Store, path: str, aside: str) -> None:
    """Move the table at `path`, if there is one, to `aside`, and replace a table there. Raises
    OSError."""
    keyed = store.keyed(path)
    if keyed is None:
        store.delete_folder(aside)
        if Path(store.location(path)).exists():
            store.move(path, aside)
        return
    if not has_files(store, path):
        return
    if not _is_copied(store, path, aside):
        _delete(store, keyed, aside)
        keyed.copy_folder(path, aside, FOLDER)
    _delete(store, keyed, path)


def _is_copied(store: Store, path: str, aside: str) -> bool:
    """Whether an earlier process has copied the whole table, and ended while removing it."""
    try:
        there = TableLog.below(store, aside).snapshot()
        here = TableLog.below(store, path).snapshot() if there.exists else TableSnapshot()
    except BrokenLog:
        return False
    return here.exists and (here.metadata["id"], here.version) == (
        there.metadata["id"],
        there.version,
    )


def delta_tables(store: Store, known: Collection[str] = ()) -> Iterator[str]:
    """The paths of Delta tables, at both levels below `Tables`.

    known: paths to skip, whose many files are not listed.
    """
    for path in [f"{TABLES}/{name}" for name in store.list(TABLES).folders]:
        if path in known:
            continue
        folders = store.list(path).folders
        if FOLDER in folders and _has_log(store, path):
            yield path
            continue
        for inner in [f"{path}/{name}" for name in folders if name != FOLDER]:
            is_new = inner not in known and FOLDER in store.list(inner).folders
            if is_new and _has_log(store, inner):
                yield inner


def _has_log(store: Store, path: str) -> bool:
    """Whether there is a version of a table: while its first rows are being written there is none,
    and on object storage the key of the folder may remain after the table was removed."""
    if store.keyed(path) is not None:
        return bool(store.list(f"{path}/{FOLDER}").files)
    return has_commit(store.location(path))
