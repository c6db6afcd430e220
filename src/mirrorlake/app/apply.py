"""The apply loop: scan, plan, execute, clean up; it orders effects and decides nothing.

Order, on which "nothing lost, nothing twice" rests; a crash test stands behind every arrow:

    lease held → commit of rows, images and progress at once → commit durable
      → names recorded, in timestamp mode → files moved aside

Progress is what the tables have recorded, read again at the start. In each cycle all tables go to
the same cut, so that the versions they reach belong together.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import structlog

from mirrorlake.app.board import Board
from mirrorlake.app.build import Builder
from mirrorlake.app.departures import Departures
from mirrorlake.app.limits import Limits
from mirrorlake.app.monitor import Monitor
from mirrorlake.app.rearrange import rearrange
from mirrorlake.app.report import ApplyReport
from mirrorlake.app.retries import Retries
from mirrorlake.app.tidying import CLEANUP_REFUSED, Tidying
from mirrorlake.app.vacuuming import Vacuums
from mirrorlake.errors import (
    LeaseLost,
    MirrorlakeError,
    NestedTables,
    TableError,
    UnsupportedTable,
    UsageError,
)
from mirrorlake.landing import layout
from mirrorlake.landing.cleanup import UNTIDY
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.identity import Tails
from mirrorlake.landing.lease import Lease
from mirrorlake.landing.parquet import Inspected
from mirrorlake.landing.scan import Look, Scanner, TableScan
from mirrorlake.mirror.batch import Run
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    MirrorEngine,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.faults import UnreadableFile
from mirrorlake.mirror.plan import Known, Target, candidates, nested, plan
from mirrorlake.mirror.processed import Followers
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import (
    AddColumns,
    ApplyFiles,
    CreateTable,
    DropTable,
    TablePlan,
)
from mirrorlake.model.seams import Clock, Probe, no_probe
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

BATCH_REPEATED = "batch_already_applied"
BATCH_DEFERRED = "batch_deferred"

Pending = Callable[[TableId, int], None]
"""Is told in each cycle how many files of a table wait."""


class ApplyLoop:
    """Mirrors one landing zone with one engine. Not for several threads."""

    def __init__(
        self,
        store: Store,
        engine: MirrorEngine,
        settings: MirrorSettings,
        clock: Clock,
        *,
        stop: threading.Event | None = None,
        probe: Probe = no_probe,
        holder: str | None = None,
        new_generation: Callable[[], str] = lambda: str(uuid.uuid4()),
        pending: Pending = lambda _table, _files: None,
        name: str = "mirror",
        source: str = "GenericMirror",
    ) -> None:
        self._store, self._engine, self._settings, self._clock = store, engine, settings, clock
        self._stop, self._probe = stop or threading.Event(), probe
        self._new_generation, self._pending = new_generation, pending
        self._scanner = Scanner(
            store, strict_text=settings.strict_text, partitions=settings.partitions
        )
        self._tails = Tails(store)
        self._followers = Followers(store, engine)
        self._cuts = Cuts(store, self._scanner.zone())
        self._lease = Lease(store, "mirror", clock, holder)
        self._board = Board(store, clock)
        self._failed: dict[str, tuple[Look, TableError]] = {}  # by the path of a file
        self._retries = Retries(clock)
        self._limits = Limits(store, clock, settings)
        self._tidying = Tidying(
            store, self._scanner, self._followers, engine, settings, clock, probe
        )
        self._builder = Builder(engine, store, probe, self._lease.check)
        self._departures = Departures(store, self._scanner.zone, engine, settings, clock)
        self._vacuums = Vacuums(store, engine, clock, settings.vacuum)
        self._monitor = Monitor(
            store, self._scanner, settings, clock, engine.progress, self._followers, name, source
        )
        self._scans: list[TableScan] = []
        self.report = ApplyReport()

    def open(self) -> None:
        """Take the right to write, and make the landing zone. Raises LeaseHeld, UsageError."""
        self._lease.take()
        self._provide_zone()
        self._monitor.open()

    def close(self) -> None:
        self._board.write(self.report.tables.values(), force=True)
        if self._is_holder():
            self._monitor.close(self._scans, self.report.tables.values())
        self._lease.release()

    def _is_holder(self) -> bool:
        """Whether what is shown is ours to show: another mirror may have taken over."""
        try:
            self._lease.check()
        except LeaseLost:
            return False
        return True

    def once(self) -> ApplyReport:
        """Apply everything that is landed when this is called, and then clean up."""
        target = self._cuts.newest()
        while not self._stop.is_set():
            if self.cycle(target):
                continue
            pause = self._retries.pause()
            if pause is None:
                break
            self._clock.sleep(pause)
        self._tidying.do(self._planned(target), force=True)
        self._vacuum(self._vacuums.all)
        return self.report

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Apply what lands until told to stop. watch: called in each round; ends it by raising."""
        pause = self._settings.poll_seconds
        while not self._stop.is_set():
            watch()
            busy = self.cycle(self._cuts.newest())
            self._vacuum(self._vacuums.one)
            pause = (
                self._settings.poll_seconds if busy else min(pause * 2, self._settings.idle_seconds)
            )
            if not busy:
                self._clock.sleep(pause)

    def newest_cut(self) -> Cut | None:
        return self._cuts.newest()

    def cycle(self, cut: Cut | None) -> bool:
        """One round over all tables. Returns whether anything was applied."""
        self._lease.check()
        begun = self._clock.now()
        planned = self._retries.held(self._planned(cut))
        self.report.note(planned)
        for table in planned:
            self._pending(table.table, table.pending)
        self._tidying.do(planned)
        ready = self._build([table for table in planned if not table.is_idle])
        built = {table.table for table in ready}
        self._monitor.begun([t for t in planned if t.is_idle or t.table in built])
        steps = [step for table in ready for step in table.steps if isinstance(step, ApplyFiles)]
        outcomes = self._engine.apply(steps, self._lease.check) if steps else ()
        progressed = [
            self._finish(step, outcome, begun)
            for step, outcome in zip(steps, outcomes, strict=True)
        ]
        self._limits.save()
        if self._settings.compaction:
            done = [s for s, o in zip(steps, outcomes, strict=True) if isinstance(o, Applied)]
            rearrange(self._engine, done, self._lease.check)
        self._drop()
        self._monitor.failed(self.report.tables.values())
        self._board.write(self.report.tables.values(), force=any(progressed))
        self._monitor.show(self._scans, self.report.tables.values())
        return any(progressed)

    def plan(self, cut: Cut | None) -> list[TablePlan]:
        """What a cycle up to this cut would do; nothing is changed."""
        planned = self._planned(cut)
        gone = self._departures.plans(self._scans, self._paths())
        departed = {table.table for table in gone}
        return [table for table in planned if table.table not in departed] + gone

    def _provide_zone(self) -> None:
        """A folder to land in, for whoever waits for one (LZ-004).

        Where there are tables there was one, in either form: it is not mounted, and one that is
        made in its place would hide it.
        """
        if layout.landing_zones(self._store) or self._engine.paths():
            return
        try:
            self._store.make_folder(layout.LANDING)
        except (UnsafePath, FileExistsError):
            self._lease.release()
            raise UsageError(
                "the landing zone is no folder, or a link that leads out of the root",
                where=layout.LANDING,
                hint="Put a folder there, or let root be the folder in which it truly lies.",
            ) from None

    # -- planning -------------------------------------------------------------------------------

    def _planned(self, cut: Cut | None) -> list[TablePlan]:
        """The plans of the tables that have a folder."""
        self._scans = self._scanner.scan()
        paths = self._paths()
        inside = nested(paths)
        return self._limits.held(
            [self._plan_one(scan, paths[scan.table], cut, inside) for scan in self._scans]
        )

    def _paths(self) -> dict[TableId, str]:
        schema = self._settings.default_schema
        return {scan.table: layout.delta_path(scan.folder, schema) for scan in self._scans}

    def _plan_one(
        self, scan: TableScan, path: str, cut: Cut | None, inside: dict[TableId, TableId]
    ) -> TablePlan:
        try:
            if scan.table in inside:
                raise NestedTables(
                    f"its path {path} and that of {inside[scan.table]} lie inside each other",
                    table=str(scan.table),
                    hint="Rename one of them, or set default_schema.",
                )
            progress = self._engine.progress(path)
            known = Known(
                scan=scan,
                path=path,
                progress=progress,
                target=_target(scan.table, cut),
                metadata_required=self._settings.metadata_required,
                tail=self._tails,
                demands=self._settings.demands,
                processed=self._followers.processed(scan, path, progress),
            )
            run = candidates(known, self._settings.limits)
            inspected = self._inspect(scan.table, run)
            return plan(known, run, inspected, self._settings.limits, self._new_generation())
        except UnsafePath as unsafe:
            error: TableError = UnsupportedTable(
                str(unsafe),
                table=str(scan.table),
                hint="Give its folder or its schema another name, or remove the link.",
            )
        except TableError as found:
            error = found
        return TablePlan(scan.table, path, scan.folder.path, TableState.FAILED, error=error)

    def _inspect(self, table: TableId, run: Run) -> dict[str, Inspected | TableError]:
        """The footers of a run, and what is known to be wrong with its files (LZ-269)."""
        found: dict[str, Inspected | TableError] = {}
        for file in run.files:
            failed = self._failed.get(file.path)
            if failed and failed[0] == file.look:
                found[file.path] = failed[1]
                break
            self._failed.pop(file.path, None)
            try:
                found[file.path] = self._scanner.inspect(table, file)
            except TableError as error:
                found[file.path] = error
                break
        return found

    # -- executing ------------------------------------------------------------------------------

    def _build(self, planned: Sequence[TablePlan]) -> list[TablePlan]:
        """Make tables and columns; returns the plans that can go on."""
        if any(isinstance(step, CreateTable) for table in planned for step in table.steps):
            self._departures.prepare(self._scans, self._paths())
        ready = []
        for table, error in zip(planned, self._builder.build(planned), strict=True):
            if error is None:
                ready.append(table)
                self._built(table)
                continue
            self.report.fail(table.table, table.path, error)
            for step in table.steps:
                if isinstance(step, ApplyFiles):
                    self._retries.failed(step, error)
        return ready

    def _built(self, table: TablePlan) -> None:
        for step in table.steps:
            if isinstance(step, CreateTable) and not step.replace:
                self._monitor.added(step.table)
            elif isinstance(step, AddColumns):
                self._monitor.altered(step.table)

    def _drop(self) -> None:
        """Look for tables whose folders were deleted, and drop those that fall due."""
        found = self._departures.look(self._scans, self._paths())
        if found is None:
            return
        self.report.departed(found)
        for table in found:
            for step in table.steps:
                if isinstance(step, DropTable):
                    self._drop_one(step)

    def _drop_one(self, step: DropTable) -> None:
        self._lease.check()
        self._departures.dropping(step)
        try:
            self._engine.drop(step)
        except TableError as error:
            self.report.fail(step.table, step.path, error)  # it falls due again
            return
        try:
            self._departures.dropped(step)
        except UNTIDY as refused:
            log.warning(CLEANUP_REFUSED, table=str(step.table), reason=str(refused))
        self.report.removed(step.table)
        self._monitor.removed(step.table)

    def _vacuum(self, vacuum: Callable[[Iterable[str], Callable[[], None]], None]) -> None:
        """Remove old data files, of one table that is due or of all."""
        vacuum((p for p in self._paths().values() if self._is_ours(p)), self._lease.check)

    def _is_ours(self, path: str) -> bool:
        try:
            progress = self._engine.progress(path)
        except (TableError, UnsafePath):
            return False
        return bool(progress.generation) and not progress.unsupported

    def _finish(self, step: ApplyFiles, outcome: Outcome, begun: datetime) -> bool:
        """Take note of an outcome. Returns whether the table got on."""
        match outcome:
            case Applied(version):
                self._engine.settle(step.path, version)
                self.report.add(step, outcome)
                self._limits.applied(step.landed_bytes)
                self._monitor.applied(step, outcome, begun)
                self._retries.succeeded(step.table)
                return True
            case AlreadyApplied(recorded):
                log.info(BATCH_REPEATED, table=str(step.table), recorded=recorded)
                self._retries.succeeded(step.table)
                return True
            case Conflicted(reason) | Unknown(reason):
                # The state of the table is read again; what it has recorded decides.
                log.warning(BATCH_DEFERRED, table=str(step.table), reason=reason)
                if error := self._retries.deferred(step, outcome):
                    self.report.fail(step.table, step.path, error)
                return False
            case Failed(error):
                return self._refuse(step, error)

    def _refuse(self, step: ApplyFiles, error: MirrorlakeError) -> bool:
        """A batch cannot be applied. Returns whether a part of it may be."""
        if not isinstance(error, TableError):
            raise error
        self.report.fail(step.table, step.path, error)
        named = next((file for file in step.files if str(file.name) == error.file), None)
        if named is None or isinstance(error, UnreadableFile):
            self._retries.failed(step, error)
        if named is None:
            return False
        if isinstance(error, UnreadableFile):
            self._scanner.forget(named.path)  # it is looked at anew: it may be gone
        else:
            self._failed[named.path] = (named.look, error)
        return True


def _target(table: TableId, cut: Cut | None) -> Target:
    """How far a table goes: to the cut, or as far as it can when no cut knows it yet.

    Of a table that it excludes the newest cut says nothing; an earlier one knew it.
    """
    name = str(table)
    if cut is None or name not in cut.tables:
        return Target()
    return Target(cut.tables[name], None if name in cut.excluded else cut.number)
