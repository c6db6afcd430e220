"""What a table is known by, and what the catalog says of it now. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId

REWRITTEN = -1
"""In the place of the file of a partitioned table, which has none: its partitions were rewritten,
or others, while columns were there that the stream had not described."""


@dataclass(frozen=True, slots=True)
class Known:
    """A table as it was recognised last, at some place in the log.

    columns: name by number (attnum), captured or not; former: other names that columns once had;
    last: the highest number that was given. node: the file of its rows, or REWRITTEN. partitions:
    the file of each leaf by its oid, None for a table that is not partitioned. links: by which
    transaction each table below it became a partition, by its oid, as far as it is known.
    published: by which members of our publications it is published; each exists once. at: the end
    of the log when the catalog was looked at for the first of this: what ended before says nothing
    of it. loaded: the point at which the table was loaded, 0/0 where that is not known.
    """

    columns: Mapping[int, str]
    former: frozenset[str]
    last: int
    node: int
    partitions: Mapping[int, int] | None
    published: frozenset[str]
    links: Mapping[int, int] = field(default_factory=dict)
    at: Lsn = field(default_factory=lambda: Lsn(0))
    loaded: Lsn = field(default_factory=lambda: Lsn(0))

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        partitions = plain["partitions"]
        return cls(
            {int(number): name for number, name in plain["columns"].items()},
            # An earlier release kept the numbers of dropped columns too.
            frozenset(plain["former"] if "former" in plain else plain["dropped"].values()),
            plain["last"],
            plain["node"],
            None if partitions is None else {int(oid): node for oid, node in partitions.items()},
            frozenset(plain["published"]),
            {int(oid): link for oid, link in plain.get("links", {}).items()},
            Lsn.parse(plain.get("at", "0/0")),
            Lsn.parse(plain.get("loaded", "0/0")),
        )

    def plain(self) -> dict[str, Any]:
        """As JSON can carry it; `of` reads it."""
        partitions = self.partitions
        return {
            "columns": {str(number): name for number, name in self.columns.items()},
            "former": sorted(self.former),
            "last": self.last,
            "node": self.node,
            "partitions": partitions and {str(oid): node for oid, node in partitions.items()},
            "published": sorted(self.published),
            "links": {str(oid): link for oid, link in self.links.items()},
            "at": str(self.at),
            "loaded": str(self.loaded),
        }


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column in the catalog. name: None once it is dropped; changed: the transaction that wrote
    this of it; missing: the value that rows from before it was added have, which the log never
    told: its text, which may differ between partitions, and none for NULL."""

    number: int
    name: str | None
    changed: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows. changed: the transaction that wrote this of it."""

    name: TableId
    node: int
    changed: int


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table in the catalog now. at: the end of the log, not before the look; attributes: in the
    order of their numbers, without generated ones; last: the highest number of any; leaves: by
    oid, None for a table that is not partitioned; links: as in `Known`."""

    at: Lsn
    last: int
    node: int
    attributes: tuple[Attribute, ...]
    leaves: Mapping[int, Leaf] | None = None
    published: frozenset[str] = field(default_factory=frozenset)
    links: Mapping[int, int] = field(default_factory=dict)

    @property
    def columns(self) -> dict[int, str]:
        return {a.number: a.name for a in self.attributes if a.name is not None}

    def known(self) -> Known:
        """The table, taken as it is."""
        leaves = self.leaves
        return Known(
            columns=self.columns,
            former=frozenset(),
            last=self.last,
            node=self.node,
            partitions=None if leaves is None else {oid: one.node for oid, one in leaves.items()},
            published=self.published,
            links=self.links,
            at=self.at,
        )


def is_before(transaction: int, other: int) -> bool:
    """Whether a transaction got its number before another; numbers begin again after 4 billion.

    Not before means nothing about commits, and neither does before, of transactions that overlap.
    """
    if transaction < _FIRST_NORMAL:  # frozen by an old release, or made with the database
        return other >= _FIRST_NORMAL
    return (transaction - other) & 0xFFFFFFFF > 0x7FFFFFFF


_FIRST_NORMAL = 3
