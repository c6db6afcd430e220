"""Finds each change that a batch makes to a key, in order. `resolution` finds the last one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.mirror.event_order.last import parts_between_logs, parts_of
from mirrorlake.mirror.event_order.records import ORDER, SECTION_NAMES
from mirrorlake.mirror.event_order.resolution import Resolution, backfill_wins
from mirrorlake.mirror.event_order.rules import OrderRule
from mirrorlake.mirror.event_order.truncations import is_truncated
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

_SAME = ["backfill", "log", *SECTION_NAMES, "deletion", "content"]
"""The columns of ORDER in which an event and its copies are equal."""


@dataclass(frozen=True, slots=True)
class BatchRecords:
    """What a batch was resolved from (`resolve`), and the last truncation of each log (ORDER).
    before: what had been derived of earlier batches, as `derived`."""

    known: pa.Table
    events: pa.Table
    derived: pa.Table | None
    truncations: pa.Table
    before: pa.Table | None = None

    def together(self, names: list[str]) -> pa.Table:
        parts = [self.known, self.events, self.derived]
        return pa.concat_tables([one.select(names) for one in parts if one is not None])

    def is_known(self, key: list[str]) -> np.ndarray:
        """Which records an earlier batch had, or had derived."""
        known = self.known.num_rows
        derived = 0 if self.derived is None else self.derived.num_rows
        found = np.arange(known + self.events.num_rows + derived) < known
        if self.derived is not None and self.before is not None and derived:
            names = [*key, *_SAME]
            both = pa.concat_tables([self.before.select(names), self.derived.select(names)])
            code = codes.encode(both.combine_chunks()).code
            earlier, later = np.split(code, [self.before.num_rows])
            found[len(found) - derived :] = np.isin(later, earlier)
        return np.asarray(found)


def every_change(
    rule: OrderRule, guard_ms: int, key: list[str], batch: BatchRecords, found: Resolution
) -> np.ndarray:
    """The changes of the keys that a batch changes several times: row numbers in `known`, `events`
    and `derived`, key by key, those of a key in their order. The last one determines the row.

    Left out is what would not have been seen if each had been applied in its turn: copies, changes
    before those that are known, before a truncation, or before a backfill that is known; and
    backfills, but for one that determines the row.
    """
    rows = batch.together([*key, *ORDER.names])
    code = codes.encode(rows.select(key)).code
    first_event = batch.known.num_rows
    decides = np.zeros(rows.num_rows, bool)
    decides[found.deciders[found.deciders >= first_event]] = True
    is_known = batch.is_known(key)
    decides &= ~is_known
    counts = _is_candidate(rule, guard_ms, rows, batch, code) | decides
    several = np.zeros(int(code.max(initial=-1)) + 1, bool)
    several[code[counts & ~is_known & ~decides]] = True
    decided = np.zeros(len(several), bool)
    decided[code[decides]] = True
    candidates = np.flatnonzero(counts & (several & decided)[code])
    if not len(candidates):
        return candidates
    subset = rows.take(pa.array(candidates)).combine_chunks()
    order, is_seen = _in_order(rule, subset, code[candidates])
    left = _left(subset, order, is_seen, code[candidates], is_known[candidates])
    return np.asarray(candidates[left])


def _is_candidate(
    rule: OrderRule, guard_ms: int, rows: pa.Table, batch: BatchRecords, code: np.ndarray
) -> np.ndarray:
    """Which records are changes that are known, or that neither a truncation nor a known backfill
    comes after."""
    changes, beaten = ~_values(rows, "backfill"), np.zeros(rows.num_rows, bool)
    if batch.truncations.num_rows:
        beaten |= is_truncated(rule, rows, batch.truncations)
    fills = np.flatnonzero(_values(batch.known, "backfill"))
    fill = np.full(int(code.max(initial=-1)) + 1, -1)
    fill[code[fills]] = fills
    beaten |= backfill_wins(rows, np.arange(len(code)), fill[code], guard_ms)
    return np.asarray(changes & (~beaten | (np.arange(len(code)) < batch.known.num_rows)))


def _in_order(rule: OrderRule, rows: pa.Table, code: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row numbers by key, by the last change of each log (ST-205), and in the log; a backfill
    last. And which of them, in this order, are later than the last change of the log before."""
    everything = np.arange(rows.num_rows)
    log = codes.encode(rows.select(["backfill", "log"])).code
    inside = [log, *(part(everything) for part in parts_of(rule, rows))]
    order = np.lexsort([*inside[::-1], code])
    first = np.flatnonzero(_changes(code[order]) | _changes(log[order]))
    size = np.diff(np.append(first, len(order)))
    last = np.repeat(order[first + size - 1], size)
    between = [part(last) for part in parts_between_logs(rows)]
    fill = _values(rows, "backfill")
    order = order[np.lexsort([everything, *between[::-1], fill[order], code[order]])]

    moment, name = [part(order) for part in parts_between_logs(rows)]
    begins = _changes(code[order]) | _changes(log[order])
    begin = np.maximum.accumulate(np.where(begins, everything, 0))
    before = np.maximum(begin - 1, 0)  # the last change of the log before
    is_first = fill[order] | (begin == 0) | (code[order][before] != code[order])
    later = (moment > moment[before]) | ((moment == moment[before]) & (name > name[before]))
    return order, is_first | later


def _left(
    rows: pa.Table,
    order: np.ndarray,
    is_seen: np.ndarray,
    code: np.ndarray,
    is_known: np.ndarray,
) -> np.ndarray:
    """The records in order, without copies and what was known, of keys with several that are
    left."""
    code, is_known = code[order], is_known[order]
    same = codes.encode(rows.select(_SAME).take(pa.array(order)).combine_chunks()).code
    run = np.cumsum(_changes(code) | _changes(same)) - 1
    known = np.zeros(int(run[-1]) + 1, bool)
    known[run[is_known]] = True
    was_known, place = known[run], np.arange(len(order))
    newest = np.full(int(code.max()) + 1, -1)  # of the known ones of a key
    newest[code[was_known]] = place[was_known]
    is_last = np.append(run[1:] != run[:-1], True)
    left = is_last & is_seen & (place > newest[code])
    several = np.bincount(code[left], minlength=len(newest)) > 1
    return np.asarray(order[left & several[code]])


def _changes(values: np.ndarray) -> np.ndarray:
    """Where a value is another one than before; true for the first."""
    return np.append(True, values[1:] != values[:-1])


def _values(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))
