"""Bounds the state beside a table: removes what no future event can need.

A future event is later than the horizon, because older minute folders are no longer listed
(ST-178), and because it is held back for dead letters that may be replayed (ST-254). For a key
whose events are all older, a deletion is removed (ST-248). For any other key, older events are
removed except the one that determines the row: any later event supersedes them
(`mirror.event_order.resolution`). For a table that keeps every event, the identities of older ones
are removed, because they are not read again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.remembered import merging
from mirrorlake.apply.events.remembered.keyed_files import Adds, KeyedFiles
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.delta.workspace import TableWorkspace
from mirrorlake.mirror.event_order.resolution import DECIDES
from mirrorlake.mirror.event_order.rollbacks import INCOMPLETE, TRANSACTION
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous

SOURCE_MS = "source_ms"
STEP_MS = 24 * 60 * 60 * 1000
"""How far the horizon moves before the next pruning, which reads every file with older events."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def horizon(
    state: EventTableState, retention: timedelta, now: datetime, waiting_ms: int | None = None
) -> int:
    """The time before which state may be removed, milliseconds: the retention before the latest
    event, or before now or `waiting_ms` if that is earlier.

    waiting_ms: the time of the oldest event that may still be replayed; None if there is none.
    """
    latest = min(state.source_ms, (now - EPOCH) // timedelta(milliseconds=1))
    if waiting_ms is not None:
        latest = min(latest, waiting_ms)
    return latest - retention // timedelta(milliseconds=1)


def pruned(state: EventTableState, workspace: TableWorkspace, before: int) -> EventTableState:
    """The state without entries that are older than `before` and not needed."""
    found = replace(state, pruned_ms=before)
    if not state.merges:
        seen = merging.seen_events(workspace, state.keys)
        return replace(found, keys=_pruned(seen, before, lambda rows: _older(rows, before)))
    key = merging.key_columns(state.columns, state.key)
    keys = merging.keys_of(workspace, key, state.columns, state.keys)
    changes = merging.changes_of(workspace, key, state.changes)
    names = [column.name for column in key]
    return replace(
        found,
        keys=_pruned(keys, before, lambda rows: _not_needed(rows, names, before)),
        changes=_pruned(changes, before, lambda rows: _without_rollback(rows, before)),
    )


def _pruned(files: KeyedFiles, before: int, of: Callable[[pa.Table], np.ndarray]) -> Adds:
    return files.without(of, lambda stats: int(stats.get(SOURCE_MS, before)) < before).files


def _older(rows: pa.Table, before: int) -> np.ndarray:
    older = pc.fill_null(pc.less(rows.column(SOURCE_MS), before), False)
    return np.asarray(contiguous(older).to_numpy(zero_copy_only=False))


def _not_needed(rows: pa.Table, key: list[str], before: int) -> np.ndarray:
    """Which records are not needed. The records of one key are in one file, which was written with
    all of them."""
    older = _older(rows, before)
    decides = _flags(rows, DECIDES)
    code = codes.encode(rows.select(key)).code
    count = int(code.max(initial=-1)) + 1
    stays = np.zeros(count, bool)  # keys with a row, or with an event that is not older
    stays[code[~older | (decides & ~_flags(rows, "deletion"))]] = True
    found: np.ndarray = older & (~decides | ~stays[code])
    return found


def _without_rollback(rows: pa.Table, before: int) -> np.ndarray:
    """Older changes of Oracle, except those of a row of a transaction with a deletion by ROWID,
    whose consequences are derived again with each batch (`mirror.event_order.rollbacks`)."""
    code = codes.encode(rows.select(list(TRANSACTION))).code
    rolled_back = np.zeros(int(code.max(initial=-1)) + 1, bool)
    rolled_back[code[_flags(rows, INCOMPLETE)]] = True
    found: np.ndarray = _older(rows, before) & ~rolled_back[code]
    return found


def _flags(rows: pa.Table, name: str) -> np.ndarray:
    return np.asarray(contiguous(rows.column(name)).to_numpy(zero_copy_only=False))
