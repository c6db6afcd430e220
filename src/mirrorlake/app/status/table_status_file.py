"""The status file: how each table stands, for `status`. A view of what the tables say, written
beside them; whoever loses it loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mirrorlake import root
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import format_time
from mirrorlake.storage.store import Store

if TYPE_CHECKING:
    from mirrorlake.app.loop.report import TableReport

PATH = f"{root.STATE}/board.json"
EVERY = 1.0
"""Seconds between two writings at most; it is read by people."""


class TableStatusFile:
    """Writes the status file of one mirror."""

    def __init__(self, store: Store, clock: Clock, reached: CrashHook = no_crash) -> None:
        self._store, self._clock, self._reached = store, clock, reached
        self._written = clock.monotonic() - EVERY
        self._last: dict[str, Any] = {}

    def write(self, tables: Iterable[TableReport], *, force: bool = False) -> None:
        now = self._clock.monotonic()
        if now - self._written < EVERY and not force:
            return
        record = {str(table.table): entry(table) for table in tables}
        if record != self._last:
            _write(self._store, self._clock, record)
            self._last, self._written = record, now
            self._reached(CrashPoint.STATUS_WRITTEN)


def note_reset(store: Store, clock: Clock, tables: Mapping[str, str]) -> None:
    """Note tables that were reset, by name with their paths: nothing else names them until they
    are loaded. The next apply writes the file anew."""
    noted = {
        table: {
            "path": path,
            "error": None,
            "waiting": "it was reset; the next run loads it",
            "gone": True,
            "reset": True,
        }
        for table, path in tables.items()
    }
    _write(store, clock, read(store) | noted)


def _write(store: Store, clock: Clock, tables: Mapping[str, Any]) -> None:
    content = {"written": format_time(clock.now()), "tables": tables}
    store.replace(PATH, json.dumps(content, indent=1).encode())


def read(store: Store) -> dict[str, dict[str, Any]]:
    """Table name to its entry; empty without a status file."""
    try:
        tables: dict[str, dict[str, Any]] = json.loads(store.read(PATH))["tables"]
    except (FileNotFoundError, ValueError, KeyError):
        return {}
    return tables


def entry(table: TableReport) -> dict[str, Any]:
    """What the status file says of a table."""
    return {
        "path": table.path,
        "error": table.error.facts() if table.error else None,
        "waiting": table.waiting,
        **({"gone": True} if table.is_gone else {}),
    }
