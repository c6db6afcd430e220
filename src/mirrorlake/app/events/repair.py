"""Computing anew what is remembered beside tables of events, after its files were damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirrorlake.app.events.applying import ERRORS, storage_errors
from mirrorlake.app.events.reset import is_event_table
from mirrorlake.app.events.status import stops
from mirrorlake.app.own_root import check_root
from mirrorlake.app.status import ended
from mirrorlake.app.stores import event_store_of, store_of
from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.remembered.state import states
from mirrorlake.apply.events.table import EventTable, EventTableReport
from mirrorlake.config import Project
from mirrorlake.errors import TableError, UsageError
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class EventRepair:
    """What a repair will do. tables: with the damage, empty if there is none."""

    project: Project
    tables: Mapping[TableId, str]

    @property
    def is_needed(self) -> bool:
        return bool(self.tables)

    def sentences(self) -> list[str]:
        assert self.project.events is not None
        where = self.project.events.described
        lines = [
            f"{table}: compute what is remembered of its keys from its rows and the files in "
            f"{where}; no row changes ({why or 'no damage was found'})"
            for table, why in self.tables.items()
        ]
        return lines or ["There is nothing to repair."]

    def facts(self) -> dict[str, Any]:
        return {"tables": [{"table": str(t), "damage": w} for t, w in self.tables.items()]}

    def execute(self, reached: CrashHook = no_crash) -> None:
        """Do it. Raises LeaseHeld while events are applied, TableError, Unavailable."""
        assert self.project.events is not None
        store, clock = store_of(self.project), WallClock()
        lease = Lease(store, ended.MIRROR, clock)
        lease.take()
        try:
            consumer = EventConsumer(
                store,
                event_store_of(self.project.events),
                self.project.events,
                clock,
                _NoResults(),
                reached=reached,
                check=lease.check,
            )
            for table in self.tables:
                with storage_errors(self.project.events.described):
                    consumer.rebuild(table)
                left = {name: one for name, one in stops(store).items() if name != str(table)}
                store.replace(ERRORS, json.dumps(left).encode())
        finally:
            lease.release()


class _NoResults:
    """A repair applies nothing."""

    def applied(self, table: TableId, done: EventTableReport, files: int) -> None:
        raise AssertionError(table, done, files)

    def stopped(self, table: TableId, error: TableError) -> None:
        raise AssertionError(table) from error


def plan_event_repair(project: Project, tables: Sequence[str]) -> EventRepair:
    """What repairing these tables means; by default those whose state is damaged. Raises
    UsageError, TableError."""
    assert project.events is not None
    store = store_of(project)
    check_root(project, store)
    chosen = [TableId.parse(name) for name in tables] or _known(store)
    found = {}
    for table in chosen:
        if not is_event_table(store, table):
            if not tables:
                continue
            raise UsageError(
                f"there is no table {table}",
                where="repair",
                hint=f"The tables are: {', '.join(map(str, _known(store))) or 'none'}.",
            )
        found[table] = EventTable(store, table, project.events).damage()
    return EventRepair(project, {table: why for table, why in found.items() if why or tables})


def _known(store: Store) -> list[TableId]:
    """All tables, and those that stopped."""
    return [TableId.parse(name) for name in sorted({*map(str, states(store)), *stops(store)})]
