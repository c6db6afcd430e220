"""What a cycle would do: the zone is looked at, and each table is planned for.

A table that has not changed since it was last planned for, in its folder, in its log and in its
target, is not planned for again: the plan is a function of these.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from mirrorlake.app.loop.limits import Limits
from mirrorlake.app.maintenance.deleted_tables import DeletedTables
from mirrorlake.app.table_paths import TablePaths
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.errors import NestedTables, TableError, UnsupportedTable
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.file_identity import Tails
from mirrorlake.landing.metadata import SEQUENTIAL
from mirrorlake.landing.parquet.reader import Inspected
from mirrorlake.landing.scan import Fingerprint, Landed, Scanner, TableScan
from mirrorlake.mirror.batch import Run
from mirrorlake.mirror.engine import TableReader
from mirrorlake.mirror.plan import candidates, nested, plan
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import TablePlan
from mirrorlake.mirror.table.known_table import CutTarget, KnownTable
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store, UnsafePath


@dataclass(frozen=True, slots=True)
class _IdlePlan:
    """The plan of a table that has nothing to do, and all that it follows from."""

    scan: TableScan
    progress: Progress
    target: CutTarget
    plan: TablePlan

    def holds(self, scan: TableScan, progress: Progress, target: CutTarget) -> bool:
        known = self.scan
        return (
            progress is self.progress
            and target == self.target
            and scan.described == known.described
            and scan.metadata is known.metadata
            and scan.table == known.table
            and scan.files == known.files
            and scan.error is None
        )


def new_uuid() -> str:
    """The generation of a table that is made."""
    return str(uuid.uuid4())


class Planning:
    """Looks at one zone again and again. Not for several threads.

    tables: give the same progress as long as it is the same; platform: why `direct` is not open, in
    words; scans: of the last look, in order; paths: where their tables are.
    """

    def __init__(
        self,
        store: Store,
        tables: TableReader,
        settings: MirrorSettings,
        clock: Clock,
        new_generation: Callable[[], str] = new_uuid,
        platform: str = "",
        reached: CrashHook = no_crash,
    ) -> None:
        self._tables, self._settings = tables, settings
        self._new_generation, self._platform = new_generation, platform
        self.scanner = Scanner(
            store, strict_text=settings.strict_text, partitions=settings.partitions
        )
        self.cuts = Cuts(store, self.scanner.zone())
        self.names = ProcessedNames(store, tables)
        self.limits = Limits(store, clock, settings)
        self.deleted_tables = DeletedTables(
            store, self.scanner.zone, tables, settings, clock, reached
        )
        self._tails = Tails(store)
        self._table_paths = TablePaths(store, settings.default_schema)
        self._failed: dict[str, tuple[Fingerprint, TableError]] = {}  # by the path of a file
        self._idle: dict[str, _IdlePlan] = {}  # by the path of a folder
        self._inside: Mapping[TableId, TableId] = {}
        self.scans: list[TableScan] = []
        self.paths: dict[TableId, str] = {}

    def whole_plan(self, cut: Cut | None) -> list[TablePlan]:
        """What a cycle up to this cut would do, and what would be compacted now; nothing is
        changed."""
        planned = self.limits.allowed(self.plans(cut))
        deleted = self.deleted_tables.plans(self.scans, self.paths)
        gone = {table.table for table in deleted}
        return [self._compacted(table) for table in planned if table.table not in gone] + deleted

    def plans(
        self, cut: Cut | None, under_way: Mapping[TableId, TablePlan] | None = None
    ) -> list[TablePlan]:
        """The plans of the tables that have a folder, up to a cut.

        under_way: of tables that are left alone now, how they stand meanwhile.
        """
        self._look()
        busy = under_way or {}
        return [busy.get(scan.table) or self._plan_one(scan, cut) for scan in self.scans]

    def refused(self, file: Landed, error: TableError) -> None:
        """A file could not be applied: it is not tried again before it is another (LZ-269)."""
        self._failed[file.path] = (file.fingerprint, error)

    def _compacted(self, table: TablePlan) -> TablePlan:
        if not (self._settings.compaction and table.exists) or table.error:
            return table
        try:
            step = self._tables.compaction(table.path)
        except (TableError, UnsafePath):
            return table  # its next batch says so
        return replace(table, steps=(*table.steps, step)) if step else table

    def _look(self) -> None:
        self.scans = self.scanner.scan()
        paths = {scan.table: self._table_paths.of(scan) for scan in self.scans}
        if paths != self.paths:
            self.paths, self._inside = paths, nested(paths)
            self._let_go({scan.folder.path for scan in self.scans})

    def _let_go(self, folders: Collection[str]) -> None:
        """Forget what was known of folders that are gone."""
        self._idle = {path: s for path, s in self._idle.items() if path in folders}
        self._failed = {
            path: known
            for path, known in self._failed.items()
            if path.rpartition("/")[0] in folders
        }

    def _plan_one(self, scan: TableScan, cut: Cut | None) -> TablePlan:
        path = self.paths[scan.table]
        try:
            if scan.table in self._inside:
                raise NestedTables(
                    f"one of the paths {path} and {self._inside[scan.table]} lies inside the other",
                    table=str(scan.table),
                    hint="Rename one of the tables, or set default_schema.",
                )
            progress, target = self._tables.progress(path), _target(scan.table, cut)
            idle = self._idle.get(scan.folder.path)
            if idle and idle.holds(scan, progress, target):
                return idle.plan
            return self._planned(scan, path, progress, target)
        except UnsafePath as unsafe:
            error: TableError = UnsupportedTable(
                str(unsafe),
                table=str(scan.table),
                hint="Rename its folder or its schema, or remove the link.",
            )
        except TableError as found:
            error = found
        return TablePlan(scan.table, path, scan.folder.path, TableState.FAILED, error=error)

    def _planned(
        self, scan: TableScan, path: str, progress: Progress, target: CutTarget
    ) -> TablePlan:
        known = KnownTable(
            scan=scan,
            path=path,
            progress=progress,
            settings=self._settings,
            target=target,
            tail=self._tails,
            processed=self.names.processed(scan, path, progress),
            platform=self._platform,
        )
        run = candidates(known)
        inspected = self._inspect(scan.table, run)
        found = plan(known, run, inspected, self._new_generation())
        self._idle.pop(scan.folder.path, None)
        # By time it follows from the names that were applied too, and these are many.
        nothing_to_do = not (run.files or found.steps or found.error or found.waiting)
        if nothing_to_do and progress.exists and scan.detection == SEQUENTIAL:
            self._idle[scan.folder.path] = _IdlePlan(scan, progress, target, found)
        return found

    def _inspect(self, table: TableId, run: Run) -> dict[str, Inspected | TableError]:
        """The footers of a run, and what is known to be wrong with its files (LZ-269)."""
        found: dict[str, Inspected | TableError] = {}
        for file in run.files:
            failed = self._failed.get(file.path)
            if failed and failed[0] == file.fingerprint:
                found[file.path] = failed[1]
                break
            self._failed.pop(file.path, None)
            try:
                found[file.path] = self.scanner.inspect(table, file)
            except TableError as error:
                found[file.path] = error
                break
        return found


def _target(table: TableId, cut: Cut | None) -> CutTarget:
    """How far a table goes: to the cut, or as far as it can when no cut knows it yet.

    Of a table that it excludes the newest cut says nothing; an earlier one knew it.
    """
    name = str(table)
    if cut is None or name not in cut.tables:
        return CutTarget()
    return CutTarget(cut.tables[name], None if name in cut.excluded else cut.number)
