"""Tables below a root: which there are, and taking whole ones away.

A folder leaves by a rename, so that a reader, and a crash, finds all of a table or nothing. Objects
leave one by one: those of the log last, so that a table that was half taken away when a process
ended is still one, and is taken away again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.table_log import BrokenLog, TableLog, TableSnapshot
from mirrorlake.root import TABLES
from mirrorlake.storage.store import Store


def remove(store: Store, path: str) -> None:
    """Remove the table at a path; there may be none. Raises OSError."""
    keyed = store.keyed(path)
    if keyed is not None:
        keyed.delete_folder(path, FOLDER)
    else:
        store.delete_folder(path)


def put_aside(store: Store, path: str, aside: str) -> None:
    """Move the table at a path, if there is one, in the place of one that was put there before.

    Raises OSError.
    """
    keyed = store.keyed(path)
    if keyed is None:
        store.delete_folder(aside)
        if Path(store.location(path)).exists():
            store.move(path, aside)
        return
    if not _is_copied(store, path, aside):
        keyed.delete_folder(aside, FOLDER)
        keyed.copy_folder(path, aside, FOLDER)
    keyed.delete_folder(path, FOLDER)


def _is_copied(store: Store, path: str, aside: str) -> bool:
    """Whether a process before us has copied all of this very table, and ended in its removal."""
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
    """The paths at which Delta tables lie, at either level below `Tables`.

    known: paths to pass over, without a look at their many files.
    """
    for path in [f"{TABLES}/{name}" for name in store.list(TABLES).folders]:
        if path in known:
            continue
        folders = store.list(path).folders
        if "_delta_log" in folders:
            yield path
            continue
        for inner in [f"{path}/{name}" for name in folders]:
            if inner not in known and "_delta_log" in store.list(inner).folders:
                yield inner
