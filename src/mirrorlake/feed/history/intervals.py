"""Computes the effect of changes on the intervals of a history of type 2, without I/O.

Invariants: the intervals of a key do not overlap, at most one of them is open, and the open one is
the row that the source has (CF-203, CF-205). The result does not depend on how changes are divided
into calls (CF-211): a run of changes that opens no interval ends in the same row in one call or in
several.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.feed.history.settings import END_AT, FROM_SNAPSHOT, IS_CURRENT, START_AT
from mirrorlake.feed.targets.changes import KeyedChanges
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous, taken


@dataclass(frozen=True, slots=True)
class OpenRows:
    """The open rows of keys before the changes.

    rows: of the history, with all of its columns.
    key: int64, the key of each row, distinct.
    """

    rows: pa.Table
    key: np.ndarray


@dataclass(frozen=True, slots=True)
class IntervalRows:
    """The effect of changes.

    replaced: bool, which of the open rows are deleted.
    rows: new rows, with all columns of the history.
    opened, closed: how many intervals start and end.
    """

    replaced: np.ndarray
    rows: pa.Table
    opened: int
    closed: int


def intervals(
    held: OpenRows, changes: KeyedChanges, bound: pa.Array, track: Sequence[str] | None
) -> IntervalRows:
    """Apply changes to intervals.

    bound: for each commit of the changes, the bound of intervals that it opens or ends.
    track: the columns whose change opens an interval; None for all.
    """
    data = changes.rows.column_names
    states = pa.concat_tables([held.rows.select(data).cast(changes.rows.schema), changes.rows])
    own = held.rows.num_rows
    # The open rows and the changes in one sequence, by key, the open row of a key first.
    key = np.concatenate((held.key, changes.key))
    rank = np.concatenate((np.full(own, -1), changes.commit))
    state = np.concatenate((np.arange(own), np.where(changes.after < 0, -1, own + changes.after)))
    order = np.lexsort((rank, key))
    key, rank, state = key[order], rank[order], state[order]
    follows = np.zeros(len(key), bool)
    follows[1:] = key[1:] == key[:-1]
    before = np.where(follows, np.roll(state, 1), -1)
    gone = state < 0
    begins = gone | (before < 0) | _differ(states, before, state, track)
    starts = np.flatnonzero(begins)
    if not len(starts):
        return IntervalRows(np.zeros(own, bool), held.rows, 0, 0)
    # Each of them starts a run, which lasts until the next one.
    final = np.append(starts[1:], len(key)) - 1
    ends = np.zeros(len(starts), bool)
    ends[:-1] = follows[starts[1:]]
    end = np.where(ends, np.append(rank[starts[1:]], -1), -1)
    is_held = rank[starts] < 0
    stays = is_held & ~ends & ~_differ(states, state[starts], state[final], None)
    written = ~gone[starts] & ~stays
    replaced = np.zeros(own, bool)
    replaced[state[starts[is_held & written]]] = True
    columns = {
        START_AT: _starts(held, bound, state[starts[written]], rank[starts[written]]),
        END_AT: bound.take(_or_null(end[written])),
        IS_CURRENT: pa.array(end[written] < 0),
        FROM_SNAPSHOT: _flags(held, state[starts[written]], is_held[written]),
    }
    rows = taken(states, state[final[written]])
    for name in held.rows.column_names:
        if name in columns:
            rows = rows.append_column(held.rows.schema.field(name), columns[name])
    return IntervalRows(
        replaced,
        rows.select(held.rows.column_names).cast(held.rows.schema),
        int((written & ~is_held).sum()),
        int((ends & ~gone[starts]).sum()),
    )


def _differ(
    states: pa.Table, first: np.ndarray, second: np.ndarray, columns: Sequence[str] | None
) -> np.ndarray:
    """Whether two rows differ in some columns: bool. -1 means no row."""
    compared = states if columns is None else states.select(list(columns))
    code = codes.encode(codes.plain(compared)).code
    if not len(code):
        return np.zeros(len(first), bool)
    found: np.ndarray = (first >= 0) & (second >= 0) & (code[first] != code[second])
    return found


def _or_null(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers < 0)


def _starts(held: OpenRows, bound: pa.Array, state: np.ndarray, rank: np.ndarray) -> pa.Array:
    """The start of each row's interval: unchanged, or the commit that opens it."""
    both = pa.concat_arrays([contiguous(held.rows[START_AT]), bound])
    return both.take(pa.array(np.where(rank < 0, state, held.rows.num_rows + rank)))


def _flags(held: OpenRows, state: np.ndarray, is_held: np.ndarray) -> pa.Array:
    known = held.rows[FROM_SNAPSHOT].to_numpy(zero_copy_only=False).astype(bool)
    found = np.zeros(len(state), bool)
    found[is_held] = known[state[is_held]]
    return pa.array(found)
