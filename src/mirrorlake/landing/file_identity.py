"""What distinguishes a landed file from another of the same name: its size, its time, and its end.

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
"""Size of the end in bytes: the footer, with statistics of every column, and the last rows."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A file as it was when it was applied. tail: a digest of its last bytes."""

    size: int
    modified: float
    tail: str

    @classmethod
    def of(cls, store: Store, file: Landed) -> Self | None:
        """None if the file does not exist or can no longer be read."""
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
    """The ends of files, read once as long as the files do not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[str, str]] = {}

    def __call__(self, file: Landed) -> str:
        """The end of a file as a digest, empty if it does not exist or cannot be read."""
        known = self._known.get(file.path)
        if known is None or known[0] != file.etag:
            try:
                known = file.etag, tail_of(self._store, file)
            except OSError:
                return ""
            self._known[file.path] = known
        return known[1]


def altered(store: Store, files: Sequence[Landed]) -> Landed | None:
    """The first of these files that no longer exists, or differs from its listing; any of them
    if the storage does not tell."""
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
