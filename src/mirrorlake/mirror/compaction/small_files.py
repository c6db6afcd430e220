"""Selects the files of a table to compact: small files, and files with many deleted rows.

Invariant, as long as compaction keeps up: each partition of a table has at most `FANOUT` files of
each size class, `SMALLEST` of the first, and at most the share `DEAD` of the rows of a larger file
are deleted. The work is proportional to the batches: a row is rewritten once per size class, and
once more whenever the share `DEAD` of its file was deleted. One step rewrites at most `MOST_ROWS`,
`MOST_BYTES` and `MOST_FILES`, so that no batch waits longer for it than for another batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from mirrorlake.delta import statistics as bounds

CLASSES = (1 << 20, 8 << 20, 64 << 20)
"""Upper bounds of the size classes, in bytes; larger files have no class."""

FANOUT = 8
"""Number of files of one size class that are joined."""

SMALLEST = 16
"""Number of files of the first size class that are joined by a compaction; `FANOUT` or more are
joined by the next batch."""

DEAD = 0.3
"""Maximum share of deleted rows of a file that has no need to be rewritten."""

JOINED_ROWS = 65_536
"""Maximum number of rows of small files that a batch joins."""

JOINED_FILES = 32
"""Maximum number of small files that a batch joins."""

MOST_ROWS = 2_000_000
MOST_BYTES = 256 << 20
MOST_FILES = 2_048


@dataclass(frozen=True, slots=True)
class File:
    """A live file. rows, gone: number of rows, and of deleted rows; bytes: size of the file; size:
    the part of it for live rows."""

    action: Mapping[str, Any]
    rows: int
    gone: int
    size: int

    @property
    def bytes(self) -> int:
        return int(self.action["size"])

    @property
    def left(self) -> int:
        return self.rows - self.gone

    @property
    def share(self) -> float:
        """The share of deleted rows, from 0 to 1."""
        return self.gone / self.rows if self.rows else 0.0

    @property
    def size_class(self) -> int:
        """The index of the size class. A file with half of `MOST_ROWS` live rows or more has none,
        because two of them cannot be joined."""
        if self.left >= MOST_ROWS // 2:
            return len(CLASSES)
        return sum(self.size >= bound for bound in CLASSES)

    @property
    def needs_rewrite(self) -> bool:
        """Whether the file should be rewritten alone because of its deleted rows.

        A small file is joined when there are enough of its class; only if it has no live rows it is
        rewritten alone. A large file with few live rows counts as large, because reading it takes
        as long as before.
        """
        if self.left == 0:
            return True
        fits = self.left <= MOST_ROWS and self.size <= MOST_BYTES
        return fits and self.bytes >= CLASSES[0] and self.gone > DEAD * self.rows


def choose(files: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The add actions of the files to compact in one step; empty if none are needed.

    Files are joined within their partition; partitions with the most files come first. The smallest
    size class comes first, because the number of files has the largest effect on batches. Files
    without statistics are never compacted.
    """
    parts = by_partition(files)
    for size_class in range(len(CLASSES)):
        alike = [[file for file in files_ if file.size_class == size_class] for files_ in parts]
        due = [files_ for files_ in alike if len(files_) >= (FANOUT if size_class else SMALLEST)]
        if due:
            due.sort(key=len, reverse=True)
            return _limited(
                [file for files_ in due for file in sorted(files_, key=attrgetter("size"))]
            )
    dead = [file for files_ in parts for file in files_ if file.needs_rewrite]
    if not dead:
        return ()
    return (max(dead, key=lambda file: file.share).action,)


def files_to_join(files: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The add actions of small files that the next batch should join, which costs less than a
    separate commit: the smallest files of a partition, if there are enough and they have few rows.
    A large file with few live rows is not included, because reading it takes longer than a
    batch."""
    parts = [
        [file for file in group if file.size_class == 0 and file.bytes < CLASSES[0]]
        for group in by_partition(files)
    ]
    chosen: list[File] = []
    for group in sorted(parts, key=len, reverse=True):
        small = sorted(group, key=attrgetter("size"))[: JOINED_FILES - len(chosen)]
        if len(small) < FANOUT:
            break
        if sum(file.left for file in [*chosen, *small]) <= JOINED_ROWS:
            chosen += small
    return tuple(file.action for file in chosen)


def by_partition(files: Sequence[Mapping[str, Any]]) -> list[list[File]]:
    """The files with a known number of rows, grouped by partition."""
    found: dict[frozenset[tuple[str, str | None]], list[File]] = {}
    for action in files:
        if file := _known(action):
            values = action.get("partitionValues") or {}
            found.setdefault(frozenset(values.items()), []).append(file)
    return list(found.values())


def rows_of(files: Sequence[Mapping[str, Any]]) -> int:
    """The number of live rows in files."""
    return sum(file.left for action in files if (file := _known(action)))


def _known(action: Mapping[str, Any]) -> File | None:
    rows = bounds.records(action)
    if rows is None:
        return None
    vector = action.get("deletionVector")
    gone = int(vector["cardinality"]) if vector else 0
    left = 1 - gone / rows if rows else 0
    return File(action, rows, gone, int(action["size"] * left))


def counted(action: Mapping[str, Any]) -> File:
    """The file of an add action, with 0 rows if their number is unknown."""
    return _known(action) or File(action, 0, 0, int(action["size"]))


def _limited(files: Sequence[File]) -> tuple[Mapping[str, Any], ...]:
    chosen: list[Mapping[str, Any]] = []
    rows = size = 0
    for file in files:
        rows, size = rows + file.left, size + file.size
        too_much = rows > MOST_ROWS or size > MOST_BYTES or len(chosen) == MOST_FILES
        if len(chosen) > 1 and too_much:
            break
        chosen.append(file.action)
    return tuple(chosen)
