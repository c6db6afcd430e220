"""The files of a table's log, in a folder or on objects: names, contents, identities.

A local log is looked at many times in a second, for thousands of tables; so its ways are texts, and
a look is one `stat`. On objects a look is one request, and what is read one after another there is
asked for at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import addressed, is_url

if TYPE_CHECKING:
    from mirrorlake.storage.objects import ObjectStore

FOLDER = "_delta_log"
READERS = 16
"""Requests at the same time for the commits of one table."""


class LogFiles(Protocol):
    """The folder of a log. Names are relative to it; every method may raise OSError."""

    def names(self) -> list[str]:
        """What lies in the folder itself, in no order; nothing when there is none."""
        ...

    def identity(self, name: str) -> object | None:
        """What tells a file from another of its name; None when there is none."""
        ...

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        """The contents of files, in the order of the names. Raises FileNotFoundError."""
        ...

    def open(self, name: str) -> BinaryIO:
        """A seekable reader. Raises FileNotFoundError."""
        ...


def log_files(location: str | Path, options: ObjectOptions | None = None) -> LogFiles:
    """The log of the table at a location."""
    if is_url(location):
        store, key = addressed(str(location), options)
        return _OnObjects(store, f"{key}/{FOLDER}")
    return _InFolder(f"{location}/{FOLDER}")


class _InFolder:
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        try:
            return os.listdir(self._folder)  # noqa: PTH208  (as texts)
        except FileNotFoundError:
            return []

    def identity(self, name: str) -> object | None:
        try:
            facts = os.stat(f"{self._folder}/{name}")  # noqa: PTH116  (as texts)
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    def read(self, name: str) -> bytes:
        return Path(self._folder, name).read_bytes()

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        return map(self.read, names)

    def open(self, name: str) -> BinaryIO:
        return Path(self._folder, name).open("rb")


class _OnObjects:
    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def names(self) -> list[str]:
        return [entry.name for entry in self._store.list(self._folder).files]

    def identity(self, name: str) -> object | None:
        found = self._store.entry(f"{self._folder}/{name}")
        return found and found.etag

    def read(self, name: str) -> bytes:
        return self._store.read(f"{self._folder}/{name}")

    def reads(self, names: Sequence[str]) -> Iterator[bytes]:
        with ThreadPoolExecutor(READERS, thread_name_prefix="log") as pool:
            # In portions, so that what is read ahead of a long log stays little.
            for start in range(0, len(names), 8 * READERS):
                yield from pool.map(self.read, names[start : start + 8 * READERS])

    def open(self, name: str) -> BinaryIO:
        return self._store.open(f"{self._folder}/{name}")
