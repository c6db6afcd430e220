"""Deletions of Oracle that undo an insert and name the row by its ROWID alone (ST-230).

Such a deletion is of the key that the event before it had, of the same transaction and row. That
event may come later, or one that stands between the two: what follows from a deletion is derived
anew from all that is known, and kept nowhere, so that it never depends on the order of arrival.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.order.records import ORDER, SECTION_NAMES
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

INCOMPLETE = "incomplete"
TRANSACTION = ("tx_id", "row_id")


@dataclass(frozen=True, slots=True)
class Completed:
    """memory: the rows without those that are there twice; derived: the key and ORDER, a deletion
    for each that found its key; parked: how many wait for the event before them."""

    memory: pa.Table
    derived: pa.Table
    parked: int


def complete(key: list[str], rows: pa.Table) -> Completed:
    """Find the keys of deletions.

    rows: changes of a window of time, in any order: the key, ORDER, `tx_id` and `row_id` (texts),
    and INCOMPLETE (bool), whether it is a deletion without its key, which is NULL then.
    """
    memory = rows.take(pa.array(codes.encode(rows).first)).combine_chunks()
    if not memory.num_rows:
        return Completed(memory, memory.select([*key, *ORDER.names]), 0)
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
    return Completed(memory, derived, int(incomplete.sum()) - len(deletion))


def _in_order(memory: pa.Table, row: np.ndarray) -> np.ndarray:
    """The numbers of the rows by their row of the source, and of one by their place."""
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
