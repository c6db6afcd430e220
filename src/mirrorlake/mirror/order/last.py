"""The last record of each group, all groups at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.order.records import SECTION_NAMES
from mirrorlake.mirror.order.rules import OrderRule
from mirrorlake.model.arrow import contiguous

Part = Callable[[np.ndarray], np.ndarray]
"""The values of one part of the order, int64 or uint64, of the records with these numbers."""


def last_of_each(group: np.ndarray, groups: int, parts: Iterator[Part]) -> np.ndarray:
    """The number of the last record of each group; -1 for a group without records.

    group: int64 per record, -1 for a record that does not take part; parts: by which records are
    compared, the first of them most. Of records that are alike in all parts the first is taken.
    Each part is looked at for the records alone that the parts before it did not tell apart.
    """
    alive = np.flatnonzero(group >= 0)
    for part in parts:
        if _single(group[alive]):
            break
        values = part(alive)
        highest = np.full(groups, np.iinfo(values.dtype).min, values.dtype)
        np.maximum.at(highest, group[alive], values)
        alive = alive[values == highest[group[alive]]]
    found = np.full(groups, -1)
    found[group[alive][::-1]] = alive[::-1]
    return found


def parts_of(rule: OrderRule, rows: pa.Table) -> Iterator[Part]:
    """The order of records of one log, or of backfills.

    Changes: the place; a deletion first (ST-212) or last, and the later read (ST-214); the batch
    and the row in it. Backfills: time in the source, time of the read, uuid (ST-215). Then whatever
    else there is, for events that are told apart by nothing of these.
    """
    column = _columns(rows)
    backfill, deletion = column("backfill"), column("deletion")
    source, read = column("source_ms"), column("read_ms")
    for name in SECTION_NAMES:
        yield column(name).__getitem__
    rank = deletion if rule.deletion_last else ~deletion
    by_time = backfill | rule.deletion_last
    yield lambda those: np.where(backfill[those], source[those], rank[those])
    yield lambda those: np.where(by_time[those], read[those], 0)
    yield lambda those: _ranks(rows.column("read_batch"), those)
    yield column("counter").__getitem__
    yield source.__getitem__
    yield read.__getitem__
    yield lambda those: deletion[those].astype(np.int64)
    yield column("content").__getitem__


def parts_between_logs(rows: pa.Table) -> Iterator[Part]:
    """The order of the last changes of several logs: time in the source, name (ST-205)."""
    yield _columns(rows)("source_ms").__getitem__
    yield lambda those: _ranks(rows.column("log"), those)


def _columns(rows: pa.Table) -> Callable[[str], np.ndarray]:
    return lambda name: np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))


def _single(group: np.ndarray) -> bool:
    """Whether no group is there twice."""
    return len(group) < 2 or int(np.bincount(group).max()) < 2


def _ranks(texts: pa.ChunkedArray, those: np.ndarray) -> np.ndarray:
    ranks = pc.rank(contiguous(texts.take(pa.array(those))), tiebreaker="dense")
    return np.asarray(ranks.to_numpy().astype(np.int64))
