"""Finds the last record of each group, for all groups at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.records import SECTION_NAMES
from mirrorlake.mirror.event_order.rules import OrderRule
from mirrorlake.model.arrow import contiguous

Part = Callable[[np.ndarray], np.ndarray]
"""Returns the values of one sort column, int64 or uint64, for records with given row numbers."""


def last_of_each(group: np.ndarray, groups: int, parts: Iterator[Part]) -> np.ndarray:
    """The row number of the last record of each group; -1 for a group without records.

    group: int64 per record, -1 for a record to ignore; parts: the sort columns, most significant
    first. Of records that are equal in all of them the first is returned. A sort column is
    evaluated only for the records that the earlier ones do not decide.
    """
    alive = np.flatnonzero(group >= 0)
    own = group[alive]
    for part in parts:
        if _is_distinct(own, groups):
            break
        values = part(alive)
        highest = np.full(groups, np.iinfo(values.dtype).min, values.dtype)
        np.maximum.at(highest, own, values)
        stays = values == highest[own]
        alive, own = alive[stays], own[stays]
    found = np.full(groups, -1)
    found[own[::-1]] = alive[::-1]
    return found


def parts_of(rule: OrderRule, rows: pa.Table) -> Iterator[Part]:
    """The sort columns of records of one log, or of backfills.

    Changes: the log position; a deletion first (ST-212) or last, and the later read (ST-214); the
    read batch and the row in it. Backfills: source time, read time, uuid (ST-215). Further columns
    decide between events that are equal in all of these.
    """
    column = _columns(rows)
    backfill, deletion = column("backfill"), column("deletion")
    source, read = column("source_ms"), column("read_ms")
    for name in SECTION_NAMES:
        yield column(name).__getitem__
    rank = deletion if rule.deletion_last else ~deletion
    by_time = backfill | rule.deletion_last
    yield lambda records: np.where(backfill[records], source[records], rank[records])
    yield lambda records: np.where(by_time[records], read[records], 0)
    yield lambda records: _ranks(rows.column("read_batch"), records)
    yield column("counter").__getitem__
    yield source.__getitem__
    yield read.__getitem__
    yield lambda records: deletion[records].astype(np.int64)
    yield column("content").__getitem__


def parts_between_logs(rows: pa.Table) -> Iterator[Part]:
    """The sort columns of the last changes of several logs: source time, name of the log
    (ST-205)."""
    yield _columns(rows)("source_ms").__getitem__
    yield lambda records: _ranks(rows.column("log"), records)


def _columns(rows: pa.Table) -> Callable[[str], np.ndarray]:
    return lambda name: np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))


def _is_distinct(group: np.ndarray, groups: int) -> bool:
    """Whether no group occurs twice."""
    occurs = np.zeros(groups, bool)
    occurs[group] = True
    return int(np.count_nonzero(occurs)) == len(group)


def _ranks(texts: pa.ChunkedArray, records: np.ndarray) -> np.ndarray:
    ranks = pc.rank(contiguous(texts.take(pa.array(records))), tiebreaker="dense")
    return np.asarray(ranks.to_numpy().astype(np.int64))
