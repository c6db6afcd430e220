"""The identity of a landed file among files of the same name: its size, time and last bytes.

The time alone proves nothing, because copies of a landing zone change it. The end of a Parquet file
identifies its content, and is read only if the time differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mirrorlake.landing.scan import Landed
from mirrorlake.storage.store import StorageFailed, Store

TAIL = 64 * 1024
"""Number of last bytes: they contain the footer, with statistics of every column, and rows."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a file when it was applied. tail: a digest of its last bytes."""

    size: int
    modified: float
    tail: str

    @classmethod
    def of(cls, store: Store, file: Landed) -> Self | None:
        """The identity of a file; None if it cannot be read any more."""
        try:
            return cls(file.size, file.modified, tail_of(store, file))
        except OSError:
            return None

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError, ValueError."""
        return cls(int(record["size"]), float(record["modified"]), str(record["tail"]))

    def as_record(self) -> dict[str, Any]:
        return {"size": self.size, "modified": self.modified, "tail": self.tail}


class Tails:
    """Digests of the last bytes of files, cached while the files do not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, file: Landed) -> str:
        """The digest of a file, "" if the file cannot be read."""
        known = self._known.get(file.path)
        if known is None or known[0] != file.etag:
            try:
                known = file.etag, tail_of(self._store, file)
            except OSError:
                return ""
            self._known[file.path] = known
        return known[1]


def first_changed(store: Store, files: Sequence[Landed]) -> Landed | None:
    """The first of these files that no longer exists or differs from its listing; None if there is
    none. If the storage does not answer, the first file."""
    folders = {file.path.rpartition("/")[0] for file in files}
    try:
        now = {
            f"{location}/{entry.name}": entry.etag
            for location in folders
            for entry in store.list(location).files
        }
    except StorageFailed:
        now = {}
    return next((file for file in files if now.get(file.path) != file.etag), None)


def tail_of(store: Store, file: Landed) -> str:
    """A digest of the last bytes. Raises OSError."""
    with store.open(file.path) as handle:
        handle.seek(max(file.size - TAIL, 0))
        return hashlib.sha256(handle.read(TAIL)).hexdigest()[:32]
