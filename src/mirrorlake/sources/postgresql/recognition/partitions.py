"""What happened to single partitions: the log has no message about it for a captured table.

A file that changed is a truncation, or a rewriting that looks like one. A truncation of the whole
table is in the stream, perhaps later than the catalog shows it, so it counts for the partition
alone only when the stream has passed it. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from mirrorlake.sources.postgresql.recognition.known import Known, Leaf, TableLook, is_before


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
