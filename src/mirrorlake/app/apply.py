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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog

from mirrorlake.app.board import Board
from mirrorlake.app.rearrange import rearrange
from mirrorlake.app.report import ApplyReport
from mirrorlake.app.retries import Retries
from mirrorlake.errors import (
    MirrorlakeError,
    NestedTables,
    TableError,
    UnsupportedTable,
    UsageError,
)
from mirrorlake.landing import cleanup, layout
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.landing.identity import Tails
from mirrorlake.landing.lease import Lease
from mirrorlake.landing.parquet import Inspected
from mirrorlake.landing.scan import Scanner, TableScan
from mirrorlake.landing.store import Store, UnsafePath
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
    CleanUp,
    CreateTable,
    SetKey,
    TablePlan,
)
from mirrorlake.model.seams import Clock, Point, Probe, no_probe
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId

log = structlog.get_logger()

BATCH_REPEATED = "batch_already_applied"
BATCH_DEFERRED = "batch_deferred"
TABLE_CREATED = "table_created"
CLEANUP_REFUSED = "cleanup_refused"

UNTIDY = (UnsafePath, FileExistsError, NotADirectoryError, PermissionError)
"""What others may have put in the place of a cleanup folder. It costs space, and no row."""

Pending = Callable[[TableId, int], None]
"""Is told in each cycle how many files of a table wait."""

BUILDERS = 4
"""Tables that are made at the same time."""


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
    ) -> None:
        self._store, self._engine, self._settings, self._clock = store, engine, settings, clock
        self._stop, self._probe = stop or threading.Event(), probe
        self._new_generation, self._pending = new_generation, pending
        self._scanner = Scanner(store, strict_text=settings.strict_text)
        self._tails = Tails(store)
        self._followers = Followers(store, engine)
        self._cuts = Cuts(store, self._scanner.zone())
        self._lease = Lease(store, "mirror", clock, holder)
        self._board = Board(store, clock)
        self._failed: dict[str, tuple[str, TableError]] = {}  # path of a file to etag and error
        self._retries = Retries(clock)
        self._moved = clock.monotonic()
        self.report = ApplyReport()

    def open(self) -> None:
        """Take the right to write, and make the landing zone. Raises LeaseHeld, UsageError."""
        self._lease.take()
        self._provide_zone()

    def close(self) -> None:
        self._board.write(self.report.tables.values(), force=True)
        self._lease.release()

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
        self._clean_up(self.plan(target), force=True)
        return self.report

    def run(self, watch: Callable[[], None] = lambda: None) -> None:
        """Apply what lands until told to stop. watch: called in each round; ends it by raising."""
        pause = self._settings.poll_seconds
        while not self._stop.is_set():
            watch()
            busy = self.cycle(self._cuts.newest())
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
        planned = self._retries.held(self.plan(cut))
        self.report.note(planned)
        for table in planned:
            self._pending(table.table, table.pending)
        self._clean_up(planned)
        ready = self._build([table for table in planned if not table.is_idle])
        steps = [step for table in ready for step in table.steps if isinstance(step, ApplyFiles)]
        outcomes = self._engine.apply(steps, self._lease.check) if steps else ()
        progressed = [
            self._finish(step, outcome) for step, outcome in zip(steps, outcomes, strict=True)
        ]
        if self._settings.compaction:
            done = [s for s, o in zip(steps, outcomes, strict=True) if isinstance(o, Applied)]
            rearrange(self._engine, done, self._lease.check)
        self._board.write(self.report.tables.values(), force=any(progressed))
        return any(progressed)

    def plan(self, cut: Cut | None) -> list[TablePlan]:
        """What a cycle up to this cut would do; nothing is changed."""
        scans = self._scanner.scan()
        paths = {s.table: layout.delta_path(s.folder, self._settings.default_schema) for s in scans}
        inside = nested(paths)
        return [self._plan_one(scan, paths[scan.table], cut, inside) for scan in scans]

    def _provide_zone(self) -> None:
        """A folder to land in, for whoever waits for one (LZ-004)."""
        if layout.landing_zones(self._store):
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
            if failed and failed[0] == file.etag:
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
        """Make tables and columns, several at a time; returns the plans that can go on."""
        with ThreadPoolExecutor(BUILDERS, thread_name_prefix="build") as pool:
            built = list(pool.map(self._build_one, planned))
        return [table for table, ok in zip(planned, built, strict=True) if ok]

    def _build_one(self, table: TablePlan) -> bool:
        try:
            for step in table.steps:
                match step:
                    case CreateTable():
                        self._lease.check()
                        self._engine.create(step)
                        log.info(TABLE_CREATED, table=str(step.table), columns=len(step.schema))
                    case AddColumns():
                        self._lease.check()
                        self._engine.add_columns(step)
                    case SetKey():
                        self._lease.check()
                        self._engine.set_key(step)
                    case _:
                        pass
        except TableError as error:
            self.report.fail(table.table, table.path, error)
            for step in table.steps:
                if isinstance(step, ApplyFiles):
                    self._retries.failed(step, error)
            return False
        return True

    def _finish(self, step: ApplyFiles, outcome: Outcome) -> bool:
        """Take note of an outcome. Returns whether the table got on."""
        match outcome:
            case Applied(version):
                self._engine.settle(step.path, version)
                self.report.add(step, outcome)
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
            self._failed[named.path] = (named.etag, error)
        return True

    # -- cleaning up ----------------------------------------------------------------------------

    def _clean_up(self, planned: Sequence[TablePlan], *, force: bool = False) -> None:
        """Move applied files aside, in groups, and remove what has been aside long enough."""
        for _path in self._followers.record(self._engine.settle):
            self._probe(Point.NAMES_RECORDED)
        now = self._clock.monotonic()
        if not force and now - self._moved < self._settings.cleanup_seconds:
            return
        self._moved = now
        for table in planned:
            try:
                self._tidy(table)
            except UNTIDY as error:
                log.warning(CLEANUP_REFUSED, table=str(table.table), reason=str(error))

    def _tidy(self, table: TablePlan) -> None:
        for step in table.steps:
            if isinstance(step, CleanUp):
                self._move(step)
        cleanup.expire(self._store, table.folder, self._clock.now(), self._settings.retention)

    def _move(self, step: CleanUp) -> None:
        for file in cleanup.move(self._store, step.folder, step.files, self._clock.now()):
            self._scanner.forget(file.path)
            self._probe(Point.CLEANUP_MOVED_ONE)
        self._probe(Point.CLEANUP_DONE)


def _target(table: TableId, cut: Cut | None) -> Target:
    """How far a table goes: to the cut, or as far as it can when no cut knows it yet.

    Of a table that it excludes the newest cut says nothing; an earlier one knew it.
    """
    name = str(table)
    if cut is None or name not in cut.tables:
        return Target()
    return Target(cut.tables[name], None if name in cut.excluded else cut.number)
