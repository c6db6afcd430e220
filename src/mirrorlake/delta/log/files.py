"""The files of a table's log, in a local folder or on object storage.

A local log is checked many times per second, for thousands of tables: so paths are texts, and a
check is one `stat`. On object storage a check is one request, and several files are read in
parallel.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirrorlake.delta.log.listed import newest_commit
from mirrorlake.delta.log.names import commit, whole_checkpoint
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.small_files import content_of
from mirrorlake.storage.urls import addressed, is_url

if TYPE_CHECKING:
    from mirrorlake.storage.objects import ObjectStore

FOLDER = "_delta_log"
READERS = 16
"""Parallel requests for the commits of one table."""

_AFTER_VERSIONS = ":"
"""Sorts after the names of all commits and checkpoints, which begin with digits."""


class LogFiles(Protocol):
    """The folder of a log. Names are relative to it; every method may raise OSError."""

    def names(self) -> list[str]:
        """The names of the files in the folder itself, in no order; empty if it does not exist."""
        ...

    def names_between(self, first: int, last: int) -> Sequence[str]:
        """The names of the commits of these versions, and of checkpoints among them."""
        ...

    def names_from(self, first: int, most: int) -> Sequence[str] | None:
        """The names of the commits of version `first` and all later ones; None if the folder has to
        be listed as a whole, because there are more than `most` or a commit between is missing."""
        ...

    def identity(self, name: str) -> object | None:
        """The identity of a file, which changes if it is replaced; None if it does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        """The contents of files in the order of the names. Raises FileNotFoundError."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A seekable reader. Raises FileNotFoundError."""
        ...


def log_files(location: str | Path, options: ObjectOptions | None = None) -> LogFiles:
    """The log files of the table at a location."""
    if is_url(location):
        store, key = addressed(str(location), options)
        return _ObjectLogFiles(store, f"{key}/{FOLDER}")
    return _LocalLogFiles(f"{location}/{FOLDER}")


class _LocalLogFiles:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            return os.listdir(self._folder)  # noqa: PTH208  (as texts)
        except FileNotFoundError:
            return []

    def names_between(self, first: int, last: int) -> list[str]:
        """Checkpoints in several files, and those with an id in their name, are not found."""
        versions = range(max(first, 0), last + 1)
        names = itertools.chain.from_iterable((commit(v), whole_checkpoint(v)) for v in versions)
        return [name for name in names if self._has(name)]

    def names_from(self, first: int, most: int) -> Sequence[str] | None:
        found: list[str] = []
        while self._has(name := commit(first + len(found))):
            found.append(name)
            if len(found) > most:
                return None
        end = first + len(found)
        # A listing proves that the first missing commit is the end, and not a gap.
        return found if newest_commit(self._folder, end) < end else None

    def _has(self, name: str) -> bool:
        return os.access(f"{self._folder}/{name}", os.F_OK)

    def identity(self, name: str) -> object | None:
        try:
            facts = os.stat(f"{self._folder}/{name}")  # noqa: PTH116  (as texts)
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    def read(self, name: str) -> bytes:
        return content_of(f"{self._folder}/{name}")

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def open(self, name: str) -> BinaryIO:
        return Path(self._folder, name).open("rb")


class _ObjectLogFiles:
    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def names(self) -> list[str]:
        return [entry.name for entry in self._store.list(self._folder).files]

    def names_between(self, first: int, last: int) -> Sequence[str]:
        return self._store.names_between(self._folder, f"{max(first, 0):020d}", f"{last:020d}.~")

    def names_from(self, first: int, most: int) -> Sequence[str]:  # noqa: ARG002
        return self._store.names_between(self._folder, f"{first:020d}", _AFTER_VERSIONS)

    def identity(self, name: str) -> object | None:
        found = self._store.entry(f"{self._folder}/{name}")
        return found and found.etag

    def read(self, name: str) -> bytes:
        return self._store.read(f"{self._folder}/{name}")

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        with ThreadPoolExecutor(READERS, thread_name_prefix="log") as pool:
            # In portions, which limits how much of a long log is read ahead.
            for start in range(0, len(names), 8 * READERS):
                yield from pool.map(self.read, names[start : start + 8 * READERS])

    def open(self, name: str) -> BinaryIO:
        return self._store.open(f"{self._folder}/{name}")
