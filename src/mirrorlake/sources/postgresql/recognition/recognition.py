"""Keeps what the tables of one stream are known by in step with the stream, and finds changes that
it does not contain: before a later row leaves the decoder, and whenever `faults` is called."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from mirrorlake.errors import TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.keys import ColumnBounds
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import TableDiffers
from mirrorlake.sources.postgresql.recognition import columns, partitions
from mirrorlake.sources.postgresql.recognition.columns import Followed
from mirrorlake.sources.postgresql.recognition.keys import Captures, RelationDescription, key_of
from mirrorlake.sources.postgresql.recognition.known import (
    REWRITTEN,
    Known,
    Leaf,
    TableLook,
)
from mirrorlake.sources.postgresql.recognition.partitions import PartitionsDiffer, StreamProgress
from mirrorlake.sources.postgresql.recognition.renewals import Renewals
from mirrorlake.sources.postgresql.recognition.table_message import ColumnState, TableMessage
from mirrorlake.sources.selection import matches
from mirrorlake.sources.table import KnownTables, SourceTable


class Catalog(Protocol):
    """What is looked at."""

    def tables(self, tables: Sequence[SourceTable]) -> Mapping[int, TableLook]: ...
    def was_empty(
        self, oid: int, name: TableId, links: Mapping[int, int], /, *, has_rows: bool
    ) -> bool: ...
    def was_made(self, oid: int, links: Mapping[int, int], /) -> bool: ...
    def loses_additions(self) -> bool: ...
    def misses_attachments(self) -> bool: ...
    def was_partition(self, oid: int, /) -> bool: ...
    def await_visible(self, transactions: Collection[int], /) -> None: ...


@dataclass(slots=True)
class Recognition:
    """Of the tables of one stream. Tables without `known` are taken as they are at the first look.

    reached: everything that ends at or before it was decoded. renewals: where its stream has to
    begin anew.
    """

    catalog: Catalog
    tables: Mapping[int, SourceTable]  # by oid
    reached: Lsn = field(default_factory=lambda: Lsn(0))
    renewals: Renewals = field(default_factory=Renewals)
    _known: dict[int, Known] = field(default_factory=dict)
    _looks: dict[int, TableLook] = field(default_factory=dict)  # of the chunk
    _truncated: dict[int, set[int]] = field(default_factory=dict)
    _pending: dict[tuple[int, int, int], Lsn] = field(default_factory=dict)
    _noted: set[int] = field(default_factory=set)
    _early: set[int] = field(default_factory=set)  # partitions with rows from before they are known
    _written: dict[int, tuple[TableMessage, Lsn]] = field(default_factory=dict)
    _were_partitions: dict[int, Lsn] = field(default_factory=dict)  # told as of a look there
    _described: set[int] = field(default_factory=set)  # by the stream, since it began

    def __post_init__(self) -> None:
        self._known = {
            oid: Known.of(table.known) for oid, table in self.tables.items() if table.known
        }

    def begins(self, since: LogPoint) -> None:
        """The stream begins there. A table may have been loaded since that has partitions, or that
        was one when the stream comes to its changes."""
        assert isinstance(since, Lsn)
        self.renewals.began = since
        later = {oid: k for oid, k in self._known.items() if not since.covers(k.loaded)}
        if later and self.catalog.misses_attachments():
            for oid, known in later.items():
                if known.partitions is not None or self.catalog.was_partition(oid):
                    self.renewals.expect(oid, known.loaded)

    def begin(
        self,
        described: Collection[int],
        changed: Collection[int],
        transactions: Collection[int] = (),
    ) -> None:
        """A chunk of these transactions begins, which describes tables, and changes rows of them.

        The catalog is looked at when it shows what all of them did: what is decoded is never newer
        than the look. Raises SourceUnavailable when that takes long.
        """
        self._looks.clear()
        split = {oid for oid, known in self._known.items() if known.partitions is not None}
        if looked_up := self.tables.keys() & {*described, *(split & set(changed))}:
            self.catalog.await_visible(transactions)
            self._looks.update(self.catalog.tables([self.tables[oid] for oid in looked_up]))

    def name(self, oid: int) -> TableId | None:
        """The name that a table has by now, of one that the chunk describes."""
        look = self._looks.get(oid)
        return look.name if look else None

    def described(
        self, oid: int, description: RelationDescription, transaction: int, after: Lsn
    ) -> Followed:
        """The stream describes a table; returns how it changed. after: covers what ended before the
        transaction. Raises TableAltered."""
        table, look = self.tables[oid], self._looks.get(oid)
        if look is None:
            raise _altered(table, "it was dropped")
        self._check(table, self._at_least(oid, look), look)
        self._described.add(oid)
        came_under = self._came_under_another(oid, look)
        known = self._known[oid]
        is_later = known.at > after  # it is known by what the catalog showed later
        is_alike = not is_later or _is_alike(table, known, description, look)
        if not is_alike and self.is_loaded(oid, after):
            return Followed(known, is_former=True)
        if generated := columns.generated(known, look, description, transaction):
            raise _altered(table, f"generated column {generated} was published for a time")
        missed = _missed(table, known, look)
        earlier = _differs(missed, came_under)
        if is_later:
            if not is_alike:
                raise _altered(table, "it was altered while it was loaded")
            if not earlier:
                return Followed(known)
            self._note(oid, _with_publications(known, look))
            return Followed(self._known[oid], differs=earlier)
        found = columns.followed(known, look, description, transaction, captures(table), after)
        if isinstance(found, str):
            raise _altered(table, found)
        self._note(oid, _with_publications(_with_rewritten(found, look), look))
        if not earlier:
            return found
        return replace(found, differs={**earlier, **found.differs, **earlier})

    def described_by(
        self, message: TableMessage, description: RelationDescription, after: Lsn
    ) -> Followed | None:
        """The stream has a message of ours about a table. Returns how it changed; None where that
        is known already. after: as in `described`. Raises TableAltered."""
        table, known = self.tables[message.oid], self._known.get(message.oid)
        if known is None or known.at > after or ColumnState.of(known) != message.before:
            return None  # a row or a load has told something else since
        self._described.add(message.oid)
        look = message.look
        found = columns.looked_at(known, look, description, captures(table), after)
        if isinstance(found, str):
            raise _altered(table, found)
        now = _with_rewritten(found, look)
        if bool(now.append_only) != bool(known.append_only):  # it went to our other publication
            now = replace(now, published=look.published or known.published)
        self._note(message.oid, now)
        return found

    def described_leaf(
        self, oid: int, leaf: int, logged: Collection[str] | None, after: Lsn
    ) -> PartitionsDiffer | None:
        """The stream describes a partition of a table, as of rows in it; of a table without
        partitions it is another table. logged: the columns of its old rows that the log has, None
        for all; after: covers what ended before the transaction. Returns why earlier rows differ,
        None when they do not."""
        known, look = self._known.get(oid), self._looks.get(oid)
        if known is None or look is None or look.leaves is None:
            return None
        if logged is not None and not {*(known.key_names or ())} <= {*logged}:
            return KEY_NOT_LOGGED
        # Rows that came before the look at a new partition may be from before it was detached, and
        # attached with other bounds; a transaction that ended later holds a lock that excludes it.
        if leaf not in (known.partitions or {}):
            self._early.add(leaf)
        elif after < known.attached.get(leaf, after):
            return PartitionsDiffer("a partition may have had other bounds before")
        if self.is_loaded(oid, after):
            return None
        reason = partitions.removed(known, look, [leaf])
        if reason and leaf not in (known.partitions or {}):
            self._expect_renewal(oid, look)
        return PartitionsDiffer(reason) if reason else None

    def was_leaf(self, oid: int, after: Lsn) -> PartitionsDiffer | None:
        """The stream has rows of a table under the name of another one, a partition of which it
        was. after: as in `described_leaf`. Returns why its rows differ, None when they do not, or
        as long as it is a partition: then it is told when it no longer is."""
        look = self._looks.get(oid)
        if look is None or look.is_partition or oid not in self._known:
            return None
        if self.is_loaded(oid, after) or after < self._were_partitions.get(oid, Lsn(0)):
            return None
        self._tell_partition(oid, look)
        return PartitionsDiffer(WAS_PARTITION)

    def is_split(self, oid: int) -> bool:
        """Whether a table has partitions, as far as it is known."""
        known = self._known.get(oid)
        return known is not None and known.partitions is not None

    def is_loaded(self, oid: int, committed: Lsn) -> bool:
        """Whether a transaction whose commit begins there is part of what was loaded of a table."""
        known = self._known.get(oid)
        return known is not None and committed < known.loaded

    def truncated(self, oid: int, transaction: int) -> None:
        """The stream has a truncation of the table."""
        self._truncated.setdefault(oid, set()).add(transaction)

    def is_looked_at(self, oid: int) -> bool:
        """Whether a table of this chunk is described in it, or has partitions."""
        return oid in self._looks

    def changed(
        self, oid: int, transactions: Collection[int], ended: Collection[int]
    ) -> PartitionsDiffer | None:
        """The stream brings rows of these transactions to a table that is looked at. Returns why
        earlier rows differ, None when they do not."""
        progress = StreamProgress(self._truncated.get(oid, ()), transactions, ended)
        return self._partitions_differ(oid, self._looks[oid], progress)

    def faults(
        self, looks: Mapping[int, TableLook]
    ) -> Iterator[tuple[SchemaChangeKind | None, TableError, tuple[ColumnBounds, ...]]]:
        """What was done to these tables, as far as it is known now: None where they cannot go on,
        else why they differ, which is reported once, and within what, as in `TableDiffers`."""
        for oid, look in looks.items():
            if oid not in self.tables:
                continue
            try:
                self._check(self.tables[oid], self._at_least(oid, look), look)
            except TableError as error:
                yield None, error, ()
                continue
            if missed := _missed(self.tables[oid], self._known[oid], look):
                self._note(oid, _with_publications(self._known[oid], look))
                yield SchemaChangeKind.PUBLICATION_CHANGED, self.altered(oid, missed), ()
                continue
            progress = StreamProgress(self._truncated.get(oid, ()))
            came_under = self._came_under_another(oid, look)
            reason = self._rewritten(oid, look)
            found = None if reason else self._partitions_differ(oid, look, progress)
            if came_under:  # which is told once, and says that any row may differ
                found, reason = PartitionsDiffer(came_under), None
            if reason:
                yield SchemaChangeKind.TYPE_CHANGED, self.altered(oid, reason), ()
            elif found:
                differs = self.altered(oid, found.reason)
                yield SchemaChangeKind.PARTITION_CHANGED, differs, found.within

    def renewed(self, at: Lsn) -> Iterator[TableDiffers]:
        """The stream has begun anew behind `at`. Returns the tables that are to be read since."""
        oids = self.renewals.begun(at)
        for oid, look in self.catalog.tables([self.tables[oid] for oid in sorted(oids)]).items():
            self._at_least(oid, look)
            progress = StreamProgress(self._truncated.get(oid, ()))
            found = self._partitions_differ(oid, look, progress)
            reason = found.reason if found else MISSED
            self.renewals.forget(oid)
            kinds = frozenset({SchemaChangeKind.PARTITION_CHANGED})
            yield TableDiffers(self.tables[oid].table, kinds, self.altered(oid, reason))

    def altered(self, oid: int, what: str) -> TableAltered:
        """The error of a table that cannot go on."""
        return _altered(self.tables[oid], what)

    def unseen(self, looks: Mapping[int, TableLook]) -> Iterator[tuple[int, str, bool]]:
        """Changes of columns and keys of these tables, by oid, that the stream has not described
        yet, and whether rows may have other values."""
        for oid, look in looks.items():
            known = self._known.get(oid)
            if known is None:
                continue
            changes, alters = columns.unseen(known, look, captures(self.tables[oid]))
            if not changes and self._began_otherwise(oid, known):
                changes = "its key is back"
            if changes:
                yield oid, changes, alters

    def to_write(self, looks: Mapping[int, TableLook]) -> Iterator[TableMessage]:
        """Messages about those of these tables whose columns, or key, are other ones than the
        stream has described, without those that are written."""
        for oid, look in looks.items():
            known = self._known.get(oid)
            if known is None or look.is_listed:
                continue
            before, now = ColumnState.of(known), look.known(captures(self.tables[oid]))
            if before == ColumnState.of(now) and not self._began_otherwise(oid, known):
                continue
            message = TableMessage(oid, before, look)
            if not (written := self._written.get(oid)) or not written[0].is_like(message):
                yield message

    def _began_otherwise(self, oid: int, known: Known) -> bool:
        """Whether the stream began with another key of a table than it is known by, which had it
        again before the first look, and has not described the table since."""
        if oid in self._described or known.key is None:
            return False
        table = self.tables[oid]
        had = table.key, bool(table.append_only), table.whole_rows
        return had != (known.key_names, bool(known.append_only), known.is_whole)

    def written(self, message: TableMessage, at: Lsn) -> None:
        """The message is in the log."""
        self._written[message.oid] = message, at

    def awaits(self, oid: int, look: TableLook) -> bool:
        """Whether the stream is still to come to a message about a table that looks so."""
        known, (message, at) = self._known.get(oid), self._written.get(oid, (None, Lsn(0)))
        if known is None or message is None or self.reached.covers(at):
            return False
        return message.is_like(TableMessage(oid, ColumnState.of(known), look))

    def known(self, oid: int) -> Known | None:
        """By what a table is known as of what the stream has brought; None before the first look.
        May be called on any thread."""
        return self._known.get(oid)

    @property
    def has_noted(self) -> bool:
        """Whether `noted` would return something."""
        return bool(self._noted)

    def noted(self) -> KnownTables:
        """The tables that are known by something else than at the last call."""
        found = {self.tables[oid].table: self._known[oid].plain() for oid in self._noted}
        self._noted.clear()
        return found

    def _at_least(self, oid: int, look: TableLook) -> Known:
        known = self._known.get(oid) or look.known(captures(self.tables[oid]))
        first = {**look.publications, **known.publications}
        entries = known.entries or look.entries
        self._note(oid, replace(known, publications=first, entries=entries))
        return self._known[oid]

    def _came_under_another(self, oid: int, look: TableLook) -> str | None:
        """Why changes of a table may have come under the name of another one, a partition of which
        it was between two looks. A partition has none of its own."""
        known = self._known[oid]
        if look.is_partition or not look.entries:
            return None
        is_written = partitions.is_written_anew(known, look)
        self._note(oid, replace(known, entries=look.entries))
        if not is_written or not self.catalog.was_partition(oid):
            return None
        self._tell_partition(oid, look)
        return WAS_PARTITION

    def _tell_partition(self, oid: int, look: TableLook) -> None:
        """A table was a partition before this look: it is read again after it."""
        self._were_partitions[oid] = look.at
        self._note(oid, replace(self._known[oid], entries=look.entries))
        self._expect_renewal(oid, look)

    def _expect_renewal(self, oid: int, look: TableLook) -> None:
        """Rows may come under the name of another table than it is now until the stream begins
        anew behind the look; see `Renewals`."""
        if self.catalog.misses_attachments():
            self.renewals.expect(oid, look.at)

    def _note(self, oid: int, known: Known) -> None:
        if self._known.get(oid) != known:
            self._known[oid] = known
            self._noted.add(oid)

    def _check(self, table: SourceTable, known: Known, look: TableLook) -> None:
        if refused := look.refused(table.table, captures(table), condition_of(table)):
            raise refused
        if (missed := _missed(table, known, look)) and self.catalog.loses_additions():
            raise _altered(table, missed)
        if what := columns.altered(known, look, captures(table)):
            raise _altered(table, what)

    def _partitions_differ(
        self, oid: int, look: TableLook, progress: StreamProgress
    ) -> PartitionsDiffer | None:
        """Why rows of partitions differ from what was streamed; they are noted as they are now.
        Where the stream has to begin anew, that is told at once, and noted when it has."""
        known = self._known[oid]
        if known.partitions is None:
            return None
        replaced = partitions.replaced(known, look, progress)
        reason = self._removed_or_added(known, look)
        if reason and self.catalog.misses_attachments():
            is_new = self.renewals.is_new(oid, look)
            if self.renewals.awaits(oid, look):
                return PartitionsDiffer(reason) if is_new else None
        reason = reason or self._replaced(oid, look, replaced, progress)
        if not reason and replaced:
            return None
        node = known.node
        if reason and not look.columns.keys() <= known.columns.keys():
            node = REWRITTEN
        now = replace(known, partitions=look.partitions, links=look.links, bounds=look.bounds)
        self._note(oid, replace(now, node=node, attached=self._attached(known, look)))
        if not reason:
            return None
        return PartitionsDiffer(reason, self._bounds(known, look, replaced))

    def _bounds(
        self, known: Known, look: TableLook, replaced: Mapping[int, Leaf]
    ) -> tuple[ColumnBounds, ...]:
        """The bounds of what differs; none for the whole table."""
        is_early = self._early & partitions.added(known, look).keys()
        if is_early or self.catalog.misses_attachments():
            return ()
        return partitions.within(known, look, replaced)

    def _attached(self, known: Known, look: TableLook) -> dict[int, Lsn]:
        """As `Known.attached`, after this look."""
        pending = {leaf: at for leaf, at in known.attached.items() if not self.reached.covers(at)}
        new = partitions.added(known, look)
        attached = (leaf for leaf in new if not self.catalog.was_made(leaf, known.links))
        return {**pending, **dict.fromkeys(attached, look.at)}

    def _rewritten(self, oid: int, look: TableLook) -> str | None:
        """Why rows differ from what was streamed; they are noted as they are now."""
        self._note(oid, columns.with_texts(self._known[oid], look))
        found = columns.rewritten(self._known[oid], look, captures(self.tables[oid]))
        if found is None:
            return None
        now = _with_rewritten(found, look)
        if partitions.replaced(now, look, StreamProgress()):
            return None  # by themselves too, which is told
        self._note(oid, now)
        return " and ".join(what for _kind, what in found.differs.values())

    def _removed_or_added(self, known: Known, look: TableLook) -> str | None:
        if reason := partitions.removed(known, look) or partitions.attached_again(known, look):
            return reason
        for leaf_oid, leaf in partitions.added(known, look).items():
            is_early = leaf_oid in self._early
            if not self.catalog.was_empty(leaf_oid, leaf.name, known.links, has_rows=is_early):
                return f"partition {leaf.name} was attached with rows that are not in the log"
        return None

    def _replaced(
        self, oid: int, look: TableLook, replaced: Mapping[int, Leaf], progress: StreamProgress
    ) -> str | None:
        known = self._known[oid].partitions or {}
        by_itself = not known.keys() <= replaced.keys()  # else it may be the whole table
        for leaf_oid, leaf in replaced.items():
            is_overdue = self._is_overdue(oid, leaf_oid, leaf, look.at)
            if by_itself or progress.is_beyond(leaf) or is_overdue:
                return f"partition {leaf.name} was truncated or rewritten by itself"
        return None

    def _is_overdue(self, oid: int, leaf_oid: int, leaf: Leaf, at: Lsn) -> bool:
        """Whether the stream has passed the point where this was seen first."""
        return self.reached.covers(self._pending.setdefault((oid, leaf_oid, leaf.node), at))


KEY_NOT_LOGGED = PartitionsDiffer(
    "rows of a partition were changed while its replica identity lacked the key"
)
WAS_PARTITION = (
    "it may have been a partition of another table for a time, whose name its changes had then"
)
MISSED = "a partition was attached or detached, which the server did not notice"
PUT_BACK = "it was taken out of its publication and put back; changes are missing"
ALTERED = "its publication was altered; changes may be missing"
_REWRITING = frozenset({SchemaChangeKind.TYPE_WIDENED, SchemaChangeKind.TYPE_CHANGED})


def _with_rewritten(found: Followed, look: TableLook) -> Known:
    """The table, with the partitions that were written anew with columns of which it is told."""
    if found.known.types != look.types:
        return found.known
    told = [name for name, (kind, _what) in found.differs.items() if kind in _REWRITING]
    by = {look.written[number] for number, name in found.known.columns.items() if name in told}
    return partitions.written_by(found.known, look, by)


def _missed(table: SourceTable, known: Known, look: TableLook) -> str | None:
    """Why changes of a table may be missing in the stream: for a time it was not published, or with
    other options."""
    # A table that gets a key, or loses it, goes from one publication of ours to the other.
    _key, reason = look.key(captures(table))
    has_moved = known.key is not None and bool(reason) != bool(known.append_only)
    is_elsewhere = known.published and look.published and not known.published & look.published
    if is_elsewhere and not has_moved:
        return PUT_BACK
    before = known.publications
    is_altered = any(by != before.get(oid, by) for oid, by in look.publications.items())
    return ALTERED if is_altered else None


def _differs(missed: str | None, came_under: str | None) -> dict[str, tuple[SchemaChangeKind, str]]:
    """Why any earlier row may differ, as in `Followed`."""
    if missed:
        return {"": (SchemaChangeKind.PUBLICATION_CHANGED, missed)}
    return {"": (SchemaChangeKind.PARTITION_CHANGED, came_under)} if came_under else {}


def _with_publications(known: Known, look: TableLook) -> Known:
    """The table, published as the look shows."""
    return replace(
        known,
        published=look.published or known.published,
        publications={**known.publications, **look.publications},
    )


def captures(table: SourceTable) -> Captures:
    """Which of its columns are captured."""
    chosen = table.selection.get("columns")
    return lambda name: chosen is None or matches(name, chosen)


def condition_of(table: SourceTable) -> str | None:
    """By which the project selects rows of it."""
    condition: str | None = table.selection.get("rows")
    return condition


def _is_alike(
    table: SourceTable, known: Known, description: RelationDescription, look: TableLook
) -> bool:
    """Whether a table is described as it is known, as far as it is."""
    chosen, described = captures(table), description.columns
    before = {name: known.types.get(number) for number, name in known.columns.items()}
    if {*filter(chosen, before)} != {*filter(chosen, described)}:
        return False
    if any(before[name] not in {None, described[name]} for name in described if chosen(name)):
        return False
    if known.key is None or look.identity.weak_partition:  # which may be so since later
        return True
    key, append_only = key_of(description, known, known, look, chosen)
    return ({*key}, bool(append_only)) == ({*known.key}, bool(known.append_only))


def _altered(table: SourceTable, what: str) -> TableAltered:
    return TableAltered(
        f"the table was altered in the source: {what}",
        table=str(table.table),
        hint=f"Run `mirrorlake reset {table.table}` to reload it.",
    )
