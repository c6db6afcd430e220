"""Converts events of one table to its rows and their order."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.reading import DeadLetter, TableEvents
from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.content import content
from mirrorlake.apply.events.remembered.key_values import comparable
from mirrorlake.apply.events.remembered.keyed_files import THREADS
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.events.change_types import ChangeType
from mirrorlake.events.checks import missing_key
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import SORT_KEYS, UUID, EventSource
from mirrorlake.mirror.event_order import ORDER, RULES, change_numbers, records
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema, arrow_type, contiguous
from mirrorlake.model.table import Column
from mirrorlake.model.types import DataType

_MOST_MS = (2**63 - 1) // 1000
_MERGED = types.struct(UUID=types.STRING, SOURCE_TIMESTAMP=types.LONG)
_KEYLESS = types.struct(UUID=types.STRING, SOURCE_TIMESTAMP=types.LONG, IS_DELETED=types.BOOLEAN)
_APPENDED = types.struct(
    UUID=types.STRING,
    SOURCE_TIMESTAMP=types.LONG,
    CHANGE_SEQUENCE_NUMBER=types.STRING,
    CHANGE_TYPE=types.STRING,
    SORT_KEYS=types.array(types.STRING),
)


@dataclass(frozen=True, slots=True)
class AppliedRows:
    """The applicable events of a batch.

    values: the columns of the table except the struct.
    order: ORDER.
    head: the columns of HEAD that are needed below.
    incomplete: bool, deletions without a key.
    """

    values: pa.Table
    order: pa.Table
    head: pa.Table
    deletion: np.ndarray
    backfill: np.ndarray
    change_type: pa.Array
    incomplete: np.ndarray

    @classmethod
    def together(cls, parts: Sequence[AppliedRows]) -> AppliedRows:
        """Several parts combined."""
        tables = zip(*((one.values, one.order, one.head) for one in parts), strict=True)
        with ThreadPoolExecutor(THREADS, thread_name_prefix="rows") as pool:
            values, order, head = pool.map(_combined, tables)
        return cls(
            values,
            order,
            head,
            np.concatenate([one.deletion for one in parts]),
            np.concatenate([one.backfill for one in parts]),
            pa.concat_arrays([one.change_type for one in parts]),
            np.concatenate([one.incomplete for one in parts]),
        )

    def only(self, which: np.ndarray) -> AppliedRows:
        """The events for which `which` (bool, n) is true."""
        if which.all():
            return self
        mask = pa.array(which)
        return AppliedRows(
            self.values.filter(mask),
            self.order.filter(mask),
            self.head.filter(mask),
            self.deletion[which],
            self.backfill[which],
            self.change_type.filter(mask),
            self.incomplete[which],
        )

    @property
    def truncation(self) -> np.ndarray:
        """Which of them are truncations; bool, n."""
        return is_truncation(self.change_type)

    @property
    def latest(self) -> int:
        """The latest time of an event, milliseconds; 0 without events."""
        return int(pc.max(self.order.column("source_ms")).as_py() or 0)


def _combined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()


def checked_rows(part: TableEvents, state: EventTableState) -> tuple[AppliedRows, list[DeadLetter]]:
    """The applicable events of a part as rows, and its dead letters."""
    rejected: dict[int, str] = {}
    incomplete = np.zeros(len(part), bool)
    batch = EventBatch(0, part.head, (), part.payload, np.zeros(len(part), bool))
    whole = is_truncation(part.change_type)
    if lacking := missing_key(batch, state.key):
        lacking = {row: why for row, why in lacking.items() if not whole[row]}
        if part.source is EventSource.ORACLE:  # it waits for its key, or is kept without it
            has_both = pc.and_(part.head["tx_id"].is_valid(), part.head["row_id"].is_valid())
            waits = (
                contiguous(has_both).to_numpy(zero_copy_only=False) & part.deletion & ~part.backfill
            )
            incomplete[list(lacking)] = waits[list(lacking)]
        rejected |= {row: why for row, why in lacking.items() if not incomplete[row]}
    # For a deletion only the key matters (ST-108).
    spared = part.deletion & state.merges
    payload, kinds = comparable(state, part)
    columns, unfit = state.columns.rows(payload, kinds, state.key, spared)
    values = pa.table(columns, names=[f"v{number}" for number in range(len(columns))])
    ordered = records(
        RULES[state.rule],
        part.head,
        backfill=part.backfill,
        deletion=part.deletion,
        content=content(_named(values, state.columns), by_value=state.content_by_value),
    )
    unread = dict.fromkeys(
        np.flatnonzero(~ordered.readable).tolist(),
        "its place in the log of the source cannot be read",
    )
    rejected = {**unread, **unfit, **rejected}
    good = np.ones(len(part), bool)
    good[list(rejected)] = False
    uuid = contiguous(part.head.column(UUID))
    # An empty uuid counts as missing, as for the order.
    uuid = pc.if_else(pc.equal(uuid, ""), pa.scalar(None, uuid.type), uuid)
    needed = part.head.select(["tx_id", "row_id"] if state.merges else [SORT_KEYS])
    head = needed.append_column(UUID, uuid)
    rows = AppliedRows(
        values, ordered.rows, head, part.deletion, part.backfill, part.change_type, incomplete
    )
    return rows.only(good), part.letters(rejected)


def keys_of_events(state: EventTableState, events: Sequence[TableEvents]) -> pa.Table:
    """The keys of events that are not checked yet, without those that have a NULL."""
    chosen = [one for one in state.columns if one.source in state.key]
    order = [[one.source for one in chosen].index(name) for name in state.key]
    columns, names, parts = EventTableColumns(tuple(chosen)), merging.key_names(state.key), []
    for part in events:
        spared = np.zeros(len(part), bool)
        payload, kinds = comparable(state, part)
        found, _rejected = columns.rows(payload, kinds, state.key, spared)
        parts.append(pa.table([found[index] for index in order], names=names))
    return pa.concat_tables(parts).drop_null()


def is_truncation(change_type: pa.Array) -> np.ndarray:
    found = pc.equal(change_type, str(ChangeType.TRUNCATE))
    return np.asarray(pc.fill_null(found, False).to_numpy(zero_copy_only=False))


def _named(values: pa.Table, columns: EventTableColumns) -> pa.Table:
    return values.rename_columns([one.name for one in columns])


def merge_batch(
    state: EventTableState, key: Sequence[Column], rows: AppliedRows
) -> merging.MergeBatch:
    sources = [one.source for one in state.columns]
    own = [rows.values.column(sources.index(name)) for name in state.key]
    names = [*(column.name for column in key), *ORDER.names]
    transactions = None
    if state.rule.startswith("oracle"):
        transactions = rows.head.select(["tx_id", "row_id"])
    return merging.MergeBatch(
        pa.table([*own, *rows.order.columns], names=names),
        rows.values,
        contiguous(rows.head.column("uuid")),
        transactions,
        ~rows.backfill,
        rows.incomplete,
    )


def table_rows(state: EventTableState, upserts: pa.Table, *, with_metadata: bool) -> pa.Table:
    """Rows of the table from upserted records. with_metadata: with position and time."""
    kind = struct_type(state)
    struct = pa.StructArray.from_arrays(
        [contiguous(upserts.column(merging.UUID)), contiguous(upserts.column("source_ms"))],
        fields=list(arrow_type(kind)),
    )
    columns = [*(upserts.column(f"v{n}") for n in range(len(state.columns))), struct]
    if with_metadata:
        columns += _position_and_time(state, merging.as_order(upserts))
    return pa.table(columns, schema=_arrow(state, with_metadata))


def _position_and_time(state: EventTableState, order: pa.Table) -> list[pa.Array]:
    """A backfill has no position in a log; a time outside the range of microseconds is NULL."""
    numbers = change_numbers(RULES[state.rule], order)
    no_place = contiguous(order.column("backfill"))
    moment = contiguous(order.column("source_ms"))
    inside = pc.and_(pc.greater_equal(moment, -_MOST_MS), pc.less_equal(moment, _MOST_MS))
    time = pc.multiply(pc.if_else(inside, moment, pa.scalar(None, moment.type)), 1000)
    return [
        pc.if_else(no_place, pa.scalar(None, pa.string()), numbers),
        time.cast(arrow_type(types.TIMESTAMP)),
    ]


def _arrow(state: EventTableState, with_metadata: bool) -> pa.Schema:
    return arrow_schema(state.columns.schema(struct_type(state), with_metadata=with_metadata))


def struct_type(state: EventTableState) -> DataType:
    if state.is_append:
        return _APPENDED
    return _MERGED if state.key else _KEYLESS


def appended_rows(
    state: EventTableState, rows: AppliedRows, which: np.ndarray, *, with_metadata: bool
) -> pa.Table:
    """Rows of a table that keeps every event, for the chosen events. with_metadata: with
    position and time."""
    mask = pa.array(which)
    head, order = rows.head.take(mask), rows.order.take(mask)
    members = [contiguous(head.column("uuid")), contiguous(order.column("source_ms"))]
    if state.is_append:
        members += [
            change_numbers(RULES[state.rule], order),
            rows.change_type.take(mask),
            contiguous(head.column(SORT_KEYS)),
        ]
    else:
        members.append(pa.array(rows.deletion[which]))
    struct = pa.StructArray.from_arrays(members, fields=list(arrow_type(struct_type(state))))
    more = _position_and_time(state, order) if with_metadata else []
    return pa.table(
        [*rows.values.take(mask).columns, struct, *more], schema=_arrow(state, with_metadata)
    )
