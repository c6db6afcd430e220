"""The limits of the original, for whoever wants them: tables, and bytes per day (LZ-278).

Off by default. A table beyond the number is not started; those that are go on. When the bytes of a
day in UTC are applied, nothing is until the next one. What was applied is counted when its cycle
ends, so a day may hold one cycle more, and a process that is killed forgets the one it was in.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta

from mirrorlake import root
from mirrorlake.errors import TooManyTables
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles, CleanUp, CreateTable, TablePlan
from mirrorlake.model.clock import Clock
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

PATH = f"{root.STATE}/day.json"
TOO_MANY = "The tables count might exceed the limit, there could be some tables missing."
THROTTLED = "The replication is being throttled and expected to continue at {}."


class Limits:
    """Holds back what is beyond the limits of one mirror."""

    def __init__(self, store: Store, clock: Clock, settings: MirrorSettings) -> None:
        self._store, self._clock = store, clock
        self._tables, self._bytes = settings.max_tables, settings.max_bytes_per_day
        self._day, self._applied = _read(store) if self._bytes else (date.min, 0)

    def allowed(
        self, planned: Sequence[TablePlan], under_way: Collection[TableId] = ()
    ) -> list[TablePlan]:
        """The plans without the steps that are beyond a limit, and the reason in their place.
        under_way: tables whose batch, which may create them, has begun."""
        started = self._within_number(planned, under_way)
        if self._bytes is None or self._so_far() < self._bytes:
            return started
        until = datetime.combine(self._day + timedelta(days=1), datetime.min.time())
        reason = THROTTLED.format(until.isoformat(timespec="seconds"))
        return [_waiting(table, reason) for table in started]

    def applied(self, size: int) -> None:
        """Count the landed bytes of a batch."""
        if self._bytes is not None:
            self._applied = self._so_far() + size

    def save(self) -> None:
        """Keep the count of the day, so that a restart does not begin it again."""
        record = {"day": self._day.isoformat(), "bytes": self._applied}
        if self._bytes is not None and _read(self._store) != (self._day, self._applied):
            self._store.replace(PATH, json.dumps(record).encode())

    def _so_far(self) -> int:
        today = self._clock.now().date()
        if today != self._day:
            self._day, self._applied = today, 0
        return self._applied

    def _within_number(
        self, planned: Sequence[TablePlan], under_way: Collection[TableId]
    ) -> list[TablePlan]:
        if self._tables is None:
            return list(planned)
        exists = [table.exists or table.table in under_way for table in planned]
        free, allowed = self._tables - sum(exists), []
        for table, is_there in zip(planned, exists, strict=True):
            is_new = not is_there and any(isinstance(s, CreateTable) for s in table.steps)
            allowed.append(_refused(table, self._tables) if is_new and free <= 0 else table)
            free -= is_new
        return allowed


def _refused(table: TablePlan, most: int) -> TablePlan:
    error = TooManyTables(
        f"{TOO_MANY} The limit is {most:,}",
        table=str(table.table),
        hint="Raise mirror.max_tables, or remove the folders of other tables.",
    )
    return replace(table, state=TableState.FAILED, steps=(), error=error)


def _waiting(table: TablePlan, reason: str) -> TablePlan:
    if not any(isinstance(step, ApplyFiles) for step in table.steps):
        return table
    kept = tuple(step for step in table.steps if isinstance(step, CleanUp))
    return replace(table, steps=kept, waiting="" if table.error else reason)


def _read(store: Store) -> tuple[date, int]:
    try:
        found = json.loads(store.read(PATH))
        return date.fromisoformat(found["day"]), int(found["bytes"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return date.min, 0  # without it the day begins again
