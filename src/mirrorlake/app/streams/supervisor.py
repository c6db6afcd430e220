"""Supervision: what is wanted of each stream is compared with what runs, again and again.

Each stream captures in a process of its own, all mirrors apply in another one. A process that ends
by itself is started again with growing pauses (Failed), unless what it needs is lost (Failed
permanently). Nothing here holds what a stream has done: after a crash of this process the same
comparison starts what is missing.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from mirrorlake.app import detached
from mirrorlake.app.capture_process import CaptureProcess
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.mirror import Mirror, run_capture
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.stores import store_of
from mirrorlake.app.streams.latencies import Latencies
from mirrorlake.app.streams.mirrors_process import MirrorsProcess
from mirrorlake.app.streams.objects import CaptureSaid, Known, capture_said, objects_of
from mirrorlake.app.streams.projects import ProfileOf, ServiceFolders, project_of
from mirrorlake.app.streams.validation import WorldValidator
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.config import Project
from mirrorlake.control.names import ResourceName
from mirrorlake.control.reports import Validation, error_document, error_of, has_failed
from mirrorlake.control.states import StreamMove, StreamState, ValidationState
from mirrorlake.control.streams import ANEW, RECOVER
from mirrorlake.control.supervision import Supervised, Supervision
from mirrorlake.errors import (
    LeaseHeld,
    MirrorlakeError,
    NotOffered,
    SourceGap,
    SourceUnavailable,
    Unavailable,
)
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import LaterFormat
from mirrorlake.model.table import TableId

log = structlog.get_logger()

SUPERVISION_FAILED = "supervision_failed"
TICK_SECONDS = 0.25
REREAD_SECONDS = 5.0
"""How often what is wanted is read even though nothing was changed here."""
LOOK_SECONDS, IDLE_LOOK_SECONDS = 3.0, 10.0
"""How often the tables of a stream are looked at; the second where nothing happens."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
DRAIN_SECONDS = 7.0
"""How long all processes together may take to end when the service ends."""

