"""What a batch of events does to the rows of its keys.

For each key the last change of each log and the last backfill are remembered: whatever
arrives in whatever order and however often, these are the same. Which of them decides about the row
is a function of them alone (ST-205, ST-215), so that the row is the same, too.

A record that does not decide may do so later, when a log goes on with an earlier time; its row is
held then. Of a source that orders by time this cannot be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.order.last import last_of_each, parts_between_logs, parts_of
from mirrorlake.mirror.order.records import ORDER
from mirrorlake.mirror.order.rules import OrderRule
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

DECIDES = "decides"
"""The column of the state that tells which record the table's row of its key is of: a row, or the
lack of one."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is to be done, and what is to be remembered.

    state: the records of all keys that were given, in the place of those that were known: the key,
    ORDER and DECIDES. origin: int64 per row of it, the number of its record among the known ones,
    or, from their number on, among the events; held: bool per row of it, whether its row of the
    table has to be held beside the table.

    upserts: int64, numbers of events whose rows become those of their keys; restored: int64,
    numbers of known records whose held rows do; deleted: the keys that are left without a row. No
    key is in two of these three.
    """

    state: pa.Table
    origin: np.ndarray
    held: np.ndarray
    upserts: np.ndarray
    restored: np.ndarray
    deleted: pa.Table


def resolve(
    rule: OrderRule,
    guard_ms: int,
    key: list[str],
    known: pa.Table,
    events: pa.Table,
    derived: pa.Table | None = None,
) -> Resolution:
    """Find the last records of each key, and which of them decides.

    known: the state of all the keys that occur, as it was found before; events: n records in any
    order; derived: deletions that follow from others (`rollbacks`), all of these keys that there
    are, whether they are new or not. All have the columns of the key, of one type, and those of
    ORDER. guard_ms: by how much a change may be older than a backfill and win (ST-217).
    Memory: about three times the records.
    """
    names = [*key, *ORDER.names]
    tables = [known.select(names), events.select(names)]
    if derived is not None:
        tables.append(derived.select(names))
    rows = pa.concat_tables(tables).combine_chunks()
    first_event, first_derived = known.num_rows, known.num_rows + events.num_rows
    number = np.arange(rows.num_rows)
    code = codes.encode(rows.select(key)).code
    keys = int(code.max(initial=-1)) + 1
    log = codes.encode(
        pa.table([pa.array(code), rows.column("backfill"), rows.column("log")], names=list("kbl"))
    ).code
    logs = int(log.max(initial=-1)) + 1

    last = last_of_each(np.where(number < first_derived, log, -1), logs, parts_of(rule, rows))
    candidates = last
    if derived is not None:
        candidates = last_of_each(log, logs, parts_of(rule, rows))
    change, fill = _last_change_and_backfill(rows, candidates[candidates >= 0], code, keys)
    decider = np.where(_beaten(rows, change, fill, guard_ms), fill, change)
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
    state = rows.take(pa.array(last)).append_column(DECIDES, pa.array(decides))
    return Resolution(
        state=state,
        origin=last,
        held=held,
        upserts=upserts[upserts >= first_event] - first_event,
        restored=upserts[upserts < first_event],
        deleted=rows.select(key).take(pa.array(changed[deletion[changed]])),
    )


def _last_change_and_backfill(
    rows: pa.Table, candidates: np.ndarray, code: np.ndarray, keys: int
) -> tuple[np.ndarray, np.ndarray]:
    """The record of each key that is its last change, and its last backfill; -1 for none."""
    backfill = _flags(rows, "backfill")[candidates]
    changes, fills = candidates[~backfill], candidates[backfill]
    group = np.full(rows.num_rows, -1)
    group[changes] = code[changes]
    fill = np.full(keys, -1)  # all backfills of a key are in one log, so there is one
    fill[code[fills]] = fills
    return last_of_each(group, keys, parts_between_logs(rows)), fill


def _beaten(rows: pa.Table, change: np.ndarray, fill: np.ndarray, guard_ms: int) -> np.ndarray:
    """Whether the backfill decides and not the change beside it, -1 for none: it does when the
    change is older by more than the guard (ST-215)."""
    source = contiguous(rows.column("source_ms")).to_numpy()
    both = (change >= 0) & (fill >= 0)
    beaten = change < 0
    later, earlier = source[fill[both]], source[change[both]]
    # As numbers without sign: the distance of two times may not fit the type of a time.
    distance = later.astype(np.uint64) - earlier.astype(np.uint64)
    beaten[both] = (later > earlier) & (distance > np.uint64(guard_ms))
    return beaten


def _may_decide(rows: pa.Table, last: np.ndarray, fill: np.ndarray, guard_ms: int) -> np.ndarray:
    """Which of the last records could decide later without being sent again.

    A deletion has no row to hold. A change that is older than a backfill by more than the guard
    never decides again: backfills only become newer.
    """
    change = np.where(_flags(rows, "backfill")[last], -1, last)
    lost = (change >= 0) & _beaten(rows, change, fill, guard_ms)
    return np.asarray(~_flags(rows, "deletion")[last] & ~lost)


def _flags(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))
