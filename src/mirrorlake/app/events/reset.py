"""Starting tables of events anew: they are removed, and all files that are there are read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from mirrorlake.app.events.status import event_tables
from mirrorlake.app.reset import chosen_of
from mirrorlake.app.stores import store_of
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.apply.events.remembered.state import StateFolder
from mirrorlake.config import Project
from mirrorlake.delta import tables as table_removal
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.schema import OF_EVENTS
from mirrorlake.errors import UsageError
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class EventReset:
    """What a reset will do."""

    project: Project
    tables: Sequence[TableId]

    def sentences(self) -> list[str]:
        assert self.project.events is not None
        lines = [
            f"{table}: delete {delta_path(table, None)} and make it again; its change feed is "
            "deleted too, and begins anew"
            for table in self.tables
        ]
        where = self.project.events.described
        days = self.project.events.retention / timedelta(days=1)
        others = (
            f"other tables stay as they are if no file has events from more than {days:g} days "
            "before their latest one (source.retention_days)"
        )
        return [*lines, f"read all files in {where} again; {others}"]

    def execute(self, reached: CrashHook = no_crash) -> None:
        """Do it. Raises LeaseHeld while events are applied."""
        store = store_of(self.project)
        lease = Lease(store, "mirror", WallClock())
        lease.take()
        try:
            # The files come first: a table that is there reads them once more, and stays as it is
            # as far as its state reaches.
            FileJournals(store).delete()
            for table in self.tables:
                path = delta_path(table, None)
                if is_event_table(store, table):  # what else there is at its path is not ours
                    table_removal.remove(store, path)
                    reached(CrashPoint.RESET_TABLE_DELETED)
                StateFolder(store, table).delete()
        finally:
            lease.release()


def plan_event_reset(project: Project, tables: Sequence[str] | None) -> EventReset:
    """What starting these tables anew (all for None) means. Raises UsageError."""
    store = store_of(project)
    found = event_tables(store, is_running=False)
    known = {one.table: TableId.parse(one.table) for one in found}
    chosen = [known[name] for name in chosen_of(known, tables)]
    for table in chosen:
        is_event_table(store, table)
    return EventReset(project, chosen)


def is_event_table(store: Store, table: TableId) -> bool:
    """Whether a table of events is at the path of one. Raises UsageError for another table."""
    path = delta_path(table, None)
    try:
        snapshot = TableLog.below(store, path).snapshot()
    except FileNotFoundError:
        return False
    except BrokenLog as error:
        if StateFolder(store, table).is_described():
            return True
        raise _foreign(table, path) from error
    if snapshot.exists and OF_EVENTS not in snapshot.properties:
        raise _foreign(table, path)
    return snapshot.exists


def _foreign(table: TableId, path: str) -> UsageError:
    return UsageError(
        f"the table at {path} is not made of events, and is not deleted",
        where=f"table {table}",
        hint="Move it away, or name the tables that are meant.",
    )
