"""Computing anew what is remembered beside tables of events, after its files were damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.app.events.applying import ERRORS, storage_errors
from mirrorlake.app.events.reset import is_event_table
from mirrorlake.app.events.status import stops
from mirrorlake.app.own_root import check_root
from mirrorlake.app.status import ended
from mirrorlake.app.stores import event_store_of, store_of
from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.remembered.state import created
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.config import Project
from mirrorlake.errors import OperatorError, TableError, UsageError, tables_like
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId, named
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class EventRepair:
    """What a repair will do.

    tables: with the damage, empty if there is none.
    left: tables that were not named and cannot be repaired, with the reason.
    """

    project: Project
    tables: Mapping[TableId, str]
    left: Mapping[TableId, TableError | UsageError] = field(default_factory=dict)

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
        lines += [f"{table}: is left as it is: {why.what}" for table, why in self.left.items()]
        return lines or ["There is nothing to repair."]

    def facts(self) -> dict[str, Any]:
        return {
            "tables": [{"table": str(t), "damage": w} for t, w in self.tables.items()],
            "left": [{"table": str(table), **why.facts()} for table, why in self.left.items()],
        }

    def execute(self, reached: CrashHook = no_crash) -> None:
        """Do it, for as many tables as possible. Raises LeaseHeld while events are applied;
        OperatorError for the tables that cannot be repaired, Unavailable."""
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
            failed: list[TableError] = []
            for table in self.tables:
                try:
                    with storage_errors(self.project.events.described):
                        consumer.rebuild(table)
                except TableError as error:
                    failed.append(error)
                    continue
                left = {name: one for name, one in stops(store).items() if name != str(table)}
                store.replace(ERRORS, json.dumps(left).encode())
            _raise(failed)
        finally:
            lease.release()


def _raise(failed: Sequence[TableError]) -> None:
    """Raise the error of one table, or one error that tells those of several."""
    if len(failed) > 1:
        raise OperatorError(
            f"{len(failed)} tables cannot be repaired: "
            + "; ".join(f"{error.where}: {error.what}" for error in failed),
            where="repair",
            hint=" ".join(dict.fromkeys(error.hint for error in failed)),
        )
    for error in failed:
        raise error


class _NoResults:
    """A repair applies nothing."""

    def applied(
        self, table: TableId, done: EventTableReport, files: int, held: TableError | None
    ) -> None:
        raise AssertionError(table, done, files, held)

    def stopped(self, table: TableId, error: TableError) -> None:
        raise AssertionError(table) from error


def plan_event_repair(project: Project, tables: Sequence[str]) -> EventRepair:
    """What repairing these tables means; by default those whose state is damaged. Raises
    UsageError, TableError."""
    assert project.events is not None
    store = store_of(project)
    check_root(project, store)
    chosen = _known(store)
    if tables:
        known = [str(table) for table in chosen]
        chosen = [TableId.parse(named(name, known, where="repair")) for name in tables]
    found, left = dict[TableId, str](), dict[TableId, TableError | UsageError]()
    for table in chosen:
        try:
            is_there = is_event_table(store, table)
            if is_there:
                found[table] = EventTable(store, table, project.events).damage()
        except (TableError, UsageError) as error:
            if tables:
                raise
            left[table] = error
            continue
        if tables and not is_there:
            raise UsageError(
                f"there is no table {table}",
                where="repair",
                hint=tables_like(str(table), _known(store)),
            )
    damaged = {table: why for table, why in found.items() if why or tables}
    return EventRepair(project, damaged, left)


def _known(store: Store) -> list[TableId]:
    """All tables that were created, whatever is damaged, and those that stopped."""
    known = {str(table): table for table in created(store)}
    return [known.get(name) or TableId.parse(name) for name in sorted({*known, *stops(store)})]
