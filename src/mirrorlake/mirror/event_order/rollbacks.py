"""Deletions of Oracle that roll back an insert and identify the row only by its ROWID (ST-230).

Such a deletion has the key of the preceding event of the same transaction and ROWID. That event may
arrive later, as may another one between the two. So the keys of these deletions are not stored, but
derived again from all known events, and do not depend on the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.event_order.records import ORDER, SECTION_NAMES
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

INCOMPLETE = "incomplete"
TRANSACTION = ("tx_id", "row_id")


@dataclass(frozen=True, slots=True)
class Completed:
    """memory: the rows without duplicates; derived: key columns and ORDER, the deletions with a
    derived key; waiting: the rows of `memory` that are deletions without a preceding event."""

    memory: pa.Table
    derived: pa.Table
    waiting: np.ndarray


def complete(key: list[str], rows: pa.Table) -> Completed:
    """Derive the keys of deletions.

    rows: changes of a time window in any order: key columns, ORDER, `tx_id` and `row_id` (texts),
    and INCOMPLETE (bool), whether it is a deletion without a key; its key is NULL.
    """
    memory = rows.take(pa.array(codes.encode(rows).first)).combine_chunks()
    if not memory.num_rows:
        none = np.zeros(0, np.int64)
        return Completed(memory, memory.select([*key, *ORDER.names]), none)
    row = codes.encode(memory.select([*TRANSACTION, "log"])).code
    order = _in_order(memory, row)
    row = row[order]
    incomplete = _values(memory, INCOMPLETE)[order]
    number = np.arange(len(order))
    before = np.maximum.accumulate(np.where(incomplete, -1, number))
    found = incomplete & (before >= 0) & (row[before] == row)
    deletion, source = order[found], order[before[found]]
    columns = [
        memory.column(name).take(pa.array(source if name in key else deletion))
        for name in [*key, *ORDER.names]
    ]
    derived = pa.table(columns, schema=memory.select([*key, *ORDER.names]).schema)
    return Completed(memory, derived, order[incomplete & ~found])


def _in_order(memory: pa.Table, row: np.ndarray) -> np.ndarray:
    """The row numbers, sorted by source row and then by position."""
    batch = contiguous(memory.column("read_batch")).dictionary_encode()
    names = np.argsort(np.argsort(batch.dictionary.to_numpy(zero_copy_only=False)))
    parts = [
        row,
        *(_values(memory, name) for name in SECTION_NAMES),
        ~_values(memory, "deletion"),
        names[batch.indices.to_numpy()],
        *(_values(memory, name) for name in ("counter", "source_ms", "read_ms", "content")),
    ]
    return np.lexsort(parts[::-1])


def _values(memory: pa.Table, name: str) -> np.ndarray:
    return np.asarray(contiguous(memory.column(name)).to_numpy(zero_copy_only=False))
