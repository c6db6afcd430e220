"""Starting tables of events anew: they are removed, and all files that are there are read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorlake.app.events.status import event_tables
from mirrorlake.app.reset import chosen_of
from mirrorlake.app.stores import store_of
from mirrorlake.apply.events.journal import FileJournals
from mirrorlake.apply.events.state import StateFolder
from mirrorlake.config import Project
from mirrorlake.delta import tables as table_removal
from mirrorlake.model.clock import WallClock
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.storage.lease import Lease


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
        return [*lines, f"read all files in {where} again; other tables stay as they are"]

    def execute(self) -> None:
        """Do it. Raises LeaseHeld while events are applied."""
        store = store_of(self.project)
        lease = Lease(store, "mirror", WallClock())
        lease.take()
        try:
            # The files come first: a table that is there reads them once more, and stays as it is.
            FileJournals(store).delete()
            for table in self.tables:
                table_removal.remove(store, delta_path(table, None))
                StateFolder(store, table).delete()
        finally:
            lease.release()


def plan_event_reset(project: Project, tables: Sequence[str] | None) -> EventReset:
    """What starting these tables anew (all for None) means. Raises UsageError."""
    found = event_tables(store_of(project), is_running=False)
    known = {one.table: TableId.parse(one.table) for one in found}
    return EventReset(project, [known[name] for name in chosen_of(known, tables)])
