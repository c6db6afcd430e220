"""The metadata columns of landed rows: which change of the source each row comes from.

The rows of an open transaction have no position yet: what is written of them has their ordinals
instead, and gets the columns when the transaction has ended.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.landing.parquet.unchanged import packed, unpacked
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.change import (
    MARKER_COLUMN,
    ROW_COMMIT_TIME,
    ROW_POSITION,
    ROW_TRANSACTION,
    UNCHANGED_COLUMN,
)
from mirrorlake.model.position import LogPoint
from mirrorlake.model.types import STRING, TIMESTAMP
from mirrorlake.sources.chunk import Changes, Transactions

METADATA = pa.schema(
    [
        pa.field(ROW_POSITION, arrow_type(STRING)),
        pa.field(ROW_TRANSACTION, arrow_type(STRING)),
        pa.field(ROW_COMMIT_TIME, arrow_type(TIMESTAMP)),
    ]
)
ORDINALS = pa.schema([pa.field("__mirrorlake_ordinal__", pa.int64())])
"""What staged rows of an open transaction have in the place of METADATA; never published."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A transaction that has ended. id: what its source calls it, "" when it has no name."""

    end: LogPoint
    time: datetime | None
    id: str


@dataclass(frozen=True, slots=True)
class Origins:
    """The changes that n rows come from.

    transactions: theirs; a single None while it is open. transaction: int, n, index of each row's;
    ordinal: int64, n, in that transaction.
    """

    transactions: tuple[Committed | None, ...]
    transaction: np.ndarray
    ordinal: np.ndarray

    @classmethod
    def of(cls, changes: Changes, transactions: Transactions, start: int, stop: int) -> Self:
        """Of changes from `start` to `stop`. Those of the open transaction are by themselves."""
        numbers, index = np.unique(changes.transaction[start:stop], return_inverse=True)
        found = []
        for number in numbers.tolist():
            end = transactions.end[number] if number < transactions.closed() else None
            origin = end and Committed(end, transactions.time[number], transactions.id[number])
            found.append(origin)
        return cls(tuple(found), index, changes.ordinal[start:stop])

    def closed(self, origin: Committed) -> Origins:
        """Of the open transaction, now that it has ended."""
        return replace(self, transactions=(origin,))

    def columns(self) -> pa.Table:
        """METADATA of the rows, or ORDINALS while their transaction is open."""
        ended = [origin for origin in self.transactions if origin is not None]
        if len(ended) < len(self.transactions):
            return pa.table([pa.array(self.ordinal)], schema=ORDINALS)
        ends = pa.array([f"{origin.end}:" for origin in ended], pa.string())
        ids = pa.array([origin.id or None for origin in ended], pa.string())
        times = pa.array([origin.time for origin in ended], METADATA.field(ROW_COMMIT_TIME).type)
        index = pa.array(self.transaction)
        position = pc.binary_join_element_wise(
            ends.take(index), pa.array(self.ordinal).cast(pa.string()), ""
        )
        return pa.table([position, ids.take(index), times.take(index)], schema=METADATA)


def as_of(position: str, rows: int) -> pa.Table:
    """METADATA of rows that were read as they were at a position, whichever change made them."""
    unknown = [pa.nulls(rows, field.type) for field in METADATA][1:]
    return pa.table([pa.repeat(position, rows), *unknown], schema=METADATA)


def with_metadata(rows: pa.Table, columns: pa.Table) -> pa.Table:
    """The rows of a landed file with more data columns, behind those that they have."""
    own = [name for name in rows.column_names if name not in {MARKER_COLUMN, UNCHANGED_COLUMN}]
    data = rows.select(own)
    for field, column in zip(columns.schema, columns.columns, strict=True):
        data = data.append_column(field, column)
    if UNCHANGED_COLUMN in rows.column_names:
        masks = [
            _widened(chunk, len(own), data.num_columns) for chunk in rows[UNCHANGED_COLUMN].chunks
        ]
        data = data.append_column(UNCHANGED_COLUMN, pa.chunked_array(masks, pa.binary()))
    if MARKER_COLUMN in rows.column_names:
        data = data.append_column(rows.schema.field(MARKER_COLUMN), rows[MARKER_COLUMN])
    return data


def ended(rows: pa.Table, origin: Committed) -> pa.Table:
    """Staged rows of a transaction that was open, with METADATA in the place of ORDINALS."""
    (name,) = ORDINALS.names
    ordinal = rows[name].to_numpy()
    found = Origins((origin,), np.zeros(len(ordinal), np.int64), ordinal).columns()
    at = rows.column_names.index(name)
    left = rows.remove_column(at)
    for field, column in reversed(list(zip(METADATA, found.columns, strict=True))):
        left = left.add_column(at, field, column)
    if UNCHANGED_COLUMN not in left.column_names:
        return left
    masks = [_widened(m, at + 1, at + len(METADATA)) for m in rows[UNCHANGED_COLUMN].chunks]
    index = left.column_names.index(UNCHANGED_COLUMN)
    return left.set_column(index, UNCHANGED_COLUMN, pa.chunked_array(masks, pa.binary()))


def _widened(mask: pa.Array, columns: int, total: int) -> pa.Array:
    """A mask over more columns, of which none is unchanged."""
    bits = np.zeros((len(mask), total), bool)
    bits[:, :columns] = unpacked(mask, columns)
    found = packed(bits)
    return pa.nulls(len(mask), pa.binary()) if found is None else found
