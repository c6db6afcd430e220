"""From messages of pgoutput to changes in columns.

A batch of messages is cut where a relation changes its columns or is truncated; between two cuts
all changes of a relation are decoded together. The decoder keeps what crosses batches: the
relations, the open transaction and its count of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceUnavailable, TableError, TableRecreated
from mirrorlake.model.change import Alteration, SchemaChangeKind
from mirrorlake.model.position import Lsn
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.sources.chunk import (
    Chunk,
    Part,
    SchemaChange,
    TableDiffers,
    TableLost,
    Transactions,
    Truncation,
)
from mirrorlake.sources.postgresql import protocol
from mirrorlake.sources.postgresql.catalog import refusal
from mirrorlake.sources.postgresql.changed_rows import (
    DescribedRelation,
    NotedIn,
    changes_of,
    decoders_of,
)
from mirrorlake.sources.postgresql.protocol import Messages, Relation
from mirrorlake.sources.postgresql.recognition.columns import Followed
from mirrorlake.sources.postgresql.recognition.keys import FULL, RelationDescription
from mirrorlake.sources.postgresql.recognition.old_rows import KeyNotSent
from mirrorlake.sources.postgresql.recognition.partition_rows import PartlyLogged
from mirrorlake.sources.postgresql.recognition.partitions import PartitionsDiffer
from mirrorlake.sources.postgresql.recognition.recognition import KEY_NOT_LOGGED, Recognition
from mirrorlake.sources.postgresql.recognition.table_message import PREFIX, TableMessage
from mirrorlake.sources.postgresql.replication.described_leaves import BEFORE, DescribedLeaves
from mirrorlake.sources.postgresql.types.mapping import Resolve
from mirrorlake.sources.postgresql.types.sent_values import sent_reader
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.selection import matches
from mirrorlake.sources.table import KnownTables, SourceTable


@dataclass(slots=True)
class _Open:
    """The transaction whose commit has not arrived."""

    after: Lsn
    time: datetime
    id: str
    changes: int = 0


@dataclass(slots=True)
class Decoder:
    """Decodes one stream. `tables` are the selected tables as discovered; secret: of messages of
    ours in the log, without which there are none."""

    tables: Mapping[TableId, SourceTable]
    resolve: Resolve
    extremes: Extremes = field(default_factory=Extremes)
    noted: NotedIn = lambda _table, _column, _count: None
    recognition: Recognition | None = None
    keeps: Callable[[str, TableId], bool] = lambda _identity, _name: False
    secret: str = ""
    _relations: dict[int, DescribedRelation] = field(default_factory=dict)
    _former: set[int] = field(default_factory=set)  # described as before they were loaded
    _open: _Open | None = None
    _described: DescribedLeaves = field(init=False)
    _followed: dict[int, Followed] = field(default_factory=dict)  # by message of the batch
    _messages: dict[int, TableMessage] = field(default_factory=dict)  # of the batch, by message
    _leaves: dict[int, tuple[int, int, tuple[str, ...] | None]] = field(default_factory=dict)
    _partly: PartlyLogged = field(default_factory=PartlyLogged)
    _noted: KnownTables = field(default_factory=dict)  # behind the last end in the batch
    _faulty: set[TableId] = field(default_factory=set)
    _names: dict[str, TableId] = field(init=False)  # of the selected tables, by their identity

    def __post_init__(self) -> None:
        self._names = {table.identity: name for name, table in self.tables.items()}
        self._described = DescribedLeaves(lambda oid: str(oid) in self._names)

    @property
    def in_transaction(self) -> bool:
        return self._open is not None

    @property
    def has_noted(self) -> bool:
        """Whether `decode` would report by what tables are known, without any message."""
        return not self.in_transaction and bool(self.recognition and self.recognition.has_noted)

    def decode(self, raw: Sequence[bytes | memoryview], lsns: Sequence[int] | None = None) -> Chunk:
        """The changes in a batch of messages, in the order in which they came.

        lsns: where in the log each message stands; the changes then have the metadata `lsn`.
        Raises TextNeeded; the decoder is of no further use then.
        """
        if not raw:
            nothing = Transactions((), (), (), ())
            known = self.recognition.noted() if self.recognition and self.has_noted else {}
            return Chunk(nothing, (), opens=False, idle=None, size=0, known=known)
        messages = Messages(raw, lsns)
        if unknown := messages.unknown():
            raise SourceUnavailable(
                f"PostgreSQL sent messages of kinds that were not requested: {sorted(unknown)}",
                hint="Capture reconnects, and reads the properties of the slot again.",
            )
        carried = self._open
        transactions, transaction, ordinal = self._transactions(messages)
        parts: list[Part] = list(self._altered(messages, transactions, transaction))
        start = 0
        for barrier in self._barriers(messages):
            parts += self._segment(messages, start, barrier, transactions, transaction, ordinal)
            after = cast("Lsn", transactions.after[transaction[barrier]])
            parts += self._at_barrier(messages, barrier, after, transaction, ordinal)
            start = barrier + 1
        parts += self._segment(messages, start, len(messages), transactions, transaction, ordinal)
        return Chunk(
            transactions,
            parts,
            opens=carried is not None,
            idle=None,
            size=len(messages.raw),
            known=self._noted,
        )

    def passed(self, point: Lsn) -> None:
        """Everything that ends at or before `point` was decoded."""
        if self.recognition:
            self.recognition.reached = max(self.recognition.reached, point)

    # -- transactions ---------------------------------------------------------------------------

    def _transactions(self, messages: Messages) -> tuple[Transactions, np.ndarray, np.ndarray]:
        """The transactions, and for each message its transaction and its ordinal in it."""
        kind, start = messages.kind, messages.start
        begins = np.flatnonzero(kind == protocol.BEGIN)
        commits = np.flatnonzero(kind == protocol.COMMIT)
        carried = self._open
        after = [Lsn(int(v)) for v in messages.int64(start[begins] + 1)]
        times = [_moment(int(v)) for v in messages.int64(start[begins] + 9)]
        ids = [str(v & 0xFFFFFFFF) for v in messages.int32(start[begins] + 17).tolist()]
        ends: list[Lsn | None] = [Lsn(int(v)) for v in messages.int64(start[commits] + 10)]
        if carried:
            after.insert(0, carried.after)
            times.insert(0, carried.time)
            ids.insert(0, carried.id)
        is_open = len(ends) < len(after)
        if is_open:
            ends.append(None)
        transaction = np.cumsum(kind == protocol.BEGIN) - (0 if carried else 1)

        change = _is_change(kind)
        counted = np.cumsum(change)
        before = np.concatenate(([0], counted))[begins]
        bases = np.concatenate(([-carried.changes], before)) if carried else before
        if len(bases) == 0:  # nothing but messages outside transactions
            bases = np.zeros(1, np.int64)
        ordinal = counted - bases[np.clip(transaction, 0, len(bases) - 1)]
        self._open = None
        if is_open:
            self._open = _Open(after[-1], times[-1], ids[-1], int(ordinal[-1]))
        transactions = Transactions(after, ends, times, ids, is_open)
        return transactions, transaction.astype(np.int32), ordinal

    # -- recognition ----------------------------------------------------------------------------

    def _altered(
        self, messages: Messages, transactions: Transactions, transaction: np.ndarray
    ) -> Iterator[TableLost | TableDiffers]:
        """Tables to which something was done that is not in the stream. Found before any row
        of the batch is handed on, as the catalog shows what was done before the last of them."""
        if self.recognition is None:
            return
        ids = np.array([int(xid) for xid in transactions.id], np.int64)
        ended = frozenset(ids[: transactions.closed()].tolist())
        rows = np.flatnonzero(np.isin(messages.kind, np.frombuffer(b"IUD", np.uint8)))
        oids = messages.int32(messages.start[rows] + 1) & 0xFFFFFFFF
        changed = np.unique(oids).tolist()
        found = np.flatnonzero(messages.kind == protocol.RELATION).tolist()
        relations = {index: messages.relation(index) for index in found}
        described = [relation.oid for relation in relations.values()]
        if self._described.last:
            described.append(self._described.last.oid)
        self.recognition.begin(described, changed, np.unique(ids).tolist())
        self._followed.clear()
        self._leaves.clear()
        self._messages = dict(self._own_messages(messages))
        leaves = self._described.of(messages, relations)
        closed, is_behind = transactions.closed(), False  # the last end
        for index in sorted({*relations, *self._messages, *leaves}):
            number = transaction[max(index, 0)]
            if not is_behind and number == closed:
                is_behind, self._noted = True, self.recognition.noted() if closed else {}
            after = cast("Lsn", transactions.after[number])
            if index == BEFORE:
                yield from self._leaf(index, *leaves[index], after)
                continue
            if message := self._messages.get(index):
                yield from self._checked(
                    message.oid, partial(self._follow_message, index, message, after)
                )
                continue
            relation = relations[index]
            follow = partial(self._follow, index, relation, int(ids[number]), after)
            yield from self._checked(relation.oid, follow)
            if index in leaves:
                yield from self._leaf(index, *leaves[index], after)
        for index in np.flatnonzero(messages.kind == protocol.TRUNCATE).tolist():
            for oid in messages.truncated(index):
                self.recognition.truncated(oid, int(ids[transaction[index]]))
        for oid in filter(self.recognition.is_looked_at, changed):
            by_these = frozenset(ids[np.unique(transaction[rows[oids == oid]])].tolist())
            check = partial(self.recognition.changed, oid, by_these, ended)
            yield from self._checked(oid, partial(self._partition, oid, check))
        if not is_behind:
            self._noted = self.recognition.noted() if closed or not transactions.is_open else {}
        if closed:
            self.passed(cast("Lsn", transactions.end[closed - 1]))

    def _follow(
        self, index: int, relation: Relation, transaction: int, after: Lsn
    ) -> TableDiffers | None:
        assert self.recognition is not None
        description = self._description(relation)
        found = self.recognition.described(relation.oid, description, transaction, after)
        self._followed[index] = found
        return self._differing(relation.oid, found)

    def _leaf(
        self, index: int, root: int, relation: Relation, after: Lsn
    ) -> Iterator[TableLost | TableDiffers]:
        """A partition is described, as of rows that come under the name of its root: those of a
        table that is mirrored by itself are missing there."""
        assert self.recognition is not None
        oid, logged = relation.oid, None if relation.identity == FULL else _key_names(relation)
        if index == BEFORE:
            self._partly.described(root, oid, logged)
        else:
            self._leaves[index] = root, oid, logged
        check = partial(self.recognition.described_leaf, root, oid, logged, after)
        yield from self._checked(root, partial(self._partition, root, check))
        was_leaf = partial(self.recognition.was_leaf, oid, after)
        yield from self._checked(oid, partial(self._partition, oid, was_leaf))

    def _follow_message(self, index: int, message: TableMessage, after: Lsn) -> TableDiffers | None:
        assert self.recognition is not None
        description = self._description(message.relation(self._names[str(message.oid)]))
        found = self.recognition.described_by(message, description, after)
        if found is None:
            return None
        self._followed[index] = found
        return self._differing(message.oid, found)

    def _description(self, relation: Relation) -> RelationDescription:
        resolved = {c.name: self.resolve(c.type, c.modifier) for c in relation.columns}
        columns = {name: str(kind.type) for name, kind in resolved.items()}
        texts = {name: kind.text for name, kind in resolved.items() if kind.text}
        return RelationDescription(columns, relation.identity, _key_names(relation), texts)

    def _differing(self, oid: int, found: Followed) -> TableDiffers | None:
        """Why earlier rows of a table have unknown values, if they have."""
        assert self.recognition is not None
        if not found.differs:
            return None
        kinds, reasons = zip(*found.differs.values(), strict=True)
        error = self.recognition.altered(oid, " and ".join(reasons))
        name = self._names[str(oid)]
        return TableDiffers(name, frozenset(kinds), error, tuple(found.saved.values()))

    def _own_messages(self, messages: Messages) -> Iterator[tuple[int, TableMessage]]:
        """What the log has from us about selected tables."""
        for index in np.flatnonzero(messages.kind == protocol.MESSAGE).tolist():
            content = messages.content(index, PREFIX)
            message = content and TableMessage.parse(content, self.secret)
            if message and str(message.oid) in self._names:
                yield index, message

    def _goes_on(self, oid: int, former: TableId, name: TableId) -> bool:
        """Whether a table goes on under its name, although the log has another one: where that, or
        the one that it has got since, is selected."""
        now = self.recognition.name(oid) if self.recognition else None
        return now == former or any(self.keeps(str(oid), one) for one in (name, now) if one)

    def _partition(
        self, oid: int, check: Callable[[], PartitionsDiffer | None]
    ) -> TableDiffers | None:
        """check: returns why rows of partitions of a table differ."""
        assert self.recognition is not None
        if (found := check()) is None:
            return None
        kinds = frozenset({SchemaChangeKind.PARTITION_CHANGED})
        error = self.recognition.altered(oid, found.reason)
        return TableDiffers(self._names[str(oid)], kinds, error, within=found.within)

    def _checked(
        self, oid: int, check: Callable[[], TableDiffers | None]
    ) -> Iterator[TableLost | TableDiffers]:
        """check: returns that earlier rows differ, if they do, and raises TableError."""
        name = self._names.get(str(oid))
        if name is None or name in self._faulty:
            return
        try:
            if differs := check():
                yield differs
        except TableError as error:
            yield self._fault(name, error)

    # -- cuts -----------------------------------------------------------------------------------

    def _barriers(self, messages: Messages) -> Iterator[int]:
        """Where decoding together must stop: a new description of a relation, or a truncation."""
        kinds = np.array([protocol.RELATION, protocol.TRUNCATE, protocol.MESSAGE], np.uint8)
        for index in np.flatnonzero(np.isin(messages.kind, kinds)):
            if messages.kind[index] == protocol.TRUNCATE:
                yield int(index)
            elif messages.kind[index] == protocol.MESSAGE:
                followed = self._followed.get(int(index))
                is_first = followed and self._messages[int(index)].oid not in self._relations
                if followed is not None and (is_first or followed.is_change):
                    yield int(index)
            else:
                relation = messages.relation(int(index))
                known = self._relations.get(relation.oid)
                is_other = known is None or known.relation != relation
                followed = self._followed.get(int(index))
                if is_other or (followed is not None and followed.is_change):
                    yield int(index)

    def _at_barrier(
        self,
        messages: Messages,
        index: int,
        after: Lsn,
        transaction: np.ndarray,
        ordinal: np.ndarray,
    ) -> Iterator[Part]:
        """after: where the commit of the transaction begins."""
        if messages.kind[index] == protocol.TRUNCATE:
            for oid in messages.truncated(index):
                known = self._relations.get(oid)
                if known and known.table and known.table.table not in self._faulty:
                    at = int(transaction[index]), int(ordinal[index])
                    yield Truncation(known.table, *at, messages.metadata(np.array([index])))
            return
        if leaf := self._leaves.get(index):
            self._partly.described(*leaf)
        if message := self._messages.get(index):
            relation = message.relation(self._names[str(message.oid)])
        else:
            relation = messages.relation(index)
        name = TableId(relation.schema, relation.name)
        former = self._names.get(str(relation.oid), name)
        if former != name and self._is_loaded(str(relation.oid), after):
            self._relations[relation.oid] = DescribedRelation(relation, None)
            return
        if former != name and self._goes_on(relation.oid, former, name):
            name = former
        if former != name and former not in self._faulty:
            yield self._fault(former, _renamed(former, name))
        former_table = self._table_of(relation.oid, name)
        self._former.discard(relation.oid)
        try:
            followed = self._followed.get(index)
            known = self._relations[relation.oid] = self._describe(relation, name, after, followed)
            is_change = followed is not None and followed.is_change
            alteration = self._alteration(known, followed) if followed and is_change else None
        except TableError as error:
            yield self._fault(name, error)
            self._relations[relation.oid] = DescribedRelation(relation, None)
            return
        if known.table is None:
            return
        if alteration or (former_table and not _is_alike(known.table, former_table)):
            at = int(transaction[index]), int(ordinal[index])
            yield SchemaChange(known.table, *at, alteration, without_rows=message is not None)

    def _alteration(self, known: DescribedRelation, followed: Followed) -> Alteration:
        """The changes of the columns, with values of the types that they are described with."""
        decoders = {decoder.column: decoder for decoder in known.decoders}
        filled = {
            name: decoders[name].decode(pa.array([text], pa.string()))
            for name, text in followed.filled.items()
            if name in decoders
        }
        return Alteration(
            dict(followed.copied),
            pa.RecordBatch.from_pydict(filled) if filled else None,
            followed.changes,
            dict(followed.saved),
            emptied=followed.emptied,
            gone=followed.gone,
            key=followed.key,
            whole_rows=followed.whole_rows,
        )

    def _is_loaded(self, identity: str, committed: Lsn) -> bool:
        """Whether a transaction is part of what was loaded of a table, so that whatever it says of
        the table is older."""
        return self.recognition is not None and self.recognition.is_loaded(int(identity), committed)

    def _table_of(self, oid: int, name: TableId) -> SourceTable | None:
        """The table as it was described last."""
        known = self._relations.get(oid)
        return known.table if known and oid not in self._former else self.tables.get(name)

    def _describe(
        self, relation: Relation, name: TableId, after: Lsn, followed: Followed | None
    ) -> DescribedRelation:
        """name: of the table in the mirror."""
        if followed is not None and followed.is_former:
            self._former.add(relation.oid)
            return DescribedRelation(relation, None)
        selected = self.tables.get(name)
        if selected is None or selected.table in self._faulty:
            return DescribedRelation(relation, None)
        if selected.identity != str(relation.oid):
            if self._is_loaded(selected.identity, after):
                # It had this name before that table was loaded.
                return DescribedRelation(relation, None)
            raise TableRecreated(
                "the table was dropped and created again in the source",
                table=str(selected.table),
                hint=f"It is loaded anew, or where it stays: `mirrorlake reset {selected.table}`.",
            )
        chosen = selected.selection.get("columns")
        offsets = [
            i for i, c in enumerate(relation.columns) if chosen is None or matches(c.name, chosen)
        ]
        columns = [relation.columns[i] for i in offsets]
        types = [self.resolve(c.type, c.modifier) for c in columns]
        names = [c.name for c in columns]
        if followed is not None and followed.known.key_names is not None:
            selected = replace(
                selected,
                key=followed.known.key_names,
                whole_rows=followed.known.is_whole,
                append_only=followed.known.append_only,
            )
        schema = Schema.of([Column(c.name, t.type) for c, t in zip(columns, types, strict=True)])
        if refused := refusal(selected.table, schema):
            raise refused
        table = replace(selected, schema=schema, source_types=dict(zip(names, types, strict=True)))
        decoders = decoders_of(table, self.extremes, self.noted)
        keys = tuple(
            offsets[names.index(key)] for key in (names if table.whole_rows else table.key)
        )
        readers = tuple(map(sent_reader, decoders))
        return DescribedRelation(relation, table, tuple(offsets), keys, decoders, readers)

    # -- rows -----------------------------------------------------------------------------------

    def _segment(
        self,
        messages: Messages,
        start: int,
        stop: int,
        transactions: Transactions,
        transaction: np.ndarray,
        ordinal: np.ndarray,
    ) -> Iterator[Part]:
        """The changes between two cuts, relation by relation."""
        rows = np.isin(messages.kind[start:stop], np.frombuffer(b"IUD", np.uint8))
        at = start + np.flatnonzero(rows)
        if len(at) == 0:
            return
        oids = messages.int32(messages.start[at] + 1) & 0xFFFFFFFF
        for oid in np.unique(oids):
            known = self._relations.get(int(oid))
            if int(oid) in self._former:
                yield from self._as_before(int(oid), at[oids == oid], transactions, transaction)
            if known is None or known.table is None or known.table.table in self._faulty:
                continue
            mine = self._not_loaded(known.table, at[oids == oid], transactions, transaction)
            if known.table.append_only:  # a publication not made by us may carry more
                mine = mine[messages.kind[mine] == protocol.INSERT]
            if len(mine) == 0:
                continue
            try:
                changes = partial(changes_of, messages, known, known.table)
                unlogged = self._unlogged(known.relation)
                try:
                    yield changes(mine, transaction, ordinal, unlogged)
                except KeyNotSent as lacking:
                    yield self._lacking(int(oid), known, lacking)
                    if len(lacking.rows) < len(mine):
                        left = np.delete(mine, lacking.rows)
                        yield changes(left, transaction, ordinal, unlogged)
            except TableError as error:
                yield self._fault(known.table.table, error)

    def _as_before(
        self, oid: int, rows: np.ndarray, transactions: Transactions, transaction: np.ndarray
    ) -> Iterator[TableLost]:
        """Changes of a table that is described as it was before it was loaded: the load has them,
        as the server describes the table anew once it was altered."""
        name = self._names[str(oid)]
        left = self._not_loaded(self.tables[name], rows, transactions, transaction)
        if len(left) and name not in self._faulty and self.recognition is not None:
            yield self._fault(name, self.recognition.altered(oid, "it was altered while loaded"))

    def _lacking(self, oid: int, known: DescribedRelation, lacking: KeyNotSent) -> Part:
        """What becomes of a table without the changes that lack the key. Raises TableError."""
        if self.recognition is not None and self.recognition.is_split(oid):
            return cast("Part", self._partition(oid, lambda: KEY_NOT_LOGGED))
        if self.recognition is None or known.relation.identity != FULL:
            raise lacking.error from None
        error = self.recognition.altered(oid, "earlier rows had NULL in a column of its key")
        kinds = frozenset({SchemaChangeKind.KEY_CHANGED})
        return TableDiffers(self._names[str(oid)], kinds, error)

    def _not_loaded(
        self,
        table: SourceTable,
        rows: np.ndarray,
        transactions: Transactions,
        transaction: np.ndarray,
    ) -> np.ndarray:
        """The changes of a table that its load did not contain. Those that it did contain may be
        why the table had stopped before."""
        after = cast("Sequence[Lsn]", transactions.after)
        if not self._is_loaded(table.identity, after[transaction[rows[0]]]):
            return rows
        is_loaded = np.array([self._is_loaded(table.identity, one) for one in after])
        left: np.ndarray = rows[~is_loaded[transaction[rows]]]
        return left

    def _unlogged(self, relation: Relation) -> list[list[int]] | None:
        """As of `check_whole`."""
        if self.recognition is None or not self.recognition.is_split(relation.oid):
            return None
        return self._partly.unlogged(relation.oid, [c.name for c in relation.columns])

    def _fault(self, table: TableId, error: TableError) -> TableLost:
        self._faulty.add(table)
        return TableLost(table, error)


def _is_change(kind: np.ndarray) -> np.ndarray:
    return np.isin(kind, np.frombuffer(b"IUDT", np.uint8))


def _is_alike(table: SourceTable, other: SourceTable) -> bool:
    keys = [(one.key, one.whole_rows, bool(one.append_only)) for one in (table, other)]
    is_alike = table.schema == other.schema and table.source_types == other.source_types
    return is_alike and keys[0] == keys[1]


def _moment(microseconds: int) -> datetime:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return epoch + timedelta(microseconds=protocol.POSTGRES_EPOCH + microseconds)


def _renamed(former: TableId, name: TableId) -> TableRecreated:
    return TableRecreated(
        f"the table was renamed to {name} in the source",
        table=str(former),
        hint=f"Rename it back, or add {name} to source.tables, and run `mirrorlake repair "
        f"{former}` to compare it with the source.",
    )


def _key_names(relation: Relation) -> tuple[str, ...]:
    """The columns of old rows that the log contains."""
    return tuple(column.name for column in relation.columns if column.is_key)
