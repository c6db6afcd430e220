"""Supervision: what is wanted of each stream is compared with what runs, again and again.

Each stream captures in a process of its own, all mirrors apply in another one. A process that ends
by itself is started again with growing pauses (Failed), unless what it needs is lost (Failed
permanently). Nothing here holds what a stream has done: after a crash of this process the same
comparison starts what is missing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.running.batches import AppliedBatch, ServiceBatches
from mirrorlake.app.running.capture_keeper import FIRST_PAUSE, CaptureKeeper
from mirrorlake.app.running.faults import named
from mirrorlake.app.running.mirrors_keeper import MirrorsKeeper, drain
from mirrorlake.app.running.process import prepared
from mirrorlake.app.source import detached
from mirrorlake.app.status import ended, mirror_status
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.stores import store_of
from mirrorlake.app.streams.footprint import Footprint, footprint
from mirrorlake.app.streams.objects import CaptureSaid, Known, capture_said, objects_of
from mirrorlake.app.streams.projects import StreamProjects
from mirrorlake.app.streams.recovery import recover
from mirrorlake.app.streams.validation import WorldValidator
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
    Unavailable,
)
from mirrorlake.model.clock import Clock

log = structlog.get_logger()

SUPERVISION_FAILED = "supervision_failed"
TICK_SECONDS, IDLE_TICK_SECONDS = 0.5, 1.0
"""How long nobody looks at the processes when nothing wakes the supervisor: while something begins
or ends, and while all streams run."""
REREAD_SECONDS = 5.0
"""How often what is wanted is read even though nothing was changed here."""
BUSY_LOOK_SECONDS, LOOK_SECONDS, IDLE_LOOK_SECONDS, UNTOLD_LOOK_SECONDS = 1.0, 3.0, 20.0, 10.0
"""How often the tables of a stream are looked at: where some are loaded, where something changes,
where nothing happens, and where it is unknown whether something happens."""
STILL_LOOK_SECONDS = 60.0
"""How often the tables of a stream are looked at whose folders show that nothing has happened."""
LOOK_SHARE = 0.1
"""The most of the time that looking at one stream may take."""
TIDY_SECONDS = 3_600.0
WANTED_SECONDS = 60.0
"""How often the settings of a stream are put together even though nothing was changed here."""
FAULT_SECONDS = 30.0
"""How long an error of a stream is shown after it has ended."""

_RUNNING = (StreamState.RUNNING, StreamState.FAILED)
_AT_REST = (
    StreamState.RUNNING,
    StreamState.NOT_STARTED,
    StreamState.PAUSED,
    StreamState.FAILED_PERMANENTLY,
)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A stream that may start, or why it may not."""

    project: Project | None
    validations: Sequence[Validation] = ()
    tables: Known = field(default_factory=dict)
    error: MirrorlakeError | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """How a stream stands. took: the seconds that it took to see that; footprint: from before."""

    status: Status | None
    took: float
    footprint: Footprint | None


@dataclass(slots=True)
class Work:
    """What runs for one stream."""

    name: ResourceName
    capture: CaptureKeeper
    project: Project | None = None
    task: Future[_Prepared] | None = None
    removal: Future[str] | None = None
    look: Future[_Seen] | None = None
    tables: Known = field(default_factory=dict)
    status: Status | None = None
    said: CaptureSaid = field(default_factory=CaptureSaid)
    seen: object = None  # for which the objects were reported last
    looked: float = float("-inf")
    pause: float = LOOK_SECONDS
    least_pause: float = LOOK_SECONDS  # even when something has happened
    footprint: Footprint | None = None  # at the last look
    due: float = float("-inf")
    wanted: tuple[int, float, Project | None] = (-1, float("-inf"), None)
    fault: str = ""
    faulted: float = float("-inf")


