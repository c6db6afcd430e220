"""Which of Delta's own commands keeps a table compact, and within what bounds.

Files cannot be named to them. OPTIMIZE joins, in each of some partitions, all files below a size
and all of which more than a share is dead; one that would be alone is left as it is. PURGE writes
files anew that have dead rows, one that is alone too, and such as have columns that the table has
not; those that a MERGE has written are among them, with their kind of change, and the log does not
tell which: it may take all there are. So bounds are chosen such that what a command takes is a step
as `compaction` has them, of `MOST_ROWS` and `MOST_BYTES` at most.

The promise is that of `compaction`, in each partition: fewer than `FANOUT` files of each size
class, and no larger file that is more than `DEAD` part dead. What remains as it is: a file that by
itself is more than a step, and one that Delta would take only together with more than a step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.small_files import DEAD, MOST_BYTES, MOST_ROWS, File, counted

Partition = tuple[tuple[str, str | None], ...]
"""Values of the partition columns, by their names in data files, as the log has them."""

Files = Mapping[Partition, Sequence[File]]

COSTS_ROWS = 100_000
"""What a command costs beside the rows that it writes, in rows."""

MOST_PARTITIONS = 256
"""In one command, which names each of them."""

NEVER = 1.0
"""The share of dead rows that no file exceeds."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a command takes. partitions: in which; rows: that it writes; gone: that it leaves out;
    bytes: of the files of one partition as they are, at most."""

    partitions: tuple[Partition, ...]
    rows: int
    gone: int
    bytes: int

    @property
    def cost(self) -> int:
        """In rows."""
        return self.rows + COSTS_ROWS


@dataclass(frozen=True, slots=True)
class Join:
    """OPTIMIZE: in each partition one file in the place of those of fewer bytes than `below`, and
    of those of which a larger part than `dead` is dead."""

    reach: Reach
    below: int
    dead: float


@dataclass(frozen=True, slots=True)
class Purge:
    """REORG ... APPLY (PURGE): the same with the files that have dead rows, and perhaps others."""

    reach: Reach


def choose(actions: Iterable[Mapping[str, Any]]) -> Join | Purge | None:
    """The next command for a table with these files, by their add actions; None when all is
    well."""
    partitions: dict[Partition, list[File]] = {}
    for action in actions:
        index = tuple(sorted((action.get("partitionValues") or {}).items()))
        partitions.setdefault(index, []).append(counted(action))
    return _joining(partitions) or _mending(partitions)


# -- many files -----------------------------------------------------------------------------------


def _joining(partitions: Files) -> Join | None:
    """Of the first class of which there are too many files somewhere: they and all smaller ones."""
    for bound in compaction.CLASSES:
        ceilings = {index: _ceiling(files, bound) for index, files in partitions.items()}
        needy = [index for index in ceilings if _are_many(partitions[index], ceilings[index])]
        alike = {index: partitions[index] for index in needy if ceilings[index] == bound}
        if found := _together(alike, bound):
            return found
        for index in needy:
            if found := _smallest(index, partitions[index], ceilings[index]):
                return found
    return None


def _ceiling(files: Sequence[File], bound: int) -> int:
    """Below it is no full file, which would be written anew with each of the others."""
    full = [file.bytes for file in files if _is_large(file) and file.left >= MOST_ROWS // 2]
    return min([bound, *full])


def _are_many(files: Sequence[File], ceiling: int) -> bool:
    floor = max((one for one in compaction.CLASSES if one < ceiling), default=0)
    alike = [file for file in files if floor <= file.bytes < ceiling]
    return len(alike) >= compaction.FANOUT and any(map(_is_alive, alike))


def _together(partitions: Files, below: int) -> Join | None:
    """In as many of these partitions as one step may take."""
    some = list(partitions.items())[:MOST_PARTITIONS]
    return _most([(dict(some[:count]), below) for count in range(1, len(some) + 1)])


def _smallest(index: Partition, files: Sequence[File], ceiling: int) -> Join | None:
    """As many of the files of a partition as one step may take, from the smallest on."""
    bounds = sorted({file.bytes + 1 for file in files if file.bytes < ceiling})
    return _most([({index: files}, below) for below in bounds])


def _most(options: Sequence[tuple[Files, int]]) -> Join | None:
    """The last that is no more than a step, of options each of which takes more than the one
    before."""

    def is_too_much(option: tuple[Files, int]) -> bool:
        partitions, below = option
        return _reach(_taken(partitions, below, NEVER)) is None

    fitting = bisect_left(options, True, key=is_too_much)
    return _join(*options[fitting - 1], NEVER) if fitting else None


# -- dead rows ------------------------------------------------------------------------------------


def _mending(partitions: Files) -> Join | Purge | None:
    """Of all ways to mend a file, the one that leaves out most dead rows for what it costs."""
    cures = [cure for index, files in partitions.items() for cure in _cures(index, files)]
    return max(cures, key=lambda one: one.reach.gone / one.reach.cost, default=None)


def _cures(index: Partition, files: Sequence[File]) -> Iterator[Join | Purge]:
    """Commands that take a worn file of a partition: with those that are more dead, with a small
    one beside them so that it is not alone, with all smaller ones, with all there are."""
    worn = sorted(filter(_is_worn, files), key=lambda file: file.share, reverse=True)
    if not worn:
        return
    least = min(file.bytes for file in files)
    for one in worn[: compaction.FANOUT]:
        # Halfway to the next, because Delta's arithmetic may differ in the last digit.
        lesser = max((file.share for file in files if file.share < one.share), default=0.0)
        dead = (lesser + one.share) / 2
        for below, share in ((0, dead), (least + 1, dead), (one.bytes + 1, NEVER)):
            if join := _join({index: files}, below, share):
                yield join
    if reach := _reach({index: files}):
        yield Purge(reach)


def _is_worn(file: File) -> bool:
    """Whether it is worth being written anew. What has no rows left, Delta removes by itself."""
    mendable = 0 < file.left <= MOST_ROWS and file.size <= MOST_BYTES
    return mendable and _is_large(file) and file.share > DEAD


# -- what a command takes -------------------------------------------------------------------------


def _join(partitions: Files, below: int, dead: float) -> Join | None:
    """The command within these bounds, unless it is more than a step, or does nothing."""
    taken = _taken(partitions, below, dead)
    if not all(len(files) > 1 and any(map(_is_alive, files)) for files in taken.values()):
        return None
    reach = _reach(taken)
    return Join(reach, below, dead) if reach else None


def _taken(partitions: Files, below: int, dead: float) -> Files:
    return {
        index: [file for file in files if file.bytes < below or file.share > dead]
        for index, files in partitions.items()
    }


def _reach(taken: Files) -> Reach | None:
    """None when it is more than a step."""
    files = [file for some in taken.values() for file in some]
    rows = sum(file.left for file in files)
    if rows > MOST_ROWS or sum(file.size for file in files) > MOST_BYTES:
        return None
    most = max(sum(file.bytes for file in some) for some in taken.values())
    return Reach(tuple(taken), rows, sum(file.gone for file in files), most)


def _is_large(file: File) -> bool:
    return file.bytes >= compaction.CLASSES[0]


def _is_alive(file: File) -> bool:
    """Whether it has rows, as far as is known."""
    return file.left > 0 or not file.rows
