"""The mirror as a whole: both halves behind one object."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mirrorlake import config, root
from mirrorlake.app import extras, files
from mirrorlake.app.changes import cut
from mirrorlake.app.changes.cut import ConsistentCut
from mirrorlake.app.changes.feed_views import FeedView, feed_views
from mirrorlake.app.engines import Engines, Say
from mirrorlake.app.loop.apply_loop import ApplyLoop, Pending
from mirrorlake.app.loop.background import Executors
from mirrorlake.app.loop.planning import Planning
from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.maintenance.feed_switch import FeedSwitch, enable_feed
from mirrorlake.app.maintenance.maintain import MaintenanceStep, maintained
from mirrorlake.app.own_root import check_root, of_root
from mirrorlake.app.running import capturing
from mirrorlake.app.running.capture_process import CaptureProcess
from mirrorlake.app.running.capturing import Loading
from mirrorlake.app.running.load_tasks import LoadTaskRunner, spark_runner
from mirrorlake.app.source import detached, prerequisites
from mirrorlake.app.status import ended, mirror_status
from mirrorlake.app.stores import store_of
from mirrorlake.app.targets.keeper import TargetKeeper
from mirrorlake.app.targets.target_status import built_paths, readers_of
from mirrorlake.app.verification.verify import Progress, Verification, VerifySettings, verify
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.logs.table_reader import LogReader
from mirrorlake.capture.backfill import requests
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillRecords
from mirrorlake.capture.capture import Capture, Waiting
from mirrorlake.capture.events.state import delivered
from mirrorlake.capture.landing.table_positions import known
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.repair.stream_repair import Repair
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.config import Project
from mirrorlake.errors import PrerequisiteMissing, SourceUnavailable, SparkUnavailable, UsageError
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.steps import TablePlan
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import REACHABLE, URL_CHECK, CheckResult, CheckSeverity
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.urls import StorageLocation

if TYPE_CHECKING:
    from mirrorlake.app.events.applying import EventApplier


class Mirror:
    """One mirror. Spark starts when tables are first written.

    spark: a classic SparkSession with Delta to work in; it is neither changed nor stopped. stop:
    ends `run` and every wait within seconds when it is set. say: called with what takes long.
    prepare: called first in the process that `run` starts for capture; must pickle. tables: where
    Spark has to access tables for others in this process, who get the same session.
    """

    def __init__(
        self,
        project: Project,
        *,
        spark: Any = None,
        stop: threading.Event | None = None,
        reached: CrashHook = no_crash,
        say: Say = lambda _line: None,
        prepare: Callable[[], None] | None = None,
        tables: StorageLocation | None = None,
    ) -> None:
        self.project = project
        self.stop = stop or threading.Event()
        self._reached, self._prepare = reached, prepare
        self._store = store_of(project)
        tables = tables or project.tables_elsewhere
        self._engines = Engines(project, self._store, spark, tables, reached, say)

    @classmethod
    def open(
        cls,
        project: str | Path | Project | None = None,
        spark: Any = None,
        *,
        root: str | Path | None = None,
        **options: Any,
    ) -> Self:
        """A mirror of a project file, or of settings; or of the landing zone below a root, a
        folder or URL, with nothing configured. Raises ConfigError, UsageError."""
        if (project is None) == (root is None):
            raise UsageError(
                "neither a project file nor a root was given, or both",
                where="Mirror.open",
                hint='Write Mirror.open("mirrorlake.yaml") or Mirror.open(root="./zone").',
            )
        if root is not None:
            project = of_root(root)
        elif not isinstance(project, Project):
            project = config.load(Path(str(project)))
        return cls(project, spark=spark, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def cancel(self) -> None:
        """End the Spark jobs of ours that are under way."""
        self._engines.cancel()

    def close(self) -> None:
        """Let go of Spark, if it is ours."""
        self._engines.close()

    def check_root(self) -> None:
        """Refuse a wrong root, before anything is created.

        Raises UsageError, and PrerequisiteMissing where the root is new and the slot belongs to
        another one, which is not known while the source cannot be reached.
        """
        prerequisites.check_root(self.project, self._store)

    # -- looking --------------------------------------------------------------------------------

    def check(self) -> list[CheckResult]:
        """Test the root and every prerequisite of the source."""
        if self.project.events is not None:
            return self._events().check()
        return prerequisites.findings(self.project, self._store)

    def discover(
        self, found: Callable[[Sequence[CheckResult]], None] | None = None
    ) -> list[SourceTable]:
        """The selected tables of the source. found: called with the findings of `check` about the
        settings that select them."""
        with prerequisites.discovering(self.project, self._store) as source:
            tables = source.discover()
            if found is not None:
                found([one for one in source.check() if one.check in {"tables", "selection"}])
            return tables

    def status(self) -> mirror_status.Status:
        """How each table stands. Starts no JVM."""
        return mirror_status.read(self.project)

    def files(self, table: str) -> files.TableFiles:
        """Which landed files of a table are applied, when, and with which rows. Starts no JVM."""
        return files.read(self.project, table)

    def cut(self, at: str | None = None) -> ConsistentCut:
        """The versions of all tables at one position of the source: the newest one that all show,
        or the newest up to `at`. Starts no JVM. Raises NotReached, UsageError."""
        return cut.find(self.project, at)

    def wait_until(
        self, position: str, *, tables: Sequence[str] = (), timeout: float = 60.0
    ) -> None:
        """Wait until all tables, or some, show a position of the source. Starts no JVM. Raises
        NotReached after `timeout` seconds, UsageError."""
        clock, pause = WallClock().monotonic, self.stop.wait
        cut.wait(self.project, position, tables=tables, timeout=timeout, clock=clock, pause=pause)

    def verify(
        self,
        tables: Sequence[str] = (),
        *,
        where_key: tuple[str, str] | None = None,
        timeout: float | None = None,
        examples: int = 10,
        max_rows_per_second: int | None = None,
        progress: Progress = lambda _table, _rows, _expected: None,
    ) -> Verification:
        """Compare tables, or all, with the source at one position of its log, while the mirror
        runs. Starts no JVM, changes nothing. timeout: seconds until it shows that position, None
        for 60 and only while it runs; examples: keys that are returned of each kind; where_key: of
        `backfill`, for one table. Raises NotReached, UsageError."""
        settings = VerifySettings(timeout, examples, max_rows_per_second, where_key)
        clock, pause = WallClock(self.stop), self.stop.wait
        return verify(self.project, tables, settings, clock, pause, progress)

    def feed_views(self, tables: Sequence[str] = (), database: str | None = None) -> list[FeedView]:
        """Views of the change feeds of tables for a Spark, with the SQL that creates them. Starts
        no JVM. Raises UsageError, FeedError."""
        return feed_views(self.project, tables, database)

    def plan(self) -> list[TablePlan]:
        """What `apply_once` would do now. Starts no JVM, takes no lease, changes nothing."""
        if self.project.events is not None:
            raise UsageError(
                "event files are applied without a plan: nobody knows what is in them before",
                where=f"mirror {self.project.name}",
                hint="Use `mirrorlake status` for the tables as they are.",
            )
        self.check_root()
        # Without Spark there is nothing to apply with, and yet something to plan.
        with suppress(SparkUnavailable):
            self._engines.look_at_platform()
        settings = self.project.mirror
        reader = LogReader(self._store, settings.strategy, self._engines.platform)
        clock = WallClock(self.stop)
        planning = Planning(self._store, reader, settings, clock, platform=self._engines.platform)
        return planning.whole_plan(planning.cuts.newest())

    def preflight(
        self, found: Callable[[Sequence[CheckResult]], None] = lambda _findings: None
    ) -> list[CheckResult]:
        """The findings of `check` before a run. found: called with them. Raises the first one that
        keeps the run from starting."""
        for role in ended.COMMANDS:
            Lease(self._store, role, WallClock()).check_free()
        if self.project.events is not None:
            findings = self.check()
            found(findings)
            return findings
        prerequisites.check_begin(self.project, self._store)
        record = Records(self._store, root.LANDING).stream()
        is_new = record is None or not record.is_established
        findings = self.check()
        # Capture itself decides what keeps an established stream from continuing.
        blocking = [
            finding
            for finding in findings
            if finding.severity is CheckSeverity.ERROR
            and finding.table is None
            and (is_new or finding.check in {REACHABLE, URL_CHECK})
        ]
        found([finding for finding in findings if finding not in blocking[:1]])
        for finding in blocking[:1]:
            if finding.check == URL_CHECK:
                raise UsageError(finding.message, where="source.url", hint=finding.remedy)
            if finding.check == REACHABLE:
                raise SourceUnavailable(finding.message, hint=finding.remedy)
            raise PrerequisiteMissing(finding.message, where="the source", hint=finding.remedy)
        return findings

    # -- working --------------------------------------------------------------------------------

    def capture_once(self, progress: Loading = lambda _progress: None) -> None:
        """Land everything that is committed in the source when this is called."""
        if self.project.events is not None:
            return  # the files are there
        prerequisites.check_begin(self.project, self._store)
        with (
            self._noted(ended.CAPTURE),
            closing(self.capture(progress)) as capture,
            self._load_tasks(alone=True),
        ):
            capture.open()
            capture.once()

    def capture_run(
        self,
        progress: Loading = lambda _progress: None,
        retained: Callable[[LogRetention], None] = lambda _log: None,
        waiting: Waiting = lambda _error: None,
    ) -> None:
        """Land changes until `stop` is set. retained: called with what the source keeps of its log
        for us; waiting: why it is waited for the source, and None whenever it answers."""
        told = progress, retained, waiting
        new_capture = partial(
            capturing.capture_of, self.project, self.stop, *told, reached=self._reached
        )
        capturing.capture_run(self.project, self.stop, new_capture)

    def apply_once(
        self,
        pending: Pending = lambda _table, _files: None,
        watcher: Watcher | None = None,
        *,
        keeps_changes: bool = False,
    ) -> ApplyReport:
        """Apply everything that is landed when this is called. keeps_changes: of events, let
        commits keep every change of keys that they change several times, for `convert`."""
        if not self.project.lands:
            return ApplyReport()  # events are for others to apply
        if self.project.events is not None:
            with self._noted(ended.MIRROR):
                return self._events(watcher, keeps_changes=keeps_changes).once()
        self.check_root()
        engine = self._engines.deferred()

        def waiting_files(table: TableId, files: int) -> None:
            if files:
                engine.start()  # on this thread, before others make its table
            pending(table, files)

        with self._noted(ended.MIRROR), self._applying(engine, waiting_files, watcher) as loop:
            report = loop.once()
            report.stopped_targets = self._targets().once()
            return report

    def apply_run(self, watcher: Watcher | None = None) -> ApplyReport:
        """Apply what lands until `stop` is set."""
        if not self.project.lands:
            raise UsageError(
                "this project writes event files, and has no tables to apply anything to",
                where=f"mirror {self.project.name}",
                hint="Use `mirrorlake run`, or remove the section destination.",
            )
        if self.project.events is not None:
            return self._apply_events(watcher)
        self.check_root()
        Lease(self._store, ended.MIRROR, WallClock()).check_free()
        with (
            self._noted(ended.MIRROR),
            self._applying(self.engine(), watcher=watcher) as loop,
            self._targets().running(),
            self._load_tasks(),
        ):
            loop.run()
        return loop.report

    def run(self, watcher: Watcher | None = None) -> ApplyReport:
        """Both halves until `stop` is set; capture has a process of its own, without a JVM. Event
        files need no second half.

        Raises what ended capture, when that was an error.
        """
        if not self.project.lands:
            self.capture_run()
            return ApplyReport()
        if self.project.events is not None:
            return self._apply_events(watcher)
        prerequisites.check_begin(self.project, self._store)
        for role in ended.COMMANDS:
            Lease(self._store, role, WallClock()).check_free()
        watcher = watcher or Watcher()
        with (
            self._noted(ended.MIRROR),
            self._applying(self.engine(), watcher=watcher) as loop,
            self._targets().running(),
            self._load_tasks(),
        ):
            child = CaptureProcess(
                partial(capturing.run_capture, self.project), self._prepare, watcher
            )
            try:
                child.start()
                loop.run(child.check)
            finally:
                child.stop()
        child.check()
        return loop.report

    def replay_events(self) -> ApplyReport:
        """Read the event files again of which events could not be applied (ST-254). Raises
        UsageError for a mirror whose tables are made of something else."""
        if self.project.events is None:
            raise UsageError(
                "the tables of this mirror are not made of event files",
                where=f"mirror {self.project.name}",
                hint="Name a project file whose source is of type events.",
            )
        with self._noted(ended.MIRROR):
            return self._events().replay()

    def maintain(
        self, tables: Sequence[str] = (), *, dry_run: bool = False
    ) -> list[MaintenanceStep]:
        """Compact tables, cluster them by key, write checkpoints of them and vacuum them, all or
        some. Returns what was done. dry_run: report what there is to do, without a JVM.

        Raises LeaseHeld while the mirror runs, UsageError for a table that there is not.
        """
        check_root(self.project, self._store)
        clock = WallClock(self.stop)
        return maintained(self.project, self._engines.deferred(), clock, tables, dry_run=dry_run)

    def enable_feed(self, table: str) -> FeedSwitch:
        """Switch the change feed of a table on that was mirrored without it, and return the first
        version that it covers.

        Raises LeaseHeld while the mirror runs, UsageError for a table that there is not.
        """
        check_root(self.project, self._store)
        return enable_feed(self.project, self._engines.deferred(), WallClock(self.stop), table)

    def backfill(
        self,
        table: str,
        where_key: tuple[str, str] | None = None,
        max_rows_per_second: int | None = None,
        max_bytes_per_second: int | None = None,
    ) -> BackfillJob:
        """Ask capture to read a table again, or the rows whose first key column is from one value
        to another, and to correct what differs; `backfills` shows how far it is. Capture does it as
        soon as it runs, `capture_once` included. Bytes are those of the rows in memory.

        Raises UsageError for a table that is not captured, or has one under way.
        """
        prerequisites.connection(self.project)
        jobs, project = self._backfills(), self.project
        refused = requests.refusal(strict=project.capture.strict)
        tables = {*map(str, known(jobs.records)), *delivered(jobs.records)}
        now = WallClock().now()
        return requests.request(
            jobs,
            tables,
            table,
            where_key,
            max_rows_per_second,
            now,
            max_bytes_per_second=max_bytes_per_second,
            refused=refused,
        )

    def stop_backfill(self, table: str) -> BackfillJob:
        """Ask capture to end the backfill of a table. Raises UsageError when there is none."""
        return requests.stop(self._backfills(), table)

    def backfills(self) -> list[BackfillJob]:
        """How backfills stand: of each table the last ones that were asked for."""
        return self._backfills().jobs()

    def repair(self, tables: Sequence[str] = (), *, dry_run: bool = False) -> Repair:
        """Let the mirror go on after its place in the source's log was lost, or tables that
        stopped: the next capture reads them again, and corrects what differs. Returns what is
        done. dry_run: change nothing.

        Raises LeaseHeld while capture runs, UsageError for what cannot be repaired.
        """
        prerequisites.connection(self.project)
        check_root(self.project, self._store)
        with closing(self.capture()) as capture:
            repair = capture.repair()
            return repair.planned(tables) if dry_run else repair.done(tables)

    def detach(self) -> list[str]:
        """Remove what was made in the source for this mirror. Returns what was removed.

        Raises LeaseHeld while capture runs, SlotInUse while the slot is read from elsewhere.
        """
        if not (made := self.made() or self.left()):
            return []
        with self._no_capture(), closing(prerequisites.source_of(self.project)) as source:
            removed = source.objects.detach(made) if source.objects else []
            self._reached(CrashPoint.DETACHED)
            detached.note(self._store, WallClock().now())
        return removed

    @contextmanager
    def _no_capture(self) -> Iterator[None]:
        """No capture runs here meanwhile. Raises LeaseHeld if one does."""
        lease = Lease(self._store, ended.CAPTURE, WallClock())
        lease.take()
        try:
            yield
        finally:
            lease.release()

    def made(self) -> list[str]:
        """What was made in the source for this mirror, in words."""
        record = Records(self._store, root.LANDING).stream()
        return list(record.made) if record else []

    def left(self) -> list[str]:
        """What the source says was made for a landing zone in this folder, whose records are gone,
        and is not needed any more because the slot is gone too."""
        if self.project.source is None:
            return []
        with closing(prerequisites.source_of(self.project)) as source:
            home = self._store.location(root.LANDING)
            return list(source.objects.left(home)) if source.objects else []

    # -- parts ----------------------------------------------------------------------------------

    def engine(self) -> Engine:
        """The engine; starts Spark at the first call."""
        return self._engines.engine()

    def capture(self, progress: Loading = lambda _progress: None) -> Capture:
        return capturing.capture_of(self.project, self.stop, progress, reached=self._reached)

    @contextmanager
    def _applying(
        self,
        engine: MirrorEngine,
        pending: Pending = lambda _table, _files: None,
        watcher: Watcher | None = None,
    ) -> Iterator[ApplyLoop]:
        """The apply loop, with the right to write."""
        loop = ApplyLoop(
            self._store,
            engine,
            self.project.mirror,
            WallClock(self.stop),
            stop=self.stop,
            reached=self._reached,
            pending=pending,
            watcher=watcher,
            executors=lambda: Executors.threads(engine.slots),
            name=self.project.name,
            source=self.project.source.monitored_as if self.project.source else "GenericMirror",
            platform=self._engines.platform,
            readers=partial(readers_of, self.project),
            built=partial(built_paths, self.project),
        )
        loop.open()
        with closing(loop):
            yield loop

    def _events(
        self, watcher: Watcher | None = None, *, keeps_changes: bool = False
    ) -> EventApplier:
        with extras.needed("applying events"):
            from mirrorlake.app.events.applying import EventApplier
        runner = self._engines.tasks if self._engines.has_tasks() else None
        return EventApplier(
            self.project,
            WallClock(self.stop),
            self.stop,
            self._reached,
            runner,
            keeps_changes=keeps_changes,
            watcher=watcher,
        )

    def _apply_events(self, watcher: Watcher | None) -> ApplyReport:
        with self._noted(ended.MIRROR):
            return self._events(watcher).run()

    def _noted(self, role: str) -> AbstractContextManager[None]:
        return ended.noted(self._store, role, WallClock(), self.stop)

    def _targets(self) -> TargetKeeper:
        """What keeps the tables that are built from change feeds."""
        return TargetKeeper(self.project, WallClock(self.stop), self._reached)

    def _load_tasks(self, *, alone: bool = False) -> AbstractContextManager[None]:
        """As `LoadTaskRunner.running`."""
        new_runner = partial(spark_runner, self._engines.session)
        return LoadTaskRunner(self.project, self._store, new_runner).running(alone=alone)

    def _backfills(self) -> BackfillRecords:
        return BackfillRecords(Records(self._store, root.LANDING))
