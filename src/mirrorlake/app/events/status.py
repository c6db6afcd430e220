"""How tables that are made of events stand, from what is stored beside them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from mirrorlake.app.events.applying import ERRORS
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.apply.events.remembered.state import EventTableState, states
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.model.applied import Totals
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.store import Store

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_tables(store: Store, *, is_running: bool) -> list[TableStatus]:
    """One for each table, by name, those that could not be made among them."""
    known, errors = states(store), stops(store)
    names = {str(table): table for table in known} | {
        name: TableId.parse(name) for name in errors if name not in map(str, known)
    }
    return [
        _status(store, table, known.get(table), errors.get(name), is_running=is_running)
        for name, table in sorted(names.items())
    ]


def dead_events(store: Store) -> int:
    """How many events, or whole files, could not be applied (ST-253)."""
    return sum(one.count for file in FileJournals(store).read().dead for one in file.letters)


def _status(
    store: Store,
    table: TableId,
    state: EventTableState | None,
    error: dict[str, Any] | None,
    *,
    is_running: bool,
) -> TableStatus:
    path = delta_path(table, None)
    try:
        snapshot = TableLog.below(store, path).snapshot()
        version = snapshot.version if snapshot.exists else None
    except (BrokenLog, OSError):
        version = None
    counts = state.counts if state else None
    return TableStatus(
        table=str(table),
        state=TableState.FAILED if error else TableState.REPLICATING,
        path=path,
        version=version,
        last_file=0,
        pending_files=0,
        position=None,
        total=Totals(counts.insert, counts.update, counts.delete) if counts else Totals(),
        lag_seconds=None,
        error=error,
        source_time=_moment(state.source_ms) if state else None,
        is_running=is_running,
        waiting_deletions=(state.waiting or 0) if state else 0,
        widened=state.widened if state else (),
    )


def _moment(milliseconds: int) -> datetime | None:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds) if milliseconds else None
    except OverflowError:
        return None


def stops(store: Store) -> dict[str, dict[str, Any]]:
    """What stops tables, by name."""
    try:
        found = json.loads(store.read(ERRORS))
    except (FileNotFoundError, ValueError):
        return {}
    # An earlier release put no part of a name in quotes. These names have no dots.
    items = found.items() if isinstance(found, dict) else ()
    return {str(TableId.parse(name)): error for name, error in items}
