"""Events of one table as its rows, and what tells their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events import merging
from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.content import content_of
from mirrorlake.apply.events.reading import DeadLetter, TableEvents
from mirrorlake.apply.events.state import EventTableState
from mirrorlake.events.checks import missing_key
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import EventSource
from mirrorlake.mirror.order import ORDER, RULES, change_numbers, records
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema, arrow_type, contiguous
from mirrorlake.model.table import Column
from mirrorlake.model.types import DataType

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
    """The events of a batch that can be applied. values: a column for each of the table, but the
    struct; order: ORDER; head: of the events; incomplete: bool, deletions without their key."""

    values: pa.Table
    order: pa.Table
    head: pa.Table
    deletion: np.ndarray
    backfill: np.ndarray
    change_type: pa.Array
    incomplete: np.ndarray

    @classmethod
    def together(cls, parts: Sequence[AppliedRows]) -> AppliedRows:
        """Those of several parts."""
        return cls(
            pa.concat_tables([one.values for one in parts]).combine_chunks(),
            pa.concat_tables([one.order for one in parts]).combine_chunks(),
            pa.concat_tables([one.head for one in parts]).combine_chunks(),
            np.concatenate([one.deletion for one in parts]),
            np.concatenate([one.backfill for one in parts]),
            pa.concat_arrays([one.change_type for one in parts]),
            np.concatenate([one.incomplete for one in parts]),
        )

    @property
    def latest(self) -> int:
        """The latest time of an event, milliseconds; 0 for none."""
        return int(pc.max(self.order.column("source_ms")).as_py() or 0)


def checked_rows(part: TableEvents, state: EventTableState) -> tuple[AppliedRows, list[DeadLetter]]:
    """The events of a part as rows, and those that are none."""
    rejected: dict[int, str] = {}
    incomplete = np.zeros(len(part), bool)
    batch = EventBatch(0, part.head, (), part.payload, np.zeros(len(part), bool))
    if lacking := missing_key(batch, state.key):
        if part.source is EventSource.ORACLE and state.merges:
            told = pc.and_(part.head["tx_id"].is_valid(), part.head["row_id"].is_valid())
            waits = contiguous(told).to_numpy(zero_copy_only=False) & part.deletion & ~part.backfill
            incomplete[list(lacking)] = waits[list(lacking)]
        rejected |= {row: why for row, why in lacking.items() if not incomplete[row]}
    # Of a deletion only the key matters (ST-108).
    spared = part.deletion & state.merges
    columns, unfit = state.columns.rows(part.payload, part.columns, state.key, spared)
    values = pa.table(columns, names=[f"v{number}" for number in range(len(columns))])
    ordered = records(
        RULES[state.rule],
        part.head,
        backfill=part.backfill,
        deletion=part.deletion,
        content=content_of(_named(values, state.columns)),
    )
    unread = dict.fromkeys(
        np.flatnonzero(~ordered.readable).tolist(),
        "its place in the log of the source cannot be read",
    )
    rejected = {**unread, **unfit, **rejected}
    good = np.ones(len(part), bool)
    good[list(rejected)] = False
    mask = pa.array(good)
    rows = AppliedRows(
        values.filter(mask),
        ordered.rows.filter(mask),
        part.head.filter(mask),
        part.deletion[good],
        part.backfill[good],
        part.change_type.filter(mask),
        incomplete[good],
    )
    return rows, part.letters(rejected)


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


def table_rows(state: EventTableState, upserts: pa.Table) -> pa.Table:
    """Rows of the table, of the records that become such."""
    kind = struct_type(state)
    struct = pa.StructArray.from_arrays(
        [contiguous(upserts.column(merging.UUID)), contiguous(upserts.column("source_ms"))],
        fields=list(arrow_type(kind)),
    )
    columns = [*(upserts.column(f"v{n}") for n in range(len(state.columns))), struct]
    return pa.table(columns, schema=_arrow(state))


def _arrow(state: EventTableState) -> pa.Schema:
    return arrow_schema(state.columns.schema(struct_type(state)))


def struct_type(state: EventTableState) -> DataType:
    if state.is_append:
        return _APPENDED
    return _MERGED if state.key else _KEYLESS


def appended_rows(state: EventTableState, rows: AppliedRows, which: np.ndarray) -> pa.Table:
    """Rows of a table that keeps every event, of some of them."""
    mask = pa.array(which)
    head, order = rows.head.take(mask), rows.order.take(mask)
    members = [contiguous(head.column("uuid")), contiguous(order.column("source_ms"))]
    if state.is_append:
        members += [
            change_numbers(RULES[state.rule], order),
            rows.change_type.take(mask),
            contiguous(head.column("sort_keys")),
        ]
    else:
        members.append(pa.array(rows.deletion[which]))
    struct = pa.StructArray.from_arrays(members, fields=list(arrow_type(struct_type(state))))
    return pa.table([*rows.values.take(mask).columns, struct], schema=_arrow(state))
