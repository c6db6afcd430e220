"""The apply loop: scan, plan, execute, clean up; it orders effects and decides nothing.

Order, on which "nothing lost, nothing twice" rests; a crash test stands behind every arrow:

    lease held → commit of rows, images and progress at once → commit durable
      → names recorded, in timestamp mode → files moved aside

Progress is what the tables have recorded, read again at the start.

Small batches of all tables are applied together in each cycle, and go to the same cut, so that the
versions they reach belong together. Large ones are background jobs (`app/loop/background.py`). They
begin together as well: in one cycle, when no large batch is under way any more, and to the
cut of that cycle. So at the cut at which a round of large batches begins every table stops, the
quiet ones at once and the busy ones at the end of the round; in between quiet tables go on to later
cuts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from math import inf, isfinite

import structlog

from mirrorlake import root
from mirrorlake.app.loop.background import POLL_SECONDS, BackgroundJobs, Executors, Kind
from mirrorlake.app.loop.outcomes import Outcomes
from mirrorlake.app.loop.planning import Planning, new_uuid
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.loop.retries import Retries
from mirrorlake.app.loop.table_builder import Builder
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.maintenance.file_maintenance import FileMaintenance, WrittenBatch
from mirrorlake.app.maintenance.landing_cleanup import CLEANUP_REFUSED, LandingCleanup
from mirrorlake.app.maintenance.maintain import is_ours
from mirrorlake.app.maintenance.vacuum import (
    BuiltPaths,
    ReadersOf,
    Vacuums,
    no_readers,
    no_targets,
)
from mirrorlake.app.status.monitor import Monitor
from mirrorlake.app.status.table_status_file import TableStatusFile
from mirrorlake.errors import LeaseLost, TableError, UsageError, WorkerLost
from mirrorlake.landing import layout
from mirrorlake.landing.cleanup import CLEANUP_ERRORS
from mirrorlake.landing.cuts import Cut
from mirrorlake.mirror.engine import Applied, MirrorEngine, Outcome
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    CreateTable,
    DropTable,
    RenameColumns,
    TablePlan,
)
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

Pending = Callable[[TableId, int], None]
"""Called in each cycle with the number of files of a table that wait, before they are applied."""

QUIET_SECONDS, QUIET_LOOK_SECONDS = 60.0, 0.2
"""Where nothing was applied for so long, the next cut is looked for less often: the first change
after that is applied a tenth of a second later, and an idle mirror wakes up five times a second
instead of fifty."""

_Batch = tuple[TablePlan, ApplyFiles]


class ApplyLoop:
    """Mirrors one landing zone with one engine. Not for several threads.

    executors: makes those of background jobs when the first begins; threads by default.
    """

    def __init__(
        self,
        store: Store,
        engine: MirrorEngine,
        settings: MirrorSettings,
        clock: Clock,
        *,
        stop: threading.Event | None = None,
        reached: CrashHook = no_crash,
        holder: str | None = None,
        new_generation: Callable[[], str] = new_uuid,
        pending: Pending = lambda _table, _files: None,
        watcher: Watcher | None = None,
        executors: Callable[[], Executors] | None = None,
        name: str = "mirror",
        source: str = "GenericMirror",
        platform: str = "",
        readers: ReadersOf = no_readers,
        built: BuiltPaths = no_targets,
    ) -> None:
        self._store, self._engine, self._settings, self._clock = store, engine, settings, clock
        self._stop, self._pending = stop or threading.Event(), pending
        self._watcher = watcher or Watcher()
        self._planning = planning = Planning(
            store, engine, settings, clock, new_generation, platform, reached
        )
        self._scanner, self._cuts, self._limits = planning.scanner, planning.cuts, planning.limits
        self._deleted_tables = planning.deleted_tables
        self._lease = Lease(store, "mirror", clock, holder, reached=reached)
        self._status_file = TableStatusFile(store, clock, reached)
        self._retries = Retries(clock)
        self._landing_cleanup = LandingCleanup(
            store, self._scanner, planning.names, engine, settings, clock, reached
        )
        self._builder = Builder(engine, store, reached, self._lease.check)
        self._vacuums = Vacuums(
            store, engine, clock, settings.vacuum, settings.subscription_hold, readers, built
        )
        self._monitor = Monitor(
            store,
            self._scanner,
            settings,
            clock,
            engine.progress,
            planning.names,
            name,
            source,
            reached,
        )
        self._background = BackgroundJobs(
            executors or partial(Executors.threads, 1), clock, self._stop
        )
        self._file_maintenance = FileMaintenance(
            engine,
            self._background,
            self._lease.check,
            settings,
            clock,
            self._vacuums.may_clean_log,
        )
        self._planned: list[TablePlan] = []
        self.report = ApplyReport()
        self._outcomes = Outcomes(
            engine, self.report, self._retries, planning, self._monitor, self._watcher, self._stop
        )

    def open(self) -> None:
        """Take the right to write, and make the landing zone. Raises LeaseHeld, UsageError."""
        self._lease.take()
        self._provide_zone()
        self._monitor.open()
        self._watcher.begun(self.report)

    def close(self) -> None:
        """End what is under way, and give the right to write back."""
        self._background.close()
        self._status_file.write(self.report.tables.values(), force=True)
        if self._is_holder():
            self._monitor.close(self._planning.scans, self.report.tables.values())
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
            if self.cycle(target) or self._background.wait():
                continue
            pause = self._retries.pause()
            if pause is None:
                break
            self._clock.sleep(pause)
        if not self._stop.is_set():
            self._file_maintenance.finish()
        plans = self._planning.plans(target, self._background.under_way)
        self._landing_cleanup.do(plans, force=True)
        self._vacuums.all(self._ours(), self._planning.paths.values(), self._lease.check)
        return self.report

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Apply what lands until asked to stop. watch: called in each round; ends it by raising."""
        pause, busy_at = self._settings.poll_seconds, self._clock.monotonic()
        while not self._stop.is_set():
            watch()
            busy = self.cycle(self._cuts.newest())
            self._vacuum()
            if busy or self._background:
                busy_at = self._clock.monotonic()
            pause = (
                self._settings.poll_seconds if busy else min(pause * 2, self._settings.idle_seconds)
            )
            if self._background or not busy:
                self._rest(pause, is_quiet=self._clock.monotonic() - busy_at >= QUIET_SECONDS)

    def _rest(self, pause: float, *, is_quiet: bool) -> None:
        """Until the next look at the zone; less when some work is done, or the source has landed
        more, where to look for that costs nothing."""
        until, looks = self._clock.monotonic() + pause, self._settings.look_seconds
        if is_quiet:
            looks = max(looks, QUIET_LOOK_SECONDS)
        while not (self._stop.is_set() or self._background.is_any_done):
            if isfinite(looks) and self._cuts.is_behind():
                break
            left = until - self._clock.monotonic()
            if left <= 0:
                break
            self._clock.sleep(min(left, looks, POLL_SECONDS if self._background else inf))

    def cycle(self, cut: Cut | None) -> bool:
        """One round over all tables. Returns whether anything was applied."""
        self._lease.check()
        begun = self._clock.now()
        landed = self._background.collect()
        under_way = self._background.under_way
        allowed = self._limits.allowed(self._planning.plans(cut, under_way), under_way)
        planned = self._planned = self._retries.without_resting(allowed)
        self.report.note(planned)
        for table in planned:
            self._pending(table.table, table.pending)
            self._watcher.pending(table.table, table.pending)
        free = [table for table in planned if table.table not in under_way]
        self._landing_cleanup.do(free)
        ready = self._build([table for table in free if not table.is_idle])
        built = {table.table for table in ready}
        self._monitor.begun([t for t in free if t.is_idle or t.table in built])
        progressed = self._apply(ready, begun)
        self._remove_deleted()
        self._monitor.failed(self.report.tables.values())
        self._status_file.write(self.report.tables.values(), force=landed or progressed)
        self._monitor.show(self._planning.scans, self.report.tables.values())
        return landed or progressed

    def _provide_zone(self) -> None:
        """A folder to land in, for whoever waits for one (LZ-004).

        Where there are tables there was one, in either form: it is not mounted, and one that is
        made in its place would hide it.
        """
        if layout.landing_zones(self._store) or self._engine.paths():
            return
        try:
            self._store.make_folder(root.LANDING)
        except (UnsafePath, FileExistsError):
            self._lease.release()
            raise UsageError(
                "the landing zone is not a folder, or is a link that leads out of the root",
                where=root.LANDING,
                hint="Create a folder there, or set root to the folder that the link leads to.",
            ) from None

    # -- executing ------------------------------------------------------------------------------

    def _build(self, planned: Sequence[TablePlan]) -> list[TablePlan]:
        """Make tables and columns; returns the plans that can go on."""
        if any(isinstance(step, CreateTable) for table in planned for step in table.steps):
            self._deleted_tables.prepare(self._planning.scans, self._planning.paths)
        ready = []
        for table, error in zip(planned, self._builder.build(planned), strict=True):
            if error is None:
                ready.append(table)
                self._built(table)
                continue
            if self._stop.is_set():  # Spark may have ended on the same signal
                continue
            self.report.fail(table.table, table.path, error)
            if table.batch is not None:
                self._retries.failed(table.batch, error)
        return ready

    def _built(self, table: TablePlan) -> None:
        if table.creates is not None:
            self._monitor.added(table.table)
        for step in table.steps:
            if isinstance(step, RenameColumns | AddColumns | AlterColumns):
                self._monitor.altered(step.table)

    def _apply(self, ready: Sequence[TablePlan], begun: datetime) -> bool:
        """Apply the batches of these tables, beside if large or deadly. Returns whether a table got
        on.

        All large batches of a round begin in one cycle, and so go to one cut.
        """
        every = [(table, batch) for table in ready if (batch := table.batch) is not None]
        small: list[_Batch] = []
        large: list[_Batch] = []
        for table, step in every:
            if _died(table):  # beside the others, which would die with it
                self._begin(Kind.ALONE, [(table, step)], begun)
            elif self._settings.limits.is_large(step.estimate.rows, step.estimate.size):
                large.append((table, step))
            else:
                small.append((table, step))
        if not self._background.is_applying:
            for group in _grouped(large):
                self._begin(Kind.BATCH, group, begun)
        if not small:
            return False
        outcomes = self._engine.apply([step for _table, step in small], self._lease.check)
        return self._note(small, outcomes, begun)

    def _begin(self, kind: Kind, batches: Sequence[_Batch], begun: datetime) -> None:
        self._background.begin(
            kind,
            partial(self._engine.apply, [step for _, step in batches], self._lease.check),
            [table for table, _step in batches],
            lambda outcomes: self._note(batches, outcomes, begun),
        )

    def _note(
        self, batches: Sequence[_Batch], outcomes: Sequence[Outcome], begun: datetime
    ) -> bool:
        """Note outcomes, and look after what was written. Returns whether a table got on."""
        done = [(table, step, o) for (table, step), o in zip(batches, outcomes, strict=True)]
        progressed = [self._outcomes.note(step, outcome, begun) for _, step, outcome in done]
        self._limits.save()
        self._file_maintenance.after(
            [WrittenBatch(t, s, o.version) for t, s, o in done if isinstance(o, Applied)]
        )
        return any(progressed)

    def _remove_deleted(self) -> None:
        """Drop the tables whose folders were deleted, when it is time for it; those with which
        something is done now fall due again."""
        found = self._deleted_tables.look(self._planning.scans, self._planning.paths)
        if found is None:
            return
        self.report.deleted(found)
        busy = {table.path for table in self._background.under_way.values()}
        for table in found:
            for step in table.steps:
                if isinstance(step, DropTable) and step.path not in busy:
                    self._drop(step)

    def _drop(self, step: DropTable) -> None:
        self._lease.check()
        self._deleted_tables.record_drop(step)
        try:
            self._engine.drop(step)
        except TableError as error:
            self.report.fail(step.table, step.path, error)  # it falls due again
            return
        try:
            self._deleted_tables.dropped(step)
        except CLEANUP_ERRORS as refused:
            log.warning(CLEANUP_REFUSED, table=str(step.table), reason=str(refused))
        self.report.removed(step.table)
        self._monitor.removed(step.table)

    def _vacuum(self) -> None:
        """Remove old data files of a table that is due, beside the cycles.

        It waits meanwhile, because files that are not committed yet look like old ones; for the
        vacuum of no other table. Tables that are built from change feeds do not wait.
        """
        if not self._background.may_maintain:
            return
        path = self._vacuums.next(self._ours(), self._planning.paths.values())
        if path is None:
            return
        mirrored = [table for table in self._planned if table.path == path]
        if mirrored or path not in self._planning.paths.values():  # then it is built from a feed
            work = partial(self._vacuums.vacuum, path, self._lease.check)
            self._background.begin(Kind.MAINTENANCE, work, mirrored)

    def _ours(self) -> Iterator[str]:
        """The paths of the tables that we may write, and do not write now."""
        under_way = self._background.under_way
        for table, path in self._planning.paths.items():
            if table not in under_way and is_ours(self._engine, path):
                yield path


def _died(table: TablePlan) -> bool:
    """Whether the tasks of its batch died when it was tried last."""
    return isinstance(table.error, WorkerLost)


def _grouped(batches: Sequence[_Batch]) -> list[list[_Batch]]:
    """What goes into one job: tables that load together, each other table by itself.

    Nobody reads tables that load, and a task for each of their files uses all cores.
    """
    loads = [(table, step) for table, step in batches if step.is_load]
    others = [[(table, step)] for table, step in batches if not step.is_load]
    return [loads, *others] if loads else others