class Supervisor:
    """For one thread, which calls `run`.

    stop: ends it, after everything has been drained; changed: set by who changed something that
    should be looked at now; read: called after streams were changed; tidy: called once an hour;
    prepare: called first in each process that is started; must pickle; applies: whether landed
    files are applied here too.
    """

    def __init__(
        self,
        supervision: Supervision,
        projects: StreamProjects,
        validator: WorldValidator,
        clock: Clock,
        *,
        stop: threading.Event,
        changed: threading.Event,
        read: Callable[[], None] = lambda: None,
        tidy: Callable[[], None] = lambda: None,
        prepare: Callable[[], None] | None = None,
        applies: bool = True,
    ) -> None:
        self._supervision, self._projects, self._validator = supervision, projects, validator
        self._clock, self._stop, self._prepare = clock, stop, prepare
        self._applies = applies
        self._work: dict[str, Work] = {}
        self._urgent: set[str] = set()
        self._streams: dict[str, Supervised] = {}
        self._known = (-1, float("-inf"))  # the changes that are read, and when
        # What waits for a source that does not answer takes no thread from what only looks.
        self._pool = ThreadPoolExecutor(64, thread_name_prefix="streams")
        self._looks = ThreadPoolExecutor(8, thread_name_prefix="looks")
        self.batches = ServiceBatches()
        tables = (one.tables_elsewhere for one in projects.declared.values())
        self._mirrors = MirrorsKeeper(
            clock, prepare, self._applied, next(filter(None, tables), None)
        )
        self._changed, self._read, self._tidy = changed, read, tidy
        self._tidied = clock.monotonic()
        self.is_ready = threading.Event()
        self.problem = ""
        """The kind of error with which the last round failed, if it did."""

    # -- what is seen ---------------------------------------------------------------------------

    def works(self) -> list[Work]:
        """What runs, and what was last seen of it."""
        return list(self._work.values())

    def look_at(self, stream: ResourceName) -> None:
        """Look at the objects of a stream soon: somebody has asked something of them."""
        self._urgent.add(str(stream))
        self._changed.set()

    # -- the loop -------------------------------------------------------------------------------

    def run(self) -> None:
        """Supervise until asked to stop; then drain. A fault of one round ends nothing."""
        try:
            while not self._stop.is_set():
                self._changed.clear()
                try:
                    self.tick()
                    self.problem = ""
                    self.is_ready.set()
                except Exception as error:  # noqa: BLE001  (the database, for a while, or a bug)
                    kind = type(error).__name__
                    self.problem = kind
                    self.is_ready.clear()
                    log.error(SUPERVISION_FAILED, reason=f"{kind}: {error}")
                    self._stop.wait(FIRST_PAUSE)
                if not self._stop.is_set():  # `end` may have been called before `clear`
                    self._changed.wait(IDLE_TICK_SECONDS if self._is_idle() else TICK_SECONDS)
        finally:
            self.close()

    def end(self) -> None:
        """Ask it to stop, from any thread."""
        self._stop.set()
        self._changed.set()

    def tick(self) -> None:
        """One comparison of what is wanted with what runs."""
        changes, now = self._supervision.changes, self._clock.monotonic()
        if changes != self._known[0] or now - self._known[1] >= REREAD_SECONDS:
            self._streams = {str(one.name): one for one in self._supervision.supervised()}
            if changes != self._known[0]:
                self._read()
            self._known = changes, now
        streams = self._streams
        while self._urgent:
            if (urgent := self._work.get(self._urgent.pop())) is not None:
                urgent.looked = float("-inf")
        for stream in streams.values():
            self._tick(stream)
        for name in self._work.keys() - streams.keys():
            if self._work[name].capture.end():
                del self._work[name]
        if self._applies:
            self._mirror(streams)
        if now - self._tidied >= TIDY_SECONDS:
            self._tidied = now
            self._pool.submit(self._tidy)

    def _is_idle(self) -> bool:
        """Whether nothing is on its way to another state."""
        return all(one.state in _AT_REST and not one.is_deleted for one in self._streams.values())

    def _tick(self, stream: Supervised) -> None:
        name = str(stream.name)
        if (work := self._work.get(name)) is None:
            prepare = partial(prepared, self._prepare, name)
            work = self._work[name] = Work(stream.name, CaptureKeeper(self._clock, prepare))
        try:
            if stream.is_deleted:
                self._remove(work, stream)
            else:
                self._supervise(work, stream)
            self._forget_fault(work, stream)
        except Exception as error:  # noqa: BLE001  (what is wrong with one stops no other)
            fault = named(error, name)
            work.fault, work.faulted = str(fault), self._clock.monotonic()
            self._note(stream, fault)

    def close(self) -> None:
        """Drain: every process finishes the step at hand, all at the same time."""
        drain([work.capture for work in self._work.values()], self._mirrors, self._clock)
        for pool in (self._pool, self._looks):
            pool.shutdown(wait=False, cancel_futures=True)

    # -- one stream -----------------------------------------------------------------------------

    def _forget_fault(self, work: Work, stream: Supervised) -> None:
        """What was wrong has not happened again for a while."""
        if work.fault and self._clock.monotonic() - work.faulted > FAULT_SECONDS:
            if _messages(stream) == [work.fault]:
                self._supervision.note_errors(work.name, [])
            work.fault = ""

    def _supervise(self, work: Work, stream: Supervised) -> None:
        match stream.state:
            case StreamState.STARTING:
                self._start(work, stream)
            case StreamState.RUNNING | StreamState.FAILED:
                self._keep_running(work, stream)
            case StreamState.DRAINING:
                self._drain(work, stream)
            case _:
                work.capture.end()
        if stream.state in (*_RUNNING, StreamState.DRAINING, StreamState.STARTING):
            self._look(work, stream)

    def _start(self, work: Work, stream: Supervised) -> None:
        if not work.capture.end():
            return  # what ran before is still ending
        if work.task is None:
            if self._clock.monotonic() >= work.due:
                work.task = self._pool.submit(self._prepared, stream)
                work.task.add_done_callback(self._wake)
            return
        if not work.task.done():
            return
        task, work.task = work.task, None
        prepared = task.result()
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
        work.project, work.tables = prepared.project, prepared.tables
        work.capture.healed()
        if work.project.source is not None:
            work.capture.keep(work.project)
        self._supervision.observe(work.name, StreamMove.VALID, validations=prepared.validations)

    def _prepared(self, stream: Supervised) -> _Prepared:
        """Validate a stream, and after a loss let it begin anew. Runs beside the others."""
        validations: Sequence[Validation] = ()
        try:
            project = self._projects.of(stream.name, stream.document)
            self._validator.check_root(stream.name, project)
            recovery = self._supervision.recovery(stream.name)
            # What a deleted stream of this name has left is replaced when a run asks for it.
            is_left = recovery == ANEW and detached.since(store_of(project)) is not None
            if recovery == RECOVER:
                recover(project)
            elif is_left:
                plan_reset(project, None).execute()
            if self._supervision.is_forced(stream.name):
                with suppress(MirrorlakeError):
                    return _Prepared(project, tables=_tables_of(project))
                return _Prepared(project)
            validations = self._validator.start(stream.name, project)
            if has_failed(validations):
                return _Prepared(None, validations)
            tables = _tables_of(project)
        except Exception as error:  # noqa: BLE001  (the source and the storage may say anything)
            return _Prepared(None, validations, error=named(error, str(stream.name)))
        return _Prepared(project, validations, tables)

    def _keep_running(self, work: Work, stream: Supervised) -> None:
        capture = work.capture
        if not (capture.is_running or capture.is_due):
            return
        try:
            work.project = self._project(work, stream)
        except MirrorlakeError as error:
            # What cannot be read now is no reason to end anything.
            if not isinstance(error, Unavailable) and not capture.end():
                return
            if not capture.is_running:
                capture.put_off()
                self._failed(work, stream, error)
                return
        assert work.project is not None
        if work.project.source is not None:
            # Other settings begin another process: modifications take effect at once (ST-278).
            if (failure := capture.keep(work.project)) is not None:
                self._failed(work, stream, failure)
                return
            has_answered = capture.reports.has_answered
        else:
            has_answered = True  # only the mirror works
        interruption = (
            capture.reports.interruption
            or self.mirror_errors().get(str(work.name))
            or self._suspended(work)
        )
        if interruption is not None:
            if stream.state is StreamState.RUNNING:
                self._observe_failure(work, StreamMove.FAIL, interruption)
            else:
                self._note(stream, interruption)  # the reason may be another one by now
        elif stream.state is StreamState.FAILED and has_answered:
            self._supervision.observe(work.name, StreamMove.HEAL)
            capture.healed()

    def _suspended(self, work: Work) -> MirrorlakeError | None:
        """What keeps a process from saying anything itself, as of the last look."""
        found = work.status.errors if work.status is not None else ()
        ours = {ended.CAPTURE: work.capture.is_running, ended.MIRROR: self._applies}
        roles = [ended.suspended(found, ended.COMMANDS[role]) for role in ours if ours[role]]
        return next(filter(None, roles), None)

    def _project(self, work: Work, stream: Supervised) -> Project:
        """What is wanted of a stream now. It is put together again when something was changed here,
        and once in a while, for what others may have changed."""
        now, known = self._clock.monotonic(), self._known[0]
        changes, since, found = work.wanted
        if found is None or changes != known or now - since > WANTED_SECONDS:
            found = self._projects.of(stream.name, stream.document)
            work.wanted = known, now, found
        return found

    def _failed(self, work: Work, stream: Supervised, error: MirrorlakeError) -> None:
        if isinstance(error, SourceGap):
            self._observe_failure(work, StreamMove.LOSE, error)
        elif stream.state is StreamState.RUNNING:
            self._observe_failure(work, StreamMove.FAIL, error)
        else:
            self._note(stream, error)

    def _wake(self, _done: object) -> None:
        self._changed.set()

    def _note(self, stream: Supervised, error: MirrorlakeError) -> None:
        """Let the errors of a stream say what is wrong now."""
        if _messages(stream) != [str(error)]:
            self._supervision.note_errors(stream.name, [error_of(error, self._clock.now())])

    def _observe_failure(self, work: Work, move: StreamMove, error: MirrorlakeError) -> None:
        if move is StreamMove.LOSE:
            corrected = work.project is None or work.project.lands
            then = "are compared with the source" if corrected else "are written as events again"
            run = f"POST /v1/{work.name}:run, or `mirrorlake streams run {work.name.id}`"
            error = SourceGap(
                error.what, where=error.where, hint=f"{run}: the rows of all tables {then}."
            )
        self._supervision.observe(work.name, move, [error_of(error, self._clock.now())])

    def _drain(self, work: Work, stream: Supervised) -> None:
        """Nothing new is read; what was read and is landed is still applied (ST-274)."""
        if work.capture.is_running:
            if work.capture.end():
                work.looked = float("-inf")
                work.status, work.look = None, None
            return
        if work.project is None:  # this process is a new one
            work.project = self._project(work, stream)
        if not self._applies or (work.status is not None and not _pending(work.status)):
            self._supervision.observe(work.name, StreamMove.DRAINED)

    def _remove(self, work: Work, stream: Supervised) -> None:
        """End a stream, drop what was made for it in its source, and forget it. Its files and
        tables stay."""
        if not work.capture.end():
            return
        if work.removal is None:
            work.removal = self._pool.submit(self._detached, stream)
            work.removal.add_done_callback(self._wake)
        elif work.removal.done():
            self._supervision.removed(work.name, work.removal.result())
            self._work.pop(str(work.name), None)

    def _detached(self, stream: Supervised) -> str:
        """What is left in the source, in a sentence; empty for nothing."""
        try:
            project = self._projects.of(stream.name, stream.document)
            self._validator.check_root(stream.name, project)
            mirror = Mirror(project)
            if mirror.made():
                mirror.detach()
            if not project.lands and isinstance(project.root, Path):
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
            look, work.look = work.look, None
            before, seen = work.status, look.result()
            idle = IDLE_LOOK_SECONDS if self._applies else UNTOLD_LOOK_SECONDS
            work.pause = idle if seen.status == before else LOOK_SECONDS
            work.least_pause = max(LOOK_SECONDS, seen.took / LOOK_SHARE)
            is_still = seen.footprint is not None and seen.footprint == work.footprint
            work.status, work.footprint = seen.status, seen.footprint
            if work.status is not None:
                if is_still and work.status == before:
                    work.pause = STILL_LOOK_SECONDS
                if self._suspended(work):
                    work.pause = LOOK_SECONDS  # it may go on at any time
                said = self._said(work, stream)
                work.pause = max(
                    BUSY_LOOK_SECONDS if said.is_busy else work.pause, seen.took / LOOK_SHARE
                )
                now_seen = work.status, work.tables, said
                if now_seen != work.seen:
                    work.seen = now_seen
                    again = partial(self._said, work, stream)  # as it is when nobody changes it
                    self._supervision.observe_objects(
                        work.name, partial(objects_of, work.status, work.tables, again)
                    )
        now = self._clock.monotonic()
        if work.look is None and self._is_look_due(work, now):
            work.looked = now
            try:
                project = self._project(work, stream)
            except MirrorlakeError:
                work.status = None  # the stream itself says what is wrong
                return
            work.look = self._looks.submit(self._seen, stream.name, project)

    @staticmethod
    def _is_look_due(work: Work, now: float) -> bool:
        since = now - work.looked
        if since >= work.pause or work.project is None or work.footprint is None:
            return since >= work.pause
        return since >= work.least_pause and footprint(work.project) != work.footprint

    @staticmethod
    def _seen(name: ResourceName, project: Project) -> _Seen:
        begun, before = time.monotonic(), footprint(project)
        status = None
        try:
            status = mirror_status.read(project)
        except (MirrorlakeError, OSError):
            pass  # the stream itself says what is wrong
        except Exception as error:  # noqa: BLE001  (a damaged file may be anything)
            named(error, str(name))
        return _Seen(status, time.monotonic() - begun, before)

    def _said(self, work: Work, stream: Supervised) -> CaptureSaid:
        """What capture says now, which may be later than the status of the stream."""
        loads = dict(work.capture.reports.loads)
        try:
            work.said = capture_said(self._project(work, stream), loads)
        except (MirrorlakeError, OSError):
            work.said = replace(work.said, loads=loads)  # the stream itself says what is wrong
        return work.said

    # -- all mirrors ----------------------------------------------------------------------------

    def _mirror(self, streams: dict[str, Supervised]) -> None:
        """Let the mirrors of the streams run that have something to apply."""
        self.batches.keep(set(streams))
        wanted = {
            name: work.project
            for name, work in self._work.items()
            if work.project is not None
            and work.project.lands
            and name in streams
            and not streams[name].is_deleted
            and streams[name].state in (*_RUNNING, StreamState.DRAINING)
        }
        self.batches.follow(set(wanted))
        self._mirrors.keep(wanted)

    def _applied(self, batch: AppliedBatch) -> None:
        self.batches.note(batch)
        if (work := self._work.get(batch.mirror)) is not None:
            work.pause = min(work.pause, LOOK_SECONDS)

    def mirror_errors(self) -> dict[str, MirrorlakeError]:
        """Why the mirror of a stream does not apply, by stream."""
        return self._mirrors.errors


def _messages(stream: Supervised) -> list[str]:
    return [one["message"] for one in stream.document.get("errors", [])]


def _tables_of(project: Project) -> Known:
    """Raises MirrorlakeError."""
    found = Mirror(project).discover() if project.source is not None else []
    return {table.table: table.refused for table in found}


def _pending(status: Status) -> bool:
    """Whether something that is landed can still be applied."""
    return any(table.pending_files and table.error is None for table in status.tables)
