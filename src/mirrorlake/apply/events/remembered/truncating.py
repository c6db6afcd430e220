"""Determines the effect of a truncation on the rows of a table and on the state of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.keyed_files import KeyedFiles
from mirrorlake.apply.events.remembered.merging import Merged
from mirrorlake.mirror.event_order import ORDER, RULES, deletions, is_truncated, resolve
from mirrorlake.mirror.event_order.rules import OrderRule


def truncated(
    rule: str, guard_ms: int, keys: KeyedFiles, changes: KeyedFiles | None, truncations: pa.Table
) -> Iterator[Merged]:
    """The effect of new truncations: one step if no row is left, otherwise one step for each file
    of `keys`. Each step may be committed by itself.

    Memory: one file of `keys`.
    """
    order = RULES[rule]
    of_file = partial(_of_file, order, guard_ms, list(keys.key), changes, truncations)
    is_whole = all(not of_file(keys.live(add)).rows for add in keys.files)
    none = keys.arrow.empty_table()
    had_rows = False
    for add in keys.files:
        done = of_file(keys.live(add))
        if not done.gone.num_rows and not done.upserts.num_rows:
            continue
        had_rows = True
        keys = keys.replaced(add, done.remembered)
        if not is_whole:
            yield Merged(keys, changes, done.gone, done.upserts)
    if is_whole and had_rows:
        yield Merged(keys, changes, none.select(list(keys.key)), none, is_whole=True)


class _Truncated:
    """remembered: the new records of the file; rows: number of keys that have a row afterwards;
    gone, upserts: as in `Merged`."""

    def __init__(self, remembered: pa.Table, gone: pa.Table, upserts: pa.Table, rows: int) -> None:
        self.remembered, self.gone, self.upserts, self.rows = remembered, gone, upserts, rows


def _of_file(
    rule: OrderRule,
    guard_ms: int,
    names: list[str],
    changes: KeyedFiles | None,
    truncations: pa.Table,
    rows: pa.Table,
) -> _Truncated:
    """The effect on the keys of one file. All records of a key are in one file."""
    known = merging.as_order(rows)
    none = known.select([*names, *ORDER.names]).slice(0, 0)
    keys = merging.distinct(known.select(names))
    derived = deletions(truncations, keys)
    if changes is not None:
        derived = pa.concat_tables([derived, merging.rolled_back(changes, keys)])
    found = resolve(rule, guard_ms, names, known, none, derived)
    own, values = merging.parted(rows.column_names)
    kept = rows.select(values)
    remembered = merging.records_of(rule, found, rows.select(own), kept, kept.slice(0, 0))
    state = found.state(known, none)
    left = ~is_truncated(rule, state, truncations)
    if rule.by_time:
        # A backfill without a row has no held one to come back, as it would if the process ended
        # before the truncation is remembered. It does not win any more: as an event it is new.
        left &= found.decides | ~state.column("backfill").to_numpy()
    deletion = state.column("deletion").to_numpy()
    return _Truncated(
        remembered.filter(pa.array(left)),
        found.deleted,
        rows.take(pa.array(found.restored)),
        int((found.decides & ~deletion).sum()),
    )
