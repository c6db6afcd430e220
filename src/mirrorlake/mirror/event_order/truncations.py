"""Truncations: each deletes the row of every key at its position (ST-256).

Of each log the last one is stored for the whole table. It takes part in the order of each key like
a deletion of that key.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.last import last_of_each, parts_of
from mirrorlake.mirror.event_order.records import ORDER, SECTION_NAMES
from mirrorlake.mirror.event_order.rules import OrderRule
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous


def last_truncations(rule: OrderRule, truncations: pa.Table) -> pa.Table:
    """The last truncation of each log, by the names of the logs. truncations: ORDER."""
    log = codes.encode(truncations.select(["log"])).code
    last = last_of_each(log, int(log.max(initial=-1)) + 1, parts_of(rule, truncations))
    return truncations.take(pa.array(last)).sort_by("log").combine_chunks()


def deletions(truncations: pa.Table, keys: pa.Table) -> pa.Table:
    """Each truncation as a deletion of each of the keys: the key columns and ORDER."""
    count, several = keys.num_rows, truncations.num_rows
    both = [
        *keys.take(pa.array(np.tile(np.arange(count), several))).columns,
        *truncations.take(pa.array(np.repeat(np.arange(several), count))).columns,
    ]
    return pa.table(both, names=[*keys.column_names, *ORDER.names])


def is_truncated(rule: OrderRule, rows: pa.Table, truncations: pa.Table) -> np.ndarray:
    """Which changes are not later than a truncation of their log; bool. rows: ORDER."""
    found = np.zeros(rows.num_rows, bool)
    change = ~contiguous(rows.column("backfill")).to_numpy(zero_copy_only=False)
    sections = [contiguous(rows.column(name)).to_numpy() for name in SECTION_NAMES]
    for number, truncation in enumerate(truncations.to_pylist()):
        log = contiguous(pc.equal(rows.column("log"), truncation["log"]))
        same = change & log.to_numpy(zero_copy_only=False)
        for name, values in zip(SECTION_NAMES, sections, strict=True):
            place = np.uint64(truncation[name])
            found |= same & (values < place)
            same &= values == place
        at = np.flatnonzero(same)
        found[at] = ~_is_later(rule, rows, at, truncations.slice(number, 1))
    return found


def _is_later(rule: OrderRule, rows: pa.Table, at: np.ndarray, truncation: pa.Table) -> np.ndarray:
    """Which changes at the position of a truncation come after it, as between any two changes at
    one position: a deletion may come later with another source time, by which it is compared with
    backfills and other logs. at: their row numbers."""
    count = len(at)
    repeated = truncation.select(ORDER.names).take(pa.array(np.zeros(count, np.int64)))
    pairs = pa.concat_tables([repeated, rows.select(ORDER.names).take(pa.array(at))])
    both = np.tile(np.arange(count), 2)
    return last_of_each(both, count, parts_of(rule, pairs.combine_chunks())) >= count
