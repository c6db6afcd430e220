"""Which files of a table to compact: few files, and few rows in them that are gone.

Invariant: after any number of batches a table, or each partition of it, has at most `FANOUT` files
of each size class, `SMALLEST` of the first, and its larger files are at most `DEAD` part dead, as
long as compaction keeps up. The work follows the batches: a row is rewritten once per class that it
passes through, and once more for every `DEAD` part of its file that was deleted. One step never
takes more than `MOST_ROWS`, `MOST_BYTES` and `MOST_FILES`, so that no batch waits longer for it
than for another batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from mirrorlake.delta import statistics as bounds

CLASSES = (1 << 20, 8 << 20, 64 << 20)
"""Sizes in bytes below which a file is of the first, second and third class; above, of none."""

FANOUT = 8
"""Files of one class that are joined to one of the next."""

SMALLEST = 16
"""Files of the first class that are joined by themselves; `FANOUT` of them wait for a batch that
takes them along."""

DEAD = 0.3
"""The part of a larger file that may be dead."""

JOINED_ROWS = 65_536
"""Rows that a batch takes along at most when it joins small files itself."""

JOINED_FILES = 32
"""And how many files."""

MOST_ROWS = 2_000_000
MOST_BYTES = 256 << 20
MOST_FILES = 2_048


@dataclass(frozen=True, slots=True)
class File:
    """A live file. bytes: of all of it; size: those of the rows that are left."""

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
        """The part that is dead."""
        return self.gone / self.rows if self.rows else 0.0

    @property
    def size_class(self) -> int:
        """A file of half the rows that one may have is of none: two of them would not be one."""
        if self.left >= MOST_ROWS // 2:
            return len(CLASSES)
        return sum(self.size >= bound for bound in CLASSES)

    @property
    def is_dead_enough(self) -> bool:
        """Whether it is worth being written anew by itself.

        A small file has its turn when there are enough of its class, unless nothing is left of it.
        A large one of which little is left is not small: it is read like what it was.
        """
        if self.left == 0:
            return True
        fits = self.left <= MOST_ROWS and self.size <= MOST_BYTES
        return fits and self.bytes >= CLASSES[0] and self.gone > DEAD * self.rows


def choose(files: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """The files to write anew together, by their add actions; none when all is well. Those of a
    partition are joined with each other, and partitions are taken together, the most files first.

    The smallest come first, because a batch is slowed by the number of files more than by anything
    else. Files without statistics are left to whoever wrote them.
    """
    parts = _by_partition(files)
    for size_class in range(len(CLASSES)):
        alike = [[file for file in some if file.size_class == size_class] for some in parts]
        due = [some for some in alike if len(some) >= (FANOUT if size_class else SMALLEST)]
        if due:
            due.sort(key=len, reverse=True)
            return _limited([file for some in due for file in sorted(some, key=attrgetter("size"))])
    dead = [file for some in parts for file in some if file.is_dead_enough]
    if not dead:
        return ()
    return (max(dead, key=lambda file: file.share).action,)


def taken_along(files: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Files that a batch can join on its way, which costs less than a commit of its own: the
    smallest ones of a partition, if there are enough of them and all have few rows; none otherwise.
    Not a large one of which little is left: to read it takes longer than a batch."""
    parts = [
        [file for file in some if file.size_class == 0 and file.bytes < CLASSES[0]]
        for some in _by_partition(files)
    ]
    chosen: list[File] = []
    for some in sorted(parts, key=len, reverse=True):
        small = sorted(some, key=attrgetter("size"))[: JOINED_FILES - len(chosen)]
        if len(small) < FANOUT:
            break
        if sum(file.left for file in [*chosen, *small]) <= JOINED_ROWS:
            chosen += small
    return tuple(file.action for file in chosen)


def _by_partition(files: Sequence[Mapping[str, Any]]) -> list[list[File]]:
    """The files whose rows are known, those of each partition together."""
    found: dict[frozenset[tuple[str, str | None]], list[File]] = {}
    for action in files:
        if file := _known(action):
            values = action.get("partitionValues") or {}
            found.setdefault(frozenset(values.items()), []).append(file)
    return list(found.values())


def rows_of(files: Sequence[Mapping[str, Any]]) -> int:
    """How many rows are left in files that were chosen."""
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
    """A file by its add action; when nobody counted its rows, its bytes are known."""
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
