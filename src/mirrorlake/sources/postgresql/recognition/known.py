"""What a table is known by, and its current state in the catalog. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Self

from mirrorlake.errors import BadValue, PublishedOtherwise, TableError, UnsupportedColumn
from mirrorlake.model.keys import ColumnBounds
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.postgresql.foreign_text import ForeignText
from mirrorlake.sources.postgresql.publishing import generated_columns, left_out
from mirrorlake.sources.postgresql.publishing.left_out import LeftOut
from mirrorlake.sources.postgresql.recognition.row_identity import RowIdentity

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
    of it. loaded: the point at which the table was loaded, 0/0 where that is not known. types: what
    each column becomes in the mirror, by its number; written: which transaction wrote the facts of
    each column in the catalog. key, append_only: as `SourceTable` has them, the key by number; None
    where it is not known; indexes: as in `RowIdentity`. An earlier release knew none of the five.
    bounds: of the leaves, as `Leaf` has them, as far as they are known; attached: those that were
    tables before, with the end of the log when they were seen first, until that is reached. texts:
    as `Attribute.text`, of each column where it is known. publications: which transaction wrote the
    options of each publication that carries it, by the oid of that; none where it is not known.
    entries: as in `TableLook`, at the last look; none where an earlier release looked last.
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
    types: Mapping[int, str] = field(default_factory=dict)
    written: Mapping[int, int] = field(default_factory=dict)
    key: tuple[int, ...] | None = None
    append_only: str = ""
    indexes: tuple[int, ...] = ()
    bounds: Mapping[int, ColumnBounds] = field(default_factory=dict)
    attached: Mapping[int, Lsn] = field(default_factory=dict)
    texts: Mapping[int, int] = field(default_factory=dict)
    publications: Mapping[int, int] = field(default_factory=dict)
    entries: Mapping[int, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether a change finds its row by all columns."""
        return self.key == () and not self.append_only

    @property
    def key_names(self) -> tuple[str, ...] | None:
        """The key by the names of its columns."""
        return None if self.key is None else tuple(self.columns[number] for number in self.key)

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
            _by_number(plain.get("types", {})),
            _by_number(plain.get("written", {})),
            None if plain.get("key") is None else tuple(plain["key"]),
            plain.get("append_only", ""),
            tuple(plain.get("indexes", ())),
            {int(oid): ColumnBounds(*said) for oid, said in plain.get("bounds", {}).items()},
            {int(oid): Lsn.parse(at) for oid, at in plain.get("attached", {}).items()},
            _by_number(plain.get("texts", {})),
            _by_number(plain.get("publications", {})),
            _by_number(plain.get("entries", {})),
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
            "types": {str(number): kind for number, kind in self.types.items()},
            "written": {str(number): by for number, by in self.written.items()},
            "key": None if self.key is None else list(self.key),
            "append_only": self.append_only,
            "indexes": list(self.indexes),
            "bounds": {str(oid): [*astuple(one)] for oid, one in self.bounds.items()},
            "attached": {str(oid): str(at) for oid, at in self.attached.items()},
            "texts": {str(number): text for number, text in self.texts.items()},
            "publications": {str(oid): by for oid, by in self.publications.items()},
            "entries": {str(number): by for number, by in self.entries.items()},
        }


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column in the catalog. name: None once it is dropped; changed: the transaction that wrote
    this of it; missing: the value that rows from before it was added have, which is not in
    the log: its text, which may differ between partitions, and none for NULL; type: what it becomes
    in the mirror; type_oid, modifier: its type in the source; text: as in `PgType`."""

    number: int
    name: str | None
    changed: int
    missing: tuple[str, ...] = ()
    type: str = ""
    type_oid: int = 0
    modifier: int = -1
    text: int = 0


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition that holds rows. changed: the transaction that wrote this of it; bounds: what its
    rows are within, if they have bounds of that form."""

    name: TableId
    node: int
    changed: int
    bounds: ColumnBounds | None = None


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table in the catalog now. at: the end of the log, not before the look; attributes: in the
    order of their numbers, without generated ones; last: the highest number of any; leaves: by
    oid, None for a table that is not partitioned; links: as in `Known`; identity: what identifies
    its rows; is_listed: only some columns are published, of which nothing locks the list; name:
    None where it was not looked for; generated: the transaction that wrote each generated column;
    generated_published: as of `generated_columns.published`; left_out: by its publication;
    publications: as in `Known`, none where they were not looked for; changed: the transaction that
    wrote what the catalog has of the table itself, 0 where that was not looked for; is_partition:
    it is one of another table."""

    at: Lsn
    last: int
    node: int
    attributes: tuple[Attribute, ...]
    leaves: Mapping[int, Leaf] | None = None
    published: frozenset[str] = field(default_factory=frozenset)
    links: Mapping[int, int] = field(default_factory=dict)
    identity: RowIdentity = field(default_factory=lambda: RowIdentity("d"))
    is_listed: bool = False
    name: TableId | None = None
    generated: Mapping[str, int] = field(default_factory=dict)
    generated_published: tuple[tuple[str, ...], ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    publications: Mapping[int, int] = field(default_factory=dict)
    changed: int = 0
    is_partition: bool = False

    @property
    def columns(self) -> dict[int, str]:
        return {a.number: a.name for a in self.attributes if a.name is not None}

    @property
    def types(self) -> dict[int, str]:
        return {a.number: a.type for a in self.attributes if a.name is not None}

    @property
    def texts(self) -> dict[int, int]:
        """As in `Known`."""
        return {a.number: a.text for a in self.attributes if a.name is not None and a.text}

    @property
    def written(self) -> dict[int, int]:
        """The transaction that wrote the facts of each column."""
        return {a.number: a.changed for a in self.attributes if a.name is not None}

    @property
    def entries(self) -> dict[int, int]:
        """The transaction that wrote what the catalog has of the table itself, under 0, and of each
        column, by its number; none where that was not looked for."""
        return {0: self.changed, **self.written} if self.changed else {}

    @property
    def partitions(self) -> dict[int, int] | None:
        """As in `Known`."""
        if self.leaves is None:
            return None
        return {oid: leaf.node for oid, leaf in self.leaves.items()}

    @property
    def bounds(self) -> dict[int, ColumnBounds]:
        """As in `Known`."""
        leaves = self.leaves or {}
        return {oid: leaf.bounds for oid, leaf in leaves.items() if leaf.bounds is not None}

    def refused(
        self, table: TableId, selected: Callable[[str], bool], condition: str | None = None
    ) -> TableError | None:
        """Why the table cannot be captured as it is. selected: whether a column of this name is
        captured; condition: by which the project selects rows."""
        if found := generated_columns.refusal(table, self.generated_published):
            return UnsupportedColumn(found[0], table=str(table), hint=found[1])
        there, chosen = self.name or table, [*filter(selected, self.left_out.columns)]
        if found := left_out.refusal(table, there, self.left_out, chosen, condition):
            return PublishedOtherwise(found[0], table=str(table), hint=found[1])
        for what, remedy in self._foreign(selected):
            return BadValue(
                f"{what} is not UTF-8",
                table=str(table),
                hint=f"{remedy} in the source and run `mirrorlake reset {table}`, or remove "
                f"{table} from source.tables.",
            )
        return None

    def _foreign(self, selected: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """What cannot be read as it is, and what to do about it."""
        if self.name and _is_foreign(self.name.schema, self.name.name):
            yield f"the name {self.name}", _RENAME
        for column in self.attributes:
            if column.name is None or not selected(column.name):
                continue
            if _is_foreign(column.name):
                yield f"the name of column {column.name}", _RENAME
            if _is_foreign(*column.missing):
                what = f"the value of column {column.name} in rows from before it was added"
                yield what, "Update it in all rows, run `vacuum full` on the table"
        for leaf in (self.leaves or {}).values():
            if _is_foreign(leaf.name.schema, leaf.name.name):
                yield f"the name of partition {leaf.name}", _RENAME

    def known(self, selected: Callable[[str], bool] = lambda _name: True) -> Known:
        """The table, taken as it is. selected: whether a column of this name is captured."""
        key, append_only = self.key(selected)
        return Known(
            columns=self.columns,
            former=frozenset(),
            last=self.last,
            node=self.node,
            partitions=self.partitions,
            published=self.published,
            links=self.links,
            at=self.at,
            types=self.types,
            written=self.written,
            key=key,
            append_only=append_only,
            indexes=self.identity.indexes,
            bounds=self.bounds,
            texts=self.texts,
            publications=self.publications,
            entries=self.entries,
        )

    def key(self, selected: Callable[[str], bool]) -> tuple[tuple[int, ...], str]:
        """As `RowIdentity.key`, by number."""
        numbers = {name: number for number, name in self.columns.items()}
        names, reason = self.identity.key([*filter(selected, numbers)])
        return tuple(numbers[name] for name in names), reason


_RENAME = "Rename it"


def _is_foreign(*texts: str) -> bool:
    return any(isinstance(text, ForeignText) for text in texts)


def _by_number(plain: Mapping[str, Any]) -> dict[int, Any]:
    return {int(number): value for number, value in plain.items()}


def is_before(transaction: int, other: int) -> bool:
    """Whether a transaction got its number before another; numbers begin again after 4 billion.

    Not before means nothing about commits, and neither does before, of transactions that overlap.
    """
    if transaction < _FIRST_NORMAL:  # frozen by an old release, or made with the database
        return other >= _FIRST_NORMAL
    return (transaction - other) & 0xFFFFFFFF > 0x7FFFFFFF


_FIRST_NORMAL = 3
