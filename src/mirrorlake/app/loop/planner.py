"""What a run would do with a landing zone, with nothing changed: the steps of `mirrorlake plan`."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

from mirrorlake.app.loop.limits import Limits
from mirrorlake.app.loop.planning import Planning
from mirrorlake.app.maintenance.deleted_tables import DeletedTables
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.errors import TableError
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.engine import TableReader
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import TablePlan
from mirrorlake.model.clock import Clock
from mirrorlake.storage.store import Store, UnsafePath


def new_uuid() -> str:
    """The generation of a table that is made."""
    return str(uuid.uuid4())


class Planner:
    """What all plans of one zone are made of. platform: why `direct` is not open, in words. Not for
    several threads."""

    def __init__(
        self,
        store: Store,
        tables: TableReader,
        settings: MirrorSettings,
        clock: Clock,
        new_generation: Callable[[], str] = new_uuid,
        platform: str = "",
    ) -> None:
        self._tables, self._settings = tables, settings
        self.scanner = Scanner(
            store, strict_text=settings.strict_text, partitions=settings.partitions
        )
        self.cuts = Cuts(store, self.scanner.zone())
        self.names = ProcessedNames(store, tables)
        self.limits = Limits(store, clock, settings)
        self.planning = Planning(
            store,
            self.scanner,
            self.names,
            tables.progress,
            settings,
            new_generation,
            platform,
        )
        self.deleted_tables = DeletedTables(store, self.scanner.zone, tables, settings, clock)

    def newest_cut(self) -> Cut | None:
        return self.cuts.newest()

    def plan(self, cut: Cut | None) -> list[TablePlan]:
        """What a cycle up to this cut would do, and what would be compacted now."""
        planned = self.limits.held(self.planning.plans(cut))
        deleted = self.deleted_tables.plans(self.planning.scans, self.planning.paths)
        gone = {table.table for table in deleted}
        return [self._compacted(table) for table in planned if table.table not in gone] + deleted

    def _compacted(self, table: TablePlan) -> TablePlan:
        if not (self._settings.compaction and table.exists) or table.error:
            return table
        try:
            step = self._tables.compaction(table.path)
        except (TableError, UnsafePath):
            return table  # its next batch says so
        return replace(table, steps=(*table.steps, step)) if step else table
