"""What changes mean for the intervals of a history of type 2; nothing is read or written here.

Invariants: the intervals of a key do not overlap, at most one of them is open, and the open one is
the row that the source has (CF-203, CF-205). How the changes are cut into calls does not matter
(CF-211): a run of changes that opens no interval ends in the same row in one call or in several.
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
    """The open rows of the keys that had one before the changes. rows: of the history, all of its
    columns; key: int64, the key of each; once."""

    rows: pa.Table
    key: np.ndarray


@dataclass(frozen=True, slots=True)
class IntervalRows:
    """What is to be done: replaced: bool, which of the open rows go; rows: come, with all columns
    of the history; opened, closed: how many intervals of the history begin and end by it."""

    replaced: np.ndarray
    rows: pa.Table
    opened: int
    closed: int


def intervals(
    held: OpenRows, changes: KeyedChanges, bound: pa.Array, track: Sequence[str] | None
) -> IntervalRows:
    """Carry changes into intervals. bound: of each commit of the changes, what an interval that it
    opens or ends is told in; track: the columns whose change opens one, all without."""
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
    # A run begins with each of them, and lasts to the next one.
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
    states: pa.Table, one: np.ndarray, other: np.ndarray, columns: Sequence[str] | None
) -> np.ndarray:
    """Whether two rows differ in some columns: bool. A number of -1 is no row."""
    code = codes.encode(states if columns is None else states.select(list(columns))).code
    if not len(code):
        return np.zeros(len(one), bool)
    found: np.ndarray = (one >= 0) & (other >= 0) & (code[one] != code[other])
    return found


def _or_null(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers, pa.int64(), mask=numbers < 0)


def _starts(held: OpenRows, bound: pa.Array, state: np.ndarray, rank: np.ndarray) -> pa.Array:
    """Where the interval of each row starts: as before, or with the commit that opens it."""
    both = pa.concat_arrays([contiguous(held.rows[START_AT]), bound])
    return both.take(pa.array(np.where(rank < 0, state, held.rows.num_rows + rank)))


def _flags(held: OpenRows, state: np.ndarray, is_held: np.ndarray) -> pa.Array:
    known = held.rows[FROM_SNAPSHOT].to_numpy(zero_copy_only=False).astype(bool)
    found = np.zeros(len(state), bool)
    found[is_held] = known[state[is_held]]
    return pa.array(found)
