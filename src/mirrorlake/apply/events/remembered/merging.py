"""Decides which events of a batch become rows of their table, and which state is kept of them.

For each key, the last change of each log and the last backfill are kept; for those that may decide
about the row again (`mirror.event_order.resolution`), also the values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.remembered.keyed_files import Adds, KeyedFiles
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.delta.lookup.early_lookup import Search
from mirrorlake.delta.lookup.key_lookup import KeyedRows
from mirrorlake.delta.workspace import TableWorkspace
from mirrorlake.delta.write import flush
from mirrorlake.delta.write.data_files import has_huge
from mirrorlake.mirror.event_order import (
    ORDER,
    RULES,
    UUID_PARTS,
    BatchRecords,
    OrderRule,
    complete,
    deletions,
    every_change,
    parts_of_uuids,
    resolve,
)
from mirrorlake.mirror.event_order.records import SECTION_NAMES
from mirrorlake.mirror.event_order.resolution import DECIDES, Resolution
from mirrorlake.mirror.event_order.rollbacks import INCOMPLETE, TRANSACTION
from mirrorlake.model import keys as codes
from mirrorlake.model import types
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.net_changes import NetChanges
from mirrorlake.model.table import Column

UUID, IDENTITY = "uuid", "identity"

OF_ROW = ["backfill", *SECTION_NAMES, "source_ms"]
"""The columns of a record that its row tells of."""

_FEW = 1_000
"""Records of which each may be a piece of its own."""
_STORED = {pa.string(): types.STRING, pa.bool_(): types.BOOLEAN, pa.int64(): types.LONG}


def key_columns(columns: EventTableColumns, key: Sequence[str]) -> list[Column]:
    """The columns of the key, under internal names."""
    kinds = {one.source: one.type for one in columns}
    names = key_names(key)
    return [Column(name, kinds[source]) for name, source in zip(names, key, strict=True)]


def key_names(key: Sequence[str]) -> list[str]:
    """The internal names of the columns of a key."""
    return [f"k{number}" for number in range(len(key))]


def _order_columns() -> list[Column]:
    """The columns of ORDER as stored in files: unsigned integers as signed ones with the same
    bits."""
    return [Column(one.name, _STORED.get(one.type, types.LONG)) for one in ORDER]


def keys_of(
    workspace: TableWorkspace, key: Sequence[Column], columns: EventTableColumns, files: Adds
) -> KeyedFiles:
    """The records of keys: key, ORDER, DECIDES, uuid, and the values of kept rows."""
    values = [Column(f"v{number}", one.type) for number, one in enumerate(columns)]
    own = [Column(DECIDES, types.BOOLEAN), Column(UUID, types.STRING)]
    names = [one.name for one in key]
    return KeyedFiles.of(workspace, [*key, *_order_columns(), *own, *values], names, files)


def seen_events(workspace: TableWorkspace, files: Adds) -> KeyedFiles:
    """The identities of the events of a table that keeps every event."""
    columns = [Column(IDENTITY, types.BINARY), Column("source_ms", types.LONG)]
    return KeyedFiles.of(workspace, columns, (IDENTITY,), files)


def changes_of(workspace: TableWorkspace, key: Sequence[Column], files: Adds) -> KeyedFiles:
    """Changes of Oracle by their row of a transaction (ST-230)."""
    own = [*(Column(name, types.STRING) for name in TRANSACTION), Column(INCOMPLETE, types.BOOLEAN)]
    return KeyedFiles.of(workspace, [*key, *_order_columns(), *own], TRANSACTION, files)


def files_of(state: EventTableState, workspace: TableWorkspace) -> list[KeyedFiles]:
    """All files of a state."""
    if not state.merges:
        return [seen_events(workspace, state.keys)]
    key = key_columns(state.columns, state.key)
    return [
        keys_of(workspace, key, state.columns, state.keys),
        changes_of(workspace, key, state.changes),
    ]


def stored(order: pa.Table) -> pa.Table:
    """Records with the columns of ORDER, in the form of files."""
    columns = [
        pa.array(contiguous(one).to_numpy().view(np.int64)) if one.type == pa.uint64() else one
        for one in order.columns
    ]
    return pa.table(columns, names=order.column_names)


def as_order(rows: pa.Table) -> pa.Table:
    """The inverse of `stored`."""
    columns = []
    for name in rows.column_names:
        values = rows.column(name)
        if name in ORDER.names and ORDER.field(name).type == pa.uint64():
            values = pa.array(contiguous(values).to_numpy().view(np.uint64))
        columns.append(values)
    return pa.table(columns, names=rows.column_names)


@dataclass(frozen=True, slots=True)
class MergeBatch:
    """n events.

    records: the key and ORDER.
    rows: the columns of the table except its struct.
    uuid: strings.
    transactions: for Oracle, `tx_id` and `row_id` of each event.
    changed: bool, n, whether the event is a change, not a backfill.
    incomplete: bool, n, deletions whose key is NULL.
    """

    records: pa.Table
    rows: pa.Table
    uuid: pa.Array
    transactions: pa.Table | None
    changed: np.ndarray
    incomplete: np.ndarray


@dataclass(frozen=True, slots=True)
class Merged:
    """The effect of a batch.

    keys: the records of keys before `remembered`; changes: the new ones.
    gone: keys that have no row afterwards.
    upserts: the key, UUID and OF_ROW of records, with values, that become the rows of their keys.
    waiting: how many more deletions wait for the preceding event than before (ST-230).
    is_whole: whether all other rows of the table are deleted.
    every_change: what `upserts` has, and `deletion`, of all changes of the keys that the batch
        changes several times, in the order of `event_order.every_change`; None if not asked for.
    records: returns the new records of the keys, which replace those in `stood`; None for none.
    """

    keys: KeyedFiles
    changes: KeyedFiles | None
    gone: pa.Table
    upserts: pa.Table
    waiting: int = 0
    is_whole: bool = False
    every_change: pa.Table | None = None
    records: Callable[[], pa.Table] | None = None
    stood: KeyedRows | None = None

    def remembered(self) -> KeyedFiles:
        """Write the new records of keys. Returns all of them. May run beside the writing of rows;
        the files are durable when it returns."""
        if self.records is None:
            return self.keys
        with flush.flush_in_background():
            return self.keys.put(self.records(), self.stood).compacted()


def merge(
    rule: str,
    guard_ms: int,
    batch: MergeBatch,
    keys: KeyedFiles,
    changes: KeyedFiles | None,
    truncations: pa.Table,
    search: Search | None = None,
    *,
    keeps_changes: bool = False,
) -> Merged | None:
    """Determine the effect of a batch on the rows of its keys; None when all of it was already
    known.

    truncations: ORDER, those of the table. search: finds the known records of some keys; by
    default, `searcher`. keeps_changes: whether every change is asked for.
    """
    key = list(keys.key)
    derived: pa.Table | None = None
    former: pa.Table | None = None
    events, rows, uuid = batch.records, batch.rows, batch.uuid
    if batch.incomplete.any():  # filtering copies
        whole = pa.array(~batch.incomplete)
        events, rows, uuid = (one.filter(whole) for one in (events, rows, uuid))
    touched = events.select(key)
    waiting, remembered = 0, changes
    if changes is not None:
        touched, derived, remembered, waiting, former = _rolled_back(batch, changes, touched, key)
    touched = distinct(touched)
    if truncations.num_rows:
        both = [one for one in (derived, deletions(truncations, touched)) if one is not None]
        derived = pa.concat_tables([one.select([*key, *ORDER.names]) for one in both])
    stood = (search or searcher(keys))(touched)
    known = _with_parts(stood.rows).select(keys.arrow.names)
    found = resolve(RULES[rule], guard_ms, key, as_order(known), events, derived)
    is_new = (found.origin >= known.num_rows).any() or len(found.origin) != known.num_rows
    moved = len(found.upserts) + len(found.restored) + found.deleted.num_rows
    if not is_new and not moved:
        if remembered is changes:
            return None
        none = keys.arrow.empty_table()
        return Merged(keys, remembered, none.select(key), none, waiting)
    own, values = parted(keys.arrow.names)
    rows, facts = rows.rename_columns(values), _facts(events, uuid, keys)
    of_row = [*key, UUID, *OF_ROW]
    becomes, restored = pa.array(found.upserts), pa.array(found.restored)
    upserts = _beside(facts.select(of_row).take(becomes), rows.take(becomes))
    if len(restored):
        held = known.take(restored)
        held = _beside(held.select(of_row), held.select(values).cast(rows.schema))
        upserts = pa.concat_tables([upserts, held])
    order = RULES[rule]
    changed = None
    if keeps_changes:
        before = None if former is None else complete(key, former).derived
        resolved = BatchRecords(as_order(known), events, derived, truncations, before)
        numbers = every_change(order, guard_ms, key, resolved, found)
        pool = _beside(known.select(of_row), known.select(values).cast(rows.schema))
        changed = _changes(resolved, numbers, (pool, _beside(facts.select(of_row), rows)), key)
    kept = rows.schema.empty_table() if order.by_time else rows  # not held longer than needed

    def remembers() -> pa.Table:
        pool = pa.concat_tables([known.select(own), facts]).combine_chunks()
        return records_of(order, found, pool, known.select(values), kept).cast(keys.arrow)

    return Merged(
        keys,
        remembered,
        found.deleted,
        upserts,
        waiting,
        every_change=changed,
        records=remembers,
        stood=stood,
    )


def _changes(
    batch: BatchRecords, numbers: np.ndarray, rows: tuple[pa.Table, pa.Table], key: list[str]
) -> pa.Table:
    """The chosen records of a batch. rows: of the known ones and of the events, with values."""
    known, events = rows
    parts = [known, events]
    if batch.derived is not None:  # deletions, which have no values and no uuid
        own = stored(batch.derived.select([*key, *ORDER.names]))
        columns = [
            own.column(field.name)
            if field.name in own.column_names
            else pa.nulls(own.num_rows, field.type)
            for field in events.schema
        ]
        parts.append(pa.table(columns, schema=events.schema))
    deletion = batch.together(["deletion"]).take(pa.array(numbers)).column(0)
    return pa.concat_tables(parts).take(pa.array(numbers)).append_column("deletion", deletion)


def searcher(keys: KeyedFiles) -> Search:
    """Finds known records, without the columns that follow from their uuid."""
    return partial(keys.find, unread=UUID_PARTS)


def _with_parts(known: pa.Table) -> pa.Table:
    """Records that were read without the columns that follow from their uuid."""
    parts = parts_of_uuids(contiguous(known.column(UUID)))
    for name, values in zip(UUID_PARTS, parts, strict=True):
        known = known.append_column(name, values)
    return known


def net_changes(merged: Merged, rows: pa.Table, key: Sequence[str]) -> NetChanges:
    """The net changes of a table. rows: those of `merged.upserts`; key: the names of the key
    columns in the table."""
    own = [merged.upserts.column(f"k{n}") for n in range(len(key))]
    gone = [merged.gone.column(f"k{n}") for n in range(len(key))]
    both = [
        pa.chunked_array([*a.chunks, *b.chunks], a.type) for a, b in zip(own, gone, strict=True)
    ]
    count = rows.num_rows
    number = np.arange(count)
    return NetChanges(
        keys=pa.table(both, names=list(key)).combine_chunks(),
        reset=np.ones(count + merged.gone.num_rows, bool),
        rows=rows,
        source_row=number,
        code=number,
        first=np.ones(count, bool),
        missing=None,
        base=np.full(count, -1),
        truncate=merged.is_whole,
    )


def records_of(
    rule: OrderRule, found: Resolution, pool: pa.Table, known: pa.Table, rows: pa.Table
) -> pa.Table:
    """The records of the keys of a batch, with values where they may be needed again.

    pool: known records and those of the events, without values; known, rows: the values of both.
    """
    own = pool.take(pa.array(found.origin))
    own = own.set_column(own.column_names.index(DECIDES), DECIDES, pa.array(found.decides))
    if rule.by_time:
        values = [pa.nulls(own.num_rows, field.type) for field in rows.schema]
        return _beside(own, pa.table(values, schema=rows.schema))
    kept = found.held | found.decides
    both = pa.concat_tables([known.cast(rows.schema), rows])
    if own.num_rows <= _FEW and any(map(has_huge, both.columns)):
        return _beside(own, _slices(both, np.where(kept, found.origin, -1)))
    return _beside(own, both.combine_chunks().take(pa.array(found.origin, mask=~kept)))


def _slices(rows: pa.Table, which: np.ndarray) -> pa.Table:
    """Some rows, by their numbers, NULLs for -1, without copies of their values."""
    null = pa.table([pa.nulls(1, field.type) for field in rows.schema], schema=rows.schema)
    parts = (rows.slice(at, 1) if at >= 0 else null for at in which.tolist())
    return pa.concat_tables([rows.slice(0, 0), *parts])


def _beside(one: pa.Table, other: pa.Table) -> pa.Table:
    names = [*one.column_names, *other.column_names]
    return pa.table([*one.columns, *other.columns], names=names)


def parted(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The columns of a record that are its own, and those that are columns of the table."""
    values = [name for name in names if name[0] == "v" and name[1:].isdigit()]
    return [name for name in names if name not in values], values