_RUNNING = (StreamState.RUNNING, StreamState.FAILED)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A stream that may start, or why it may not."""

    project: Project | None
    validations: Sequence[Validation] = ()
    tables: Known = field(default_factory=dict)
    error: MirrorlakeError | None = None


class Interruptions(Watcher):
    """What the capture of a stream told last. retained: bytes of log that the source keeps for it,
    None when unknown; interruption: why it waits for the source; loads: how far each load is."""

    def __init__(self) -> None:
        self.interruption: SourceUnavailable | None = None
        self.has_answered = False
        self.retained_bytes: int | None = None
        self.loads: dict[TableId, LoadProgress] = {}

    def loading(self, progress: LoadProgress) -> None:
        self.loads[progress.table] = progress

    def waiting(self, error: SourceUnavailable | None) -> None:
        self.interruption, self.has_answered = error, True

    def retained(self, size: int) -> None:
        self.retained_bytes = size


@dataclass(slots=True)
class Work:
    """What runs for one stream."""

    name: ResourceName
    project: Project | None = None
    process: CaptureProcess | None = None
    task: Future[_Prepared] | None = None
    removal: Future[str] | None = None
    look: Future[Status | None] | None = None
    tables: Known = field(default_factory=dict)
    status: Status | None = None
    said: CaptureSaid = field(default_factory=CaptureSaid)
    told: Interruptions = field(default_factory=Interruptions)
    looked: float = float("-inf")
    is_idle: bool = False
    due: float = float("-inf")
    pause: float = FIRST_PAUSE
    drained: float | None = None


class Supervisor:
    """For one thread, which calls `run`.

    stop: ends it, after everything has been drained; changed: set by who changed something that
    should be looked at now; prepare: called first in each process that is started; must pickle;
    applies: whether landed files are applied here too.
    """

    def __init__(
        self,
        supervision: Supervision,
        profiles: ProfileOf,
        validator: WorldValidator,
        places: ServiceFolders,
        clock: Clock,
        *,
        stop: threading.Event,
        changed: threading.Event,
        prepare: Callable[[], None] | None = None,
        applies: bool = True,
    ) -> None:
        self._supervision, self._profiles, self._validator = supervision, profiles, validator
        self._places, self._clock, self._stop, self._prepare = places, clock, stop, prepare
        self._applies = applies
        self._work: dict[str, Work] = {}
        self._streams: dict[str, Supervised] = {}
        self._known = (-1, float("-inf"))  # the changes that are read, and when
        self._rereads = True
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="streams")
        self._mirrors: MirrorsProcess | None = None
        self._mirrors_due = float("-inf")
        self._mirrors_pause = FIRST_PAUSE
        self._changed = changed
        self.latencies = Latencies()
        self.is_ready = threading.Event()

    # -- what is seen ---------------------------------------------------------------------------

    def works(self) -> list[Work]:
        """What runs, and what was last seen of it."""
        return list(self._work.values())

    # -- the loop -------------------------------------------------------------------------------

    def run(self) -> None:
        """Supervise until told to stop; then drain. A fault of one round ends nothing."""
        try:
            while not self._stop.is_set():
                self._changed.clear()
                try:
                    self.tick()
                    self.is_ready.set()
                except Exception as error:  # noqa: BLE001  (the database, for a while, or a bug)
                    self.is_ready.clear()
                    log.error(SUPERVISION_FAILED, reason=f"{type(error).__name__}: {error}")
                    self._stop.wait(FIRST_PAUSE)
                self._changed.wait(TICK_SECONDS)
        finally:
            self.close()

    def tick(self) -> None:
        """One comparison of what is wanted with what runs."""
        changes, now = self._supervision.changes, self._clock.monotonic()
        self._rereads = changes != self._known[0] or now - self._known[1] >= REREAD_SECONDS
        if self._rereads:
            self._streams = {str(one.name): one for one in self._supervision.supervised()}
            self._known = changes, now
        streams = self._streams
        for name, stream in streams.items():
            work = self._work.setdefault(name, Work(stream.name))
            if stream.is_deleted:
                self._remove(work, stream)
            else:
                self._supervise(work, stream)
        for name in self._work.keys() - streams.keys():
            self._end(self._work.pop(name))
        if self._applies:
            self._mirror(streams)

    def close(self) -> None:
        """Drain: every process finishes the step at hand, all at the same time."""
        running = [work.process for work in self._work.values() if work.process]
        for process in running:
            process.ask_to_stop()
        if self._mirrors is not None:
            self._mirrors.ask_to_stop()
        until = self._clock.monotonic() + DRAIN_SECONDS
        for process in running:
            process.stop(max(until - self._clock.monotonic(), 0.1))
        if self._mirrors is not None:
            self._mirrors.stop(max(until - self._clock.monotonic(), 0.1))
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- one stream -----------------------------------------------------------------------------

    def _supervise(self, work: Work, stream: Supervised) -> None:
        match stream.state:
            case StreamState.STARTING:
                self._start(work, stream)
            case StreamState.RUNNING | StreamState.FAILED:
                self._keep_running(work, stream)
            case StreamState.DRAINING:
                self._drain(work, stream)
            case _:
                self._end(work)
        if stream.state in (*_RUNNING, StreamState.DRAINING, StreamState.STARTING):
            self._look(work, stream)

    def _start(self, work: Work, stream: Supervised) -> None:
        if work.task is None:
            if self._clock.monotonic() >= work.due:
                work.task = self._pool.submit(self._prepared, stream)
            return
        if not work.task.done():
            return
        prepared, work.task = work.task.result(), None
        if isinstance(prepared.error, LeaseHeld):
            work.due = self._clock.monotonic() + FIRST_PAUSE  # what ran before is still ending
            return
        if prepared.error is not None or prepared.project is None:
            errors = [
                error_document(one.code, f"{one.message}. {one.remedy}".strip(), self._clock.now())
                for one in prepared.validations
                if one.state is ValidationState.FAILED
            ]
            if prepared.error is not None:
                errors.append(error_of(prepared.error, self._clock.now()))
            self._supervision.observe(work.name, StreamMove.INVALID, errors, prepared.validations)
            return
        work.project, work.tables, work.pause = prepared.project, prepared.tables, FIRST_PAUSE
        work.drained = None
        self._launch(work)
        self._supervision.observe(work.name, StreamMove.VALID, validations=prepared.validations)

    def _prepared(self, stream: Supervised) -> _Prepared:
        """Validate a stream, and after a loss let it begin anew. Runs beside the others."""
        validations: Sequence[Validation] = ()
        try:
            project = project_of(stream.name, stream.stream, self._profiles, self._places)
            recovery = self._supervision.recovery(stream.name)
            # What a deleted stream of this name has left is replaced when a run asks for it.
            is_left = recovery == ANEW and detached.since(store_of(project)) is not None
            if recovery == RECOVER or is_left:
                plan_reset(project, None).execute()
            validations = self._validator.start(stream.name, stream.stream)
            if has_failed(validations):
                return _Prepared(None, validations)
            tables = {table.table: table.refused for table in Mirror(project).discover()}
        except MirrorlakeError as error:
            return _Prepared(None, validations, error=error)
        return _Prepared(project, validations, tables)

    def _keep_running(self, work: Work, stream: Supervised) -> None:
        if work.process is None:
            if self._clock.monotonic() < work.due:
                return
            try:
                work.project = self._project(stream)
            except MirrorlakeError as error:
                self._failed(work, stream, error)
                return
            self._launch(work)
            return
        try:
            work.process.check()
        except MirrorlakeError as error:
            work.process.stop()
            work.process = None
            self._failed(work, stream, error)
            return
        if self._rereads and self._is_changed(work, stream):
            self._end(work)  # modifications take effect at once (ST-278)
            work.due = float("-inf")
            return
        if work.told.interruption is not None:
            if stream.state is StreamState.RUNNING:
                self._observe_failure(work, StreamMove.FAIL, work.told.interruption)
        elif stream.state is StreamState.FAILED and work.told.has_answered:
            self._supervision.observe(work.name, StreamMove.HEAL)
            work.pause = FIRST_PAUSE

    def _project(self, stream: Supervised) -> Project:
        return project_of(stream.name, stream.stream, self._profiles, self._places)

    def _is_changed(self, work: Work, stream: Supervised) -> bool:
        try:
            return self._project(stream) != work.project
        except Unavailable:
            return False  # what cannot be read now is no reason to end anything
        except MirrorlakeError:
            return True  # the next start says why

    def _failed(self, work: Work, stream: Supervised, error: MirrorlakeError) -> None:
        work.due = self._clock.monotonic() + work.pause
        work.pause = min(work.pause * 2, LONGEST_PAUSE)
        if isinstance(error, SourceGap):
            self._observe_failure(work, StreamMove.LOSE, error)
        elif stream.state is StreamState.RUNNING:
            self._observe_failure(work, StreamMove.FAIL, error)
        elif stream.document.get("errors", [{}])[0].get("message") != str(error):
            self._supervision.note_errors(work.name, [error_of(error, self._clock.now())])

    def _observe_failure(self, work: Work, move: StreamMove, error: MirrorlakeError) -> None:
        told = error_of(error, self._clock.now())
        if move is StreamMove.LOSE:
            told["details"]["remedy"] = (
                f"POST /v1/{work.name}:run, or `mirrorlake streams run {work.name.id}`: all tables "
                "are loaded again"
            )
        self._supervision.observe(work.name, move, [told])

    def _launch(self, work: Work) -> None:
        assert work.project is not None
        work.told = Interruptions()
        work.process = CaptureProcess(partial(run_capture, work.project), self._prepare, work.told)
        work.process.start()

    def _end(self, work: Work) -> None:
        if work.process is not None:
            work.process.stop()
            work.process = None

    def _drain(self, work: Work, stream: Supervised) -> None:
        """Nothing new is read; what was read and is landed is still applied (ST-274)."""
        if work.process is not None:
            work.process.ask_to_stop()
            if not work.process.is_alive:
                work.process = None
                work.looked = float("-inf")
                work.status, work.look = None, None
            return
        if work.project is None:  # this process is a new one
            work.project = self._project(stream)
        if not self._applies or (work.status is not None and not _pending(work.status)):
            self._supervision.observe(work.name, StreamMove.DRAINED)

    def _remove(self, work: Work, stream: Supervised) -> None:
        """End a stream, drop what was made for it in its source, and forget it. Its files and
        tables stay."""
        self._end(work)
        if work.removal is None:
            work.removal = self._pool.submit(self._detached, stream)
        elif work.removal.done():
            self._supervision.removed(work.name, work.removal.result())
            self._work.pop(str(work.name), None)

    def _detached(self, stream: Supervised) -> str:
        """What is left in the source, in a sentence; empty for nothing."""
        try:
            project = self._project(stream)
            mirror = Mirror(project)
            if mirror.made():
                mirror.detach()
            if project.destination is not None and isinstance(project.root, Path):
                # What was there is of no use without the slot; the event files lie elsewhere.
                shutil.rmtree(project.root, ignore_errors=True)
        except NotOffered:
            return ""  # it never started
        except Exception as error:  # noqa: BLE001  (the source may say anything)
            return f"what was made in the source is still there, drop it by hand: {error}"
        return ""

    def _look(self, work: Work, stream: Supervised) -> None:
        """Take note of how the objects of a stream stand."""
        if work.look is not None and work.look.done():
            before, work.status, work.look = work.status, work.look.result(), None
            work.is_idle = work.status == before
            if work.status is not None:
                said = partial(self._said, work, stream)
                self._supervision.observe_objects(
                    work.name, partial(objects_of, work.status, work.tables, said)
                )
        now = self._clock.monotonic()
        pause = IDLE_LOOK_SECONDS if work.is_idle else LOOK_SECONDS
        if work.look is None and now - work.looked >= pause:
            work.looked = now
            work.look = self._pool.submit(self._seen, stream)

    def _seen(self, stream: Supervised) -> Status | None:
        try:
            return mirror_status.read(self._project(stream))
        except (MirrorlakeError, OSError, LaterFormat):
            return None  # the stream itself says what is wrong

    def _said(self, work: Work, stream: Supervised) -> CaptureSaid:
        """What capture says now, which may be later than the status of the stream."""
        loads = dict(work.told.loads)
        try:
            work.said = capture_said(self._project(stream), loads)
        except (MirrorlakeError, OSError, LaterFormat):
            work.said = replace(work.said, loads=loads)  # the stream itself says what is wrong
        return work.said

    # -- all mirrors ----------------------------------------------------------------------------

    def _mirror(self, streams: dict[str, Supervised]) -> None:
        """Let the mirrors of the streams run that have something to apply."""
        self.latencies.keep(set(streams))
        wanted = {
            name: work.project
            for name, work in self._work.items()
            if work.project is not None
            and work.project.destination is None
            and name in streams
            and not streams[name].is_deleted
            and streams[name].state in (*_RUNNING, StreamState.DRAINING)
        }
        if self._mirrors is not None and not self._mirrors.is_alive:
            self._mirrors = None
            self._mirrors_due = self._clock.monotonic() + self._mirrors_pause
            self._mirrors_pause = min(self._mirrors_pause * 2, LONGEST_PAUSE)
        if self._mirrors is None:
            if not wanted or self._clock.monotonic() < self._mirrors_due:
                return
            self._mirrors = MirrorsProcess(self._prepare, self.latencies.note)
        self._mirrors.want(wanted)
        self._mirrors.look()
        if self._mirrors.working:
            self._mirrors_pause = FIRST_PAUSE

    def mirror_errors(self) -> dict[str, MirrorlakeError]:
        """Why the mirror of a stream does not apply, by stream."""
        return dict(self._mirrors.errors) if self._mirrors is not None else {}


def _pending(status: Status) -> bool:
    """Whether something that is landed can still be applied."""
    return any(table.pending_files and table.error is None for table in status.tables)
