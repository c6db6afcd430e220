"""Soft deletes: rows that were deleted in the source stay in the table, marked as deleted.

A new row replaces the deleted rows of its key; deleting deleted rows changes nothing. Only after
the key of the table has changed can a key have deleted rows beside others: these stay as they are
(`considered`), because they are no previous version of the others.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import contiguous
from mirrorlake.model.change import ROW_DELETED
from mirrorlake.model.net_changes import NetChanges


def is_deleted(rows: pa.Table) -> np.ndarray:
    """Whether each row is marked as deleted; bool."""
    flag = contiguous(pc.fill_null(rows[ROW_DELETED], False))
    found: np.ndarray = flag.to_numpy(zero_copy_only=False)
    return found


def considered(rows: pa.Table, code: np.ndarray, keys: int) -> np.ndarray:
    """Which existing rows of their keys changes apply to: deleted rows only where a key has no
    others; bool. code: the key of each row, of `keys` keys.
    """
    deleted = is_deleted(rows)
    live = np.bincount(code[~deleted], minlength=keys) > 0
    return np.asarray(~deleted | ~live[code])


def marked(rows: pa.Table, which: np.ndarray, marks: pa.Table) -> pa.Table:
    """The rows with the values of `marks` where `which` is true. which: bool, n; marks: n rows of
    some columns."""
    mask = pa.array(which)
    for name in marks.column_names:
        index = rows.column_names.index(name)
        values = pc.if_else(mask, contiguous(marks[name]), contiguous(rows[name]))
        rows = rows.set_column(index, rows.schema.field(index), values)
    return rows


def with_marks(
    net: NetChanges, rows: pa.Table, code: np.ndarray, found: pa.Table
) -> tuple[NetChanges, np.ndarray]:
    """Convert the deletes of net changes to updates of the existing rows.

    rows: those of `net`, with every value; found: the existing rows of the keys, those that are
    `considered`; code: the key of each. Also returns, as bool, which of these are replaced.
    """
    assert net.deleted is not None
    assert net.marks is not None
    keys = len(net.reset)
    live = np.bincount(code[~is_deleted(found)], minlength=keys) > 0
    there = np.bincount(code, minlength=keys) > 0
    comes = np.bincount(net.code, minlength=keys) > 0
    replaced = there & ~live & comes & ~net.reset
    ends = net.deleted & ~net.reset & live
    copied = np.flatnonzero(ends[code])
    copies = found.take(pa.array(copied)).cast(rows.schema)
    copies = marked(copies, ~is_deleted(copies), net.marks.take(pa.array(code[copied])))
    first = net.first | (replaced[net.code] & _is_first(net.code, keys))
    reset = net.reset | replaced | ends
    count = len(copied)
    whole = replace(
        net,
        rows=pa.concat_tables([rows, copies]),
        reset=reset,
        source_row=np.concatenate((net.source_row, np.full(count, -1))),
        code=np.concatenate((net.code, code[copied])),
        first=np.concatenate((first, _is_first(code[copied], keys))),
        missing=None,
        base=np.full(net.rows.num_rows + count, -1),
        deleted=None,
        marks=None,
    )
    return whole, reset[code]


def _is_first(code: np.ndarray, keys: int) -> np.ndarray:
    """Whether each row is the first one of its key."""
    number = np.arange(len(code))
    lowest = np.full(keys, len(code))
    np.minimum.at(lowest, code, number)
    return np.asarray(lowest[code] == number)