def _facts(events: pa.Table, uuid: pa.Array, keys: KeyedFiles) -> pa.Table:
    """Events as records of keys, without values."""
    columns = dict(zip(events.column_names, stored(events).columns, strict=True))
    columns[DECIDES] = pa.array(np.zeros(events.num_rows, bool))
    columns[UUID] = uuid
    own, _values = parted(keys.arrow.names)
    schema = pa.schema([keys.arrow.field(name) for name in own])
    return pa.table([columns[name] for name in schema.names], schema=schema)


def distinct(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    return rows.take(pa.array(codes.encode(rows).first)).combine_chunks()


def _rolled_back(
    batch: MergeBatch, changes: KeyedFiles, touched: pa.Table, key: list[str]
) -> tuple[pa.Table, pa.Table, KeyedFiles, int, pa.Table]:
    """The keys that a batch affects, the deletions derived for them, the new state of changes,
    how many more deletions wait, and the changes from which deletions were derived before.

    A deletion by row id may now affect a different key than before. Therefore the rows of all
    transactions with one of the keys are examined.
    """
    assert batch.transactions is not None
    extra = batch.transactions.append_column(INCOMPLETE, pa.array(batch.incomplete))
    whole = pa.table(
        [*batch.records.columns, *extra.columns],
        names=[*batch.records.column_names, *extra.column_names],
    )
    named = pc.and_(extra.column("tx_id").is_valid(), extra.column("row_id").is_valid())
    mine = whole.filter(pc.and_(pa.chunked_array([pa.array(batch.changed)]), named))
    pairs = distinct(mine.select(list(TRANSACTION)))
    before = as_order(changes.find(pairs).rows) if pairs.num_rows else mine.slice(0, 0)
    ours = pa.concat_tables([before.select(mine.column_names), mine])
    there = distinct(ours.select(key).filter(pc.invert(ours.column(INCOMPLETE))))
    touched = distinct(pa.concat_tables([touched, there]))
    related = as_order(changes.find(touched).rows) if touched.num_rows else before
    others = distinct(pa.concat_tables([related.select(list(TRANSACTION)), pairs]))
    stood = changes.find(others)
    known = as_order(stood.rows)
    former = known.select(mine.column_names).combine_chunks()
    found = complete(key, pa.concat_tables([former, mine]).combine_chunks())
    memory = found.memory
    derived = _of_keys(found.derived, touched)
    if memory.num_rows == known.num_rows:
        return touched, derived, changes, 0, former
    new = pa.table(stored(memory).columns, names=memory.column_names).select(changes.arrow.names)
    now = changes.put(new.cast(changes.arrow), stood).compacted()
    waited = len(complete(key, former).waiting) if pc.any(former[INCOMPLETE]).as_py() else 0
    return touched, derived, now, len(found.waiting) - waited, former


def rolled_back(changes: KeyedFiles, keys: pa.Table) -> pa.Table:
    """The deletions of some keys that the known changes derive: the key columns and ORDER."""
    key = keys.column_names
    related = as_order(changes.find(keys).rows)
    known = as_order(changes.find(distinct(related.select(list(TRANSACTION)))).rows)
    names = [*key, *ORDER.names, *TRANSACTION, INCOMPLETE]
    return _of_keys(complete(key, known.select(names).combine_chunks()).derived, keys)


def _of_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows with one of these keys."""
    if not rows.num_rows or not keys.num_rows:
        return rows.slice(0, 0)
    both = pa.concat_tables([keys, rows.select(keys.column_names)]).combine_chunks()
    code = codes.encode(both).code
    return rows.filter(pa.array(code[keys.num_rows :] < keys.num_rows))
