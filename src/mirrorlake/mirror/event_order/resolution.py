"""Determines the effect of a batch of events on the rows of its keys.

The state of a key contains the last change of each log and the last backfill, which do not depend
on the order or the number of arrivals. The record that determines the row of the key is a function
of these (ST-205, ST-215), so the row does not depend on arrivals either.

A record that does not determine the row may do so later, if a log continues with an earlier source
time. So its row is kept in a held row beside the table. This is not needed for sources that are
ordered by time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.event_order.last import last_of_each, parts_between_logs, parts_of
from mirrorlake.mirror.event_order.records import ORDER
from mirrorlake.mirror.event_order.rules import OrderRule
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

DECIDES = "decides"
"""The column of the state that marks the record which determines the row of its key in the table,
or that there is none."""


FEW_LOGS = 4
"""Logs, also of backfills, up to which each key has a place for the last record of each."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """The changes of the table, and the new state of the keys.

    origin: int64 per record of the new state, which replaces the known records of all given keys:
        its row number in `known`, followed by those in `events`.
    decides: DECIDES of each of these records, bool.
    held: bool per record, whether its table row has to be held beside the table.
    upserts: int64, row numbers of events whose rows become the rows of their keys.
    restored: int64, row numbers of known records whose held rows become the rows of their keys.
    deleted: the keys that have no row any more.
    deciders: int64, row numbers of the records, in `known`, `events` and `derived`, that now
        determine the row of a key, and did not before.

    A key is in at most one of `upserts`, `restored` and `deleted`.
    """

    origin: np.ndarray
    decides: np.ndarray
    held: np.ndarray
    upserts: np.ndarray
    restored: np.ndarray
    deleted: pa.Table
    deciders: np.ndarray

    def state(self, known: pa.Table, events: pa.Table) -> pa.Table:
        """The records of the new state: the columns of `events`, and DECIDES."""
        both = pa.concat_tables([known.select(events.column_names), events]).combine_chunks()
        return both.take(pa.array(self.origin)).append_column(DECIDES, pa.array(self.decides))


def resolve(
    rule: OrderRule,
    guard_ms: int,
    key: list[str],
    known: pa.Table,
    events: pa.Table,
    derived: pa.Table | None = None,
) -> Resolution:
    """Find the last records of each key, and the one that determines its row.

    known: the stored state of all keys that occur; events: n records in any order; derived: the
    deletions of these keys that are derived from others (`rollbacks`), new or not. All have the key
    columns, of the same types, and those of ORDER. guard_ms: by how many milliseconds a change may
    be older than a backfill and still win (ST-217).
    Memory: about three times the records.
    """
    names = [*key, *ORDER.names]
    tables = [known.select(names), events.select(names)]
    if derived is not None:
        tables.append(derived.select(names))
    # Not in one chunk: few columns of the records are needed to tell the last ones.
    rows = pa.concat_tables(tables)
    first_event, first_derived = known.num_rows, known.num_rows + events.num_rows
    number = np.arange(rows.num_rows)
    code = codes.encode(rows.select(key)).code
    keys = int(code.max(initial=-1)) + 1
    log = codes.encode(rows.select(["backfill", "log"])).code
    per_key = int(log.max(initial=-1)) + 1
    if per_key > FEW_LOGS:
        log = codes.encode(pa.table([code, log], names=list("kl"))).code
        logs = int(log.max(initial=-1)) + 1
    else:  # every key has its number of each log
        log, logs = code * per_key + log, keys * per_key

    last = last_of_each(np.where(number < first_derived, log, -1), logs, parts_of(rule, rows))
    candidates = last
    if derived is not None:
        candidates = last_of_each(log, logs, parts_of(rule, rows))
    change, fill = _last_change_and_backfill(rows, candidates[candidates >= 0], code, keys)
    decider = np.where(backfill_wins(rows, change, fill, guard_ms), fill, change)
    last = np.sort(last[last >= 0])

    before = np.full(keys, -1)
    known_decides = contiguous(known.column(DECIDES)).to_numpy(zero_copy_only=False)
    at = np.flatnonzero(known_decides)
    before[code[at]] = at
    changed = decider[(decider != before) & (decider >= 0)]
    deletion = _flags(rows, "deletion")
    upserts = changed[~deletion[changed]]
    decides = decider[code[last]] == last
    held = np.zeros(len(last), bool)
    if not rule.by_time:
        held = ~decides & _may_decide(rows, last, fill[code[last]], guard_ms)
    return Resolution(
        origin=last,
        decides=decides,
        held=held,
        upserts=upserts[upserts >= first_event] - first_event,
        restored=upserts[upserts < first_event],
        deleted=rows.select(key).take(pa.array(changed[deletion[changed]])),
        deciders=changed,
    )


def _last_change_and_backfill(
    rows: pa.Table, candidates: np.ndarray, code: np.ndarray, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """The last change and the last backfill of each key, as row numbers; -1 for none."""
    backfill = _flags(rows, "backfill")[candidates]
    changes, fills = candidates[~backfill], candidates[backfill]
    group = np.full(rows.num_rows, -1)
    group[changes] = code[changes]
    fill = np.full(keys, -1)  # a key has one candidate: all its backfills are in one log
    fill[code[fills]] = fills
    return last_of_each(group, keys, parts_between_logs(rows)), fill


def backfill_wins(
    rows: pa.Table, change: np.ndarray, fill: np.ndarray, guard_ms: int
) -> np.ndarray:
    """Whether the backfill (`fill`) wins over the change: it does if there is no change, or if the
    change is older by more than the guard (ST-215). -1: none."""
    source = contiguous(rows.column("source_ms")).to_numpy()
    both = (change >= 0) & (fill >= 0)
    beaten = change < 0
    later, earlier = source[fill[both]], source[change[both]]
    # Unsigned, because the difference of two int64 may not fit int64.
    distance = later.astype(np.uint64) - earlier.astype(np.uint64)
    beaten[both] = (later > earlier) & (distance > np.uint64(guard_ms))
    return beaten


def _may_decide(rows: pa.Table, last: np.ndarray, fill: np.ndarray, guard_ms: int) -> np.ndarray:
    """Whether a record can determine the row later without being sent again; bool.

    A deletion has no row to hold. A change that is older than a backfill by more than the guard
    cannot, because backfills only become newer.
    """
    change = np.where(_flags(rows, "backfill")[last], -1, last)
    lost = (change >= 0) & backfill_wins(rows, change, fill, guard_ms)
    return np.asarray(~_flags(rows, "deletion")[last] & ~lost)


def _flags(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))
