"""Selects the Delta command that compacts a table, and its parameters.

The commands do not accept names of files. OPTIMIZE joins, in given partitions, all files below a
size and all files with more than a given share of deleted rows; a single file is not rewritten.
REORG ... APPLY (PURGE) rewrites files with deleted rows, also single ones, and files with columns
that the table does not have. These include files written by MERGE, with the change type, which
cannot be recognized in the log, so it may rewrite all files. Parameters are chosen so that a
command rewrites at most `MOST_ROWS` and `MOST_BYTES`, as a step of `small_files`.

The invariant is that of `small_files`, in each partition: fewer than `FANOUT` files of each size
class, and no larger file with more than `DEAD` deleted rows. Exceptions are files that exceed a
step, and files that Delta would rewrite only together with more than a step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.small_files import DEAD, MOST_BYTES, MOST_ROWS, File, counted

Partition = tuple[tuple[str, str | None], ...]
"""Names of partition columns in data files, with their values as in the log."""

Files = Mapping[Partition, Sequence[File]]

COSTS_ROWS = 100_000
"""Fixed cost of a command, as a number of rows."""

MOST_PARTITIONS = 256
"""Maximum number of partitions per command, which lists them."""

NEVER = 1.0
"""A share of deleted rows that no file exceeds."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The files that a command rewrites. partitions: their partitions; rows: number of rows to
    write; gone: number of deleted rows that are removed; bytes: maximum size of the rewritten files
    of one partition."""

    partitions: tuple[Partition, ...]
    rows: int
    gone: int
    bytes: int

    @property
    def cost(self) -> int:
        """The cost of the command, as a number of rows."""
        return self.rows + COSTS_ROWS


@dataclass(frozen=True, slots=True)
class Join:
    """OPTIMIZE: in each partition, join the files of fewer bytes than `below`, and those with a
    larger share of deleted rows than `dead`."""

    rewrite: Rewrite
    below: int
    dead: float


@dataclass(frozen=True, slots=True)
class Purge:
    """REORG ... APPLY (PURGE): rewrite the files with deleted rows, and possibly others."""

    rewrite: Rewrite


def choose(actions: Iterable[Mapping[str, Any]]) -> Join | Purge | None:
    """The next command for a table with these add actions; None if none is needed."""
    partitions: dict[Partition, list[File]] = {}
    for action in actions:
        index = tuple(sorted((action.get("partitionValues") or {}).items()))
        partitions.setdefault(index, []).append(counted(action))
    return _join_small_files(partitions) or _rewrite_deleted_rows(partitions)


# -- small files ----------------------------------------------------------------------------------


def _join_small_files(partitions: Files) -> Join | None:
    """Join the files of the first size class with too many files in a partition, and all smaller
    files."""
    for bound in compaction.CLASSES:
        ceilings = {index: _ceiling(files, bound) for index, files in partitions.items()}
        crowded = [index for index in ceilings if _are_many(partitions[index], ceilings[index])]
        alike = {index: partitions[index] for index in crowded if ceilings[index] == bound}
        if found := _join_partitions(alike, bound):
            return found
        for index in crowded:
            if found := _join_partition(index, partitions[index], ceilings[index]):
                return found
    return None


def _ceiling(files: Sequence[File], bound: int) -> int:
    """The largest size up to `bound` below which there is no full file: a full file would be
    rewritten with every join."""
    full = [file.bytes for file in files if _is_large(file) and file.left >= MOST_ROWS // 2]
    return min([bound, *full])


def _are_many(files: Sequence[File], ceiling: int) -> bool:
    floor = max((class_ for class_ in compaction.CLASSES if class_ < ceiling), default=0)
    alike = [file for file in files if floor <= file.bytes < ceiling]
    return len(alike) >= compaction.FANOUT and any(map(_has_rows, alike))


def _join_partitions(partitions: Files, below: int) -> Join | None:
    """Join the files of as many of these partitions as fit into one step."""
    limited = list(partitions.items())[:MOST_PARTITIONS]
    return _largest_fitting(
        [(dict(limited[:count]), below) for count in range(1, len(limited) + 1)]
    )


def _join_partition(index: Partition, files: Sequence[File], ceiling: int) -> Join | None:
    """Join as many of the smallest files of a partition as fit into one step."""
    bounds = sorted({file.bytes + 1 for file in files if file.bytes < ceiling})
    return _largest_fitting([({index: files}, below) for below in bounds])


def _largest_fitting(options: Sequence[tuple[Files, int]]) -> Join | None:
    """The last option that fits into one step; each option includes the one before."""

    def is_too_much(option: tuple[Files, int]) -> bool:
        partitions, below = option
        return _rewrite_of(_selected(partitions, below, NEVER)) is None

    fitting = bisect_left(options, True, key=is_too_much)
    return _join(*options[fitting - 1], NEVER) if fitting else None


# -- deleted rows ---------------------------------------------------------------------------------


def _rewrite_deleted_rows(partitions: Files) -> Join | Purge | None:
    """The command that removes the most deleted rows for its cost."""
    commands = [
        command for index, files in partitions.items() for command in _rewrites(index, files)
    ]
    return max(
        commands, key=lambda command: command.rewrite.gone / command.rewrite.cost, default=None
    )


def _rewrites(index: Partition, files: Sequence[File]) -> Iterator[Join | Purge]:
    """Commands that rewrite a file with too many deleted rows: together with files that have a
    larger share of them; additionally with the smallest file, so that it is not a single file; with
    all smaller files; with all files of the partition."""
    rewritable = sorted(filter(_needs_rewrite, files), key=lambda file: file.share, reverse=True)
    if not rewritable:
        return
    least = min(file.bytes for file in files)
    for file in rewritable[: compaction.FANOUT]:
        # Halfway to the next share, because Delta's arithmetic may differ in the last digit.
        smaller = max((other.share for other in files if other.share < file.share), default=0.0)
        dead = (smaller + file.share) / 2
        for below, share in ((0, dead), (least + 1, dead), (file.bytes + 1, NEVER)):
            if join := _join({index: files}, below, share):
                yield join
    if rewrite := _rewrite_of({index: files}):
        yield Purge(rewrite)


def _needs_rewrite(file: File) -> bool:
    """Whether a file should be rewritten. Delta removes files without live rows itself."""
    is_small_enough = 0 < file.left <= MOST_ROWS and file.size <= MOST_BYTES
    return is_small_enough and _is_large(file) and file.share > DEAD


# -- the files of a command -----------------------------------------------------------------------


def _join(partitions: Files, below: int, dead: float) -> Join | None:
    """The OPTIMIZE command with these parameters; None if it exceeds a step or does nothing."""
    taken = _selected(partitions, below, dead)
    if not all(len(files) > 1 and any(map(_has_rows, files)) for files in taken.values()):
        return None
    rewrite = _rewrite_of(taken)
    return Join(rewrite, below, dead) if rewrite else None


def _selected(partitions: Files, below: int, dead: float) -> Files:
    return {
        index: [file for file in files if file.bytes < below or file.share > dead]
        for index, files in partitions.items()
    }


def _rewrite_of(taken: Files) -> Rewrite | None:
    """The rewrite of these files; None if it exceeds a step."""
    files = [file for group in taken.values() for file in group]
    rows = sum(file.left for file in files)
    if rows > MOST_ROWS or sum(file.size for file in files) > MOST_BYTES:
        return None
    most = max(sum(file.bytes for file in group) for group in taken.values())
    return Rewrite(tuple(taken), rows, sum(file.gone for file in files), most)


def _is_large(file: File) -> bool:
    return file.bytes >= compaction.CLASSES[0]


def _has_rows(file: File) -> bool:
    """Whether a file has live rows, or an unknown number of rows."""
    return file.left > 0 or not file.rows
