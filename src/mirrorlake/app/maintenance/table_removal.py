"""Taking tables out of the mirror whose folders were deleted, when it is time for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from mirrorlake.app.loop.planning import Planning
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.maintenance.deleted_tables import DeletedTables
from mirrorlake.app.maintenance.landing_cleanup import CLEANUP_REFUSED
from mirrorlake.app.status.monitor import Monitor
from mirrorlake.errors import TableError
from mirrorlake.landing.cleanup import UNTIDY
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.steps import DropTable

log = structlog.get_logger()


class TableRemoval:
    """Does what `DeletedTables` finds. before: called before each act; refuses it by raising."""

    def __init__(
        self,
        engine: MirrorEngine,
        deleted_tables: DeletedTables,
        report: ApplyReport,
        monitor: Monitor,
        before: Callable[[], None],
    ) -> None:
        self._engine, self._deleted_tables, self._before = engine, deleted_tables, before
        self._report, self._monitor = report, monitor

    def look(self, planning: Planning, held: Collection[str]) -> None:
        """Look for tables whose folders were deleted, and drop those that fall due.

        held: the paths of the tables that something is done with now; they fall due again.
        """
        found = self._deleted_tables.look(planning.scans, planning.paths)
        if found is None:
            return
        self._report.deleted(found)
        for table in found:
            for step in table.steps:
                if isinstance(step, DropTable) and step.path not in held:
                    self._drop(step)

    def _drop(self, step: DropTable) -> None:
        self._before()
        self._deleted_tables.record_drop(step)
        try:
            self._engine.drop(step)
        except TableError as error:
            self._report.fail(step.table, step.path, error)  # it falls due again
            return
        try:
            self._deleted_tables.dropped(step)
        except UNTIDY as refused:
            log.warning(CLEANUP_REFUSED, table=str(step.table), reason=str(refused))
        self._report.removed(step.table)
        self._monitor.removed(step.table)
