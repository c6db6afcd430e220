"""What happened to single partitions: the log has no message about it for a captured table.

A file that changed is a truncation, or a rewriting that looks like one. A truncation of the whole
table is in the stream, perhaps later than the catalog shows it, so it counts for the partition
alone only when the stream has passed it. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mirrorlake.model.keys import ColumnBounds
from mirrorlake.sources.postgresql.recognition.known import Known, Leaf, TableLook, is_before

MOST = 8
"""Ranges of a table that are read again one by one; if there are more, all of it is."""
_BOUNDS = re.compile(r"FOR VALUES FROM \((.+)\) TO \((.+)\)")
_WHOLE_NUMBER = re.compile(r"'?(-?\d+)'?")
_DAY = re.compile(r"'(\d{4}-\d\d-\d\d)'")
_FIRST = re.compile(r"0001-01-01( 00:00:00(\+00)?)?")
_MOMENT = re.compile(r"'(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(\+00)?)'")


@dataclass(frozen=True, slots=True)
class PartitionsDiffer:
    """Why rows of partitions differ. within: rows that do not are outside of these; none where any
    row of the table may."""

    reason: str
    within: tuple[ColumnBounds, ...] = ()


def bounds_of(column: str, kind: str, expression: str) -> ColumnBounds | None:
    """The bounds of a partition by ranges of one column, of this type; None for others.

    expression: as PostgreSQL prints it, with dates in ISO and times in UTC.
    """
    found = _BOUNDS.fullmatch(expression)
    if found is None:
        return None
    form = _WHOLE_NUMBER if kind.startswith("int") else _DAY if kind == "date" else _MOMENT
    ends: list[str | None] = []
    for text, unbounded in zip(found.groups(), ("MINVALUE", "MAXVALUE"), strict=True):
        value = form.fullmatch(text)
        if value is None and text != unbounded:
            return None
        ends.append(value[1] if value else None)
    if ends[1] and _FIRST.fullmatch(ends[1]):
        return None  # an infinity below it becomes just this day
    return ColumnBounds(column, *ends)


def within(known: Known, look: TableLook, replaced: Mapping[int, Leaf]) -> tuple[ColumnBounds, ...]:
    """The bounds of all partitions that were removed, added or replaced; none where these are not
    known, or say nothing: rows of a partition that had other bounds meanwhile are outside of them,
    and with other columns any row may differ."""
    is_every = bool(look.leaves) and replaced.keys() == (look.leaves or {}).keys()
    if is_every or attached_again(known, look) or look.columns != known.columns:
        return ()
    gone = (known.partitions or {}).keys() - (look.leaves or {}).keys()
    found = {known.bounds.get(oid) for oid in gone}
    found |= {leaf.bounds for leaf in added(known, look).values()}
    for oid, leaf in replaced.items():
        is_alike = known.bounds.get(oid) == leaf.bounds or oid in added(known, look)
        found.add(leaf.bounds if is_alike else None)
    # What is known of a partition has the name that its column had then.
    now = {one.column for one in look.bounds.values()}
    names = {look.columns[number] for number in known.key or ()} & now
    if len(found) > MOST or any(one is None or one.column not in names for one in found):
        return ()
    return tuple(sorted((one for one in found if one is not None), key=str))


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """How far the stream is in the log of a table.

    truncated: the transactions that were seen to truncate it; changed: those that bring rows of it
    now; ended: those that end now.
    """

    truncated: Collection[int] = ()
    changed: Collection[int] = ()
    ended: Collection[int] = ()

    def is_beyond(self, leaf: Leaf) -> bool:
        """Whether a truncation of the table by which the leaf changed would have been seen."""
        if leaf.changed in self.ended:
            return True
        return any(is_before(leaf.changed, transaction) for transaction in self.changed)


def removed(known: Known, look: TableLook, described: Collection[int] = ()) -> str | None:
    """What happened to a partition that is gone. described: those that the stream has described."""
    if gone := {*(known.partitions or {}), *described} - (look.leaves or {}).keys():
        number = f"{len(gone)} partitions were" if len(gone) > 1 else "a partition was"
        return f"{number} detached or dropped, with rows that are not in the log"
    return None


def attached_again(known: Known, look: TableLook) -> str | None:
    """What happened to a partition that was detached for a while, with its rows or not."""
    if any(known.links.get(oid, link) != link for oid, link in look.links.items()):
        return "a partition was detached and attached again, and its changes are not in the log"
    return None


def is_written_anew(known: Known, look: TableLook) -> bool:
    """Whether all that the catalog has of a table was written anew, as attaching and detaching it
    do: what it has of the table itself, and of each of its columns that is still there."""
    before, now = known.entries, look.entries
    both = before.keys() & now.keys()
    return {0} < both and all(before[number] != now[number] for number in both)


def added(known: Known, look: TableLook) -> Mapping[int, Leaf]:
    """Partitions that are new, by oid."""
    leaves = look.leaves or {}
    return {oid: leaf for oid, leaf in leaves.items() if oid not in (known.partitions or {})}


def written_by(known: Known, look: TableLook, transactions: Collection[int]) -> Known:
    """The table, where partitions are known by their files of now that these transactions wrote."""
    if known.partitions is None:
        return known
    leaves = look.leaves or {}
    files = {
        oid: leaves[oid].node if oid in leaves and leaves[oid].changed in transactions else node
        for oid, node in known.partitions.items()
    }
    return replace(known, partitions=files)


def replaced(known: Known, look: TableLook, progress: StreamProgress) -> dict[int, Leaf]:
    """Partitions whose rows are in another file, for which there is no reason yet. A new partition
    was made with a file of its own number."""
    return {
        oid: leaf
        for oid, leaf in (look.leaves or {}).items()
        if (known.partitions or {}).get(oid, oid) != leaf.node
        and leaf.changed not in progress.truncated
    }
