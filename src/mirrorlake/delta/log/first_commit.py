"""The place of a table that the commit of its first rows creates, on a file system.

Before the first file, a marker is put into the folder of the log. So an attempt that ended before
its commit is known by the next one, which commits beside its files, and files of somebody else are
not taken for those of a table, whose vacuum would delete them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mirrorlake.delta.log.files import FOLDER
from mirrorlake.delta.log.names import is_version
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

MARKER = "_mirrorlake_first_commit"


def is_free(store: Store, path: str) -> bool:
    """Whether the first commit of a table can be made at a path: there is nothing but what an
    attempt left, or the folder of a log without commits. Never on object storage."""
    location = store.location(path)
    if is_url(location) or has_commit(location):
        return False
    return is_begun(location) or (_names(location) <= {FOLDER} and not _is_link(location))


def begin(store: Store, path: str) -> None:
    """Put the marker there, durably. Raises OSError."""
    store.replace(f"{path}/{FOLDER}/{MARKER}", b"")


def is_begun(location: str) -> bool:
    """Whether the marker is there: a folder that was removed since has none."""
    return not is_url(location) and os.path.exists(f"{location}/{FOLDER}/{MARKER}")  # noqa: PTH110


def end(store: Store, path: str) -> None:
    """Remove the marker, after the commit is durable. Once there is a version, it says nothing."""
    if not is_url(store.location(path)):
        with suppress(OSError):
            store.delete(f"{path}/{FOLDER}/{MARKER}")


def has_commit(location: str | Path) -> bool:
    """Whether the log of a local table has a commit or a checkpoint, or cannot be listed."""
    try:
        with os.scandir(Path(location, FOLDER)) as entries:  # which may be many
            return any(is_version(entry.name) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _is_link(location: str) -> bool:
    return Path(location, FOLDER).is_symlink()


def _names(folder: str) -> set[str]:
    """Raises OSError."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except FileNotFoundError:
        return set()
