"""Which events of a batch become rows of their table, and what is remembered of them.

Of each key the last change of each log and the last backfill are remembered, and of those that may
decide about the row again (`mirror.order.resolution`) its values, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.keyed_files import Adds, KeyedFiles
from mirrorlake.mirror.order import ORDER, RULES, complete, resolve
from mirrorlake.mirror.order.resolution import DECIDES, Resolution
from mirrorlake.mirror.order.rollbacks import INCOMPLETE, TRANSACTION
from mirrorlake.model import keys as codes
from mirrorlake.model import types
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.net import NetChanges
from mirrorlake.model.table import Column

UUID = "uuid"

_STORED = {pa.string(): types.STRING, pa.bool_(): types.BOOLEAN, pa.int64(): types.LONG}


def key_columns(columns: EventTableColumns, key: Sequence[str]) -> list[Column]:
    """The columns of the key, under names of ours."""
    kinds = {one.source: one.type for one in columns}
    return [Column(f"k{number}", kinds[name]) for number, name in enumerate(key)]


def _order_columns() -> list[Column]:
    """ORDER, as files hold it: numbers without sign as those of the same bits."""
    return [Column(one.name, _STORED.get(one.type, types.LONG)) for one in ORDER]


def keys_of(
    folder: Path, key: Sequence[Column], columns: EventTableColumns, files: Adds
) -> KeyedFiles:
    """The records of keys: key, ORDER, DECIDES, uuid, and the values of rows that are held."""
    values = [Column(f"v{number}", one.type) for number, one in enumerate(columns)]
    own = [Column(DECIDES, types.BOOLEAN), Column(UUID, types.STRING)]
    names = [one.name for one in key]
    return KeyedFiles.of(folder, [*key, *_order_columns(), *own, *values], names, files)


def changes_of(folder: Path, key: Sequence[Column], files: Adds) -> KeyedFiles:
    """Changes of Oracle by their row of a transaction (ST-230)."""
    own = [*(Column(name, types.STRING) for name in TRANSACTION), Column(INCOMPLETE, types.BOOLEAN)]
    return KeyedFiles.of(folder, [*key, *_order_columns(), *own], TRANSACTION, files)


def stored(order: pa.Table) -> pa.Table:
    """Records with the columns of ORDER, as files hold them."""
    columns = [
        pa.array(contiguous(one).to_numpy().view(np.int64)) if one.type == pa.uint64() else one
        for one in order.columns
    ]
    return pa.table(columns, names=order.column_names)


def as_order(rows: pa.Table) -> pa.Table:
    """The opposite of `stored`."""
    columns = []
    for name in rows.column_names:
        values = rows.column(name)
        if name in ORDER.names and ORDER.field(name).type == pa.uint64():
            values = pa.array(contiguous(values).to_numpy().view(np.uint64))
        columns.append(values)
    return pa.table(columns, names=rows.column_names)


@dataclass(frozen=True, slots=True)
class MergeBatch:
    """n events. records: the key and ORDER; rows: with the columns of the table but its struct;
    uuid: texts; transactions: of Oracle, `tx_id` and `row_id` of each; changed: bool, n, no
    backfill; incomplete: bool, n, deletions whose key is NULL."""

    records: pa.Table
    rows: pa.Table
    uuid: pa.Array
    transactions: pa.Table | None
    changed: np.ndarray
    incomplete: np.ndarray


@dataclass(frozen=True, slots=True)
class Merged:
    """What a batch does. keys, changes: what is remembered; gone: keys that are left without a row;
    upserts: records, with values, that become the rows of their keys; parked: deletions that wait
    for the event before them (ST-230)."""

    keys: KeyedFiles
    changes: KeyedFiles | None
    gone: pa.Table
    upserts: pa.Table
    parked: int = 0


def merge(
    rule: str, guard_ms: int, batch: MergeBatch, keys: KeyedFiles, changes: KeyedFiles | None
) -> Merged | None:
    """Find what a batch does to the rows of its keys; None when all of it was known."""
    key = list(keys.key)
    derived: pa.Table | None = None
    touched = batch.records.select(key).filter(pa.array(~batch.incomplete))
    parked, remembered = 0, changes
    if changes is not None:
        touched, derived, remembered, parked = _rolled_back(batch, changes, touched, key)
    events = batch.records.filter(pa.array(~batch.incomplete))
    rows = batch.rows.filter(pa.array(~batch.incomplete))
    uuid = batch.uuid.filter(pa.array(~batch.incomplete))
    distinct = _distinct(touched)
    known = keys.find(distinct)
    found = resolve(RULES[rule], guard_ms, key, as_order(known), events, derived)
    is_new = (found.origin >= known.num_rows).any() or len(found.origin) != known.num_rows
    moved = len(found.upserts) + len(found.restored) + found.deleted.num_rows
    if not is_new and not moved:
        if remembered is changes:
            return None
        none = keys.arrow.empty_table()
        return Merged(keys, remembered, none.select(key), none, parked)
    pool = pa.concat_tables([known, _full(events, rows, uuid, keys)]).combine_chunks()
    upserts = pool.take(pa.array(np.concatenate((known.num_rows + found.upserts, found.restored))))
    remembers = _remembered(rule, found, pool, keys)
    return Merged(
        keys.put(remembers, distinct).compacted(), remembered, found.deleted, upserts, parked
    )


def net_changes(merged: Merged, rows: pa.Table, key: Sequence[str]) -> NetChanges:
    """What becomes of the rows of a table. rows: those of `merged.upserts`; key: the names of the
    key columns in the table."""
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
    )


def _remembered(rule: str, found: Resolution, pool: pa.Table, keys: KeyedFiles) -> pa.Table:
    """The records of the keys of a batch, with values where they may be needed again."""
    rows = pool.take(pa.array(found.origin))
    decides = contiguous(found.state.column(DECIDES))
    rows = rows.set_column(rows.column_names.index(DECIDES), DECIDES, decides)
    if RULES[rule].by_time:
        kept = np.zeros(rows.num_rows, bool)
    else:
        kept = found.held | decides.to_numpy(zero_copy_only=False)
    for index, name in enumerate(rows.column_names):
        if name[0] == "v" and name[1:].isdigit() and not kept.all():
            values = contiguous(rows.column(index))
            rows = rows.set_column(
                index, name, pc.if_else(pa.array(kept), values, pa.scalar(None, values.type))
            )
    return rows.cast(keys.arrow)


def _full(events: pa.Table, rows: pa.Table, uuid: pa.Array, keys: KeyedFiles) -> pa.Table:
    """Events in all the columns of the records of keys."""
    columns = dict(zip(events.column_names, stored(events).columns, strict=True))
    columns[DECIDES] = pa.array(np.zeros(events.num_rows, bool))
    columns[UUID] = uuid
    columns |= {f"v{number}": values for number, values in enumerate(rows.columns)}
    return pa.table([columns[name] for name in keys.arrow.names], schema=keys.arrow)


def _distinct(rows: pa.Table) -> pa.Table:
    if not rows.num_rows:
        return rows
    return rows.take(pa.array(codes.encode(rows).first)).combine_chunks()


def _rolled_back(
    batch: MergeBatch, changes: KeyedFiles, touched: pa.Table, key: list[str]
) -> tuple[pa.Table, pa.Table, KeyedFiles, int]:
    """The keys that a batch touches, the deletions that follow for them, what is remembered of
    changes, and how many deletions wait.

    What follows from a deletion by its row may be another key than before. So the rows of all
    transactions that have one of the keys are looked at.
    """
    assert batch.transactions is not None
    extra = batch.transactions.append_column(INCOMPLETE, pa.array(batch.incomplete))
    whole = pa.table(
        [*batch.records.columns, *extra.columns],
        names=[*batch.records.column_names, *extra.column_names],
    )
    named = pc.and_(extra.column("tx_id").is_valid(), extra.column("row_id").is_valid())
    mine = whole.filter(pc.and_(pa.chunked_array([pa.array(batch.changed)]), named))
    pairs = _distinct(mine.select(list(TRANSACTION)))
    before = as_order(changes.find(pairs)) if pairs.num_rows else mine.slice(0, 0)
    ours = pa.concat_tables([before.select(mine.column_names), mine])
    there = _distinct(ours.select(key).filter(pc.invert(ours.column(INCOMPLETE))))
    touched = _distinct(pa.concat_tables([touched, there]))
    related = as_order(changes.find(touched)) if touched.num_rows else before
    others = _distinct(pa.concat_tables([related.select(list(TRANSACTION)), pairs]))
    known = as_order(changes.find(others)) if others.num_rows else before
    found = complete(
        key, pa.concat_tables([known.select(mine.column_names), mine]).combine_chunks()
    )
    memory = found.memory
    derived = _of_keys(found.derived, touched)
    if memory.num_rows == known.num_rows:
        return touched, derived, changes, found.parked
    new = pa.table(stored(memory).columns, names=memory.column_names).select(changes.arrow.names)
    return touched, derived, changes.put(new.cast(changes.arrow), others).compacted(), found.parked


def _of_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of these keys."""
    if not rows.num_rows or not keys.num_rows:
        return rows.slice(0, 0)
    both = pa.concat_tables([keys, rows.select(keys.column_names)]).combine_chunks()
    code = codes.encode(both).code
    return rows.filter(pa.array(code[keys.num_rows :] < keys.num_rows))
