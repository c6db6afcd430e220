"""All mirrors of a service in one process, on one Spark, which starts when the first has work.

Each mirror applies in a thread of its own: what is wrong with one stops no other. What is wrong
with Spark ends the process; who started it starts it again, and nothing is lost, because progress
is what the tables have recorded.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import structlog

from mirrorlake.app import extras
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.running.batches import AppliedBatch, BatchWatcher
from mirrorlake.app.running.faults import named
from mirrorlake.app.running.process import begun
from mirrorlake.config import Project
from mirrorlake.errors import LeaseHeld, MirrorlakeError
from mirrorlake.storage.urls import StorageLocation

log = structlog.get_logger()

MIRROR_STOPPED = "mirror_stopped"
MIRRORS_ENDED = "mirrors_ended"
STOP_SECONDS = 3.0
"""How long all mirrors together may take to end, before the process does."""
LOOK_SECONDS = 0.5
"""How long the process waits for a command before it looks at its mirrors, and for a signal."""
CANCEL_AFTER, CANCEL_EVERY = 1.5, 0.25
"""How long the step at hand may take to end by itself, and how often its Spark jobs are cancelled
then."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
SOUND_SECONDS = 5.0
"""How long a mirror works before its last error counts as over."""


class MirrorsProcess:
    """Starts, watches and stops the process."""

    def __init__(
        self,
        prepare: Callable[[], None] | None = None,
        note: Callable[[AppliedBatch], None] = lambda _one: None,
        tables: StorageLocation | None = None,
    ) -> None:
        """prepare: called in the process first; must pickle. note: called with each batch,
        by `look`. tables: where those of one of the mirrors lie, if that is on objects."""
        self._note = note
        context = multiprocessing.get_context("spawn")
        theirs, self._commands = context.Pipe(duplex=False)
        self._reports, sending = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(theirs, sending, prepare, tables), name="mirrors", daemon=True
        )
        self._process.start()
        theirs.close()
        sending.close()
        self._errors: dict[str, MirrorlakeError] = {}
        self._working: dict[str, float] = {}  # since when
        self._wanted: Mapping[str, Project] = {}

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def want(self, projects: Mapping[str, Project]) -> None:
        """Let exactly these mirrors run."""
        if projects != self._wanted:
            try:
                self._commands.send(dict(projects))
            except OSError:
                return  # it has ended, which `is_alive` says
            self._wanted = dict(projects)

    def look(self) -> None:
        """Take note of what the mirrors said."""
        try:
            while self._reports.poll():
                received = self._reports.recv()
                if isinstance(received, AppliedBatch):
                    self._note(received)
                    continue
                name, is_working, error = received
                self._working.pop(name, None)
                if is_working:
                    self._working[name] = time.monotonic()
                elif error is not None:
                    self._errors[name] = error
                else:
                    self._errors.pop(name, None)
        except (EOFError, OSError):
            self._working.clear()

    @property
    def is_working(self) -> bool:
        """Whether a mirror runs, and so holds its lease, or tries to."""
        return bool(self._working)

    @property
    def errors(self) -> dict[str, MirrorlakeError]:
        """Why a mirror does not apply, by name. One that is tried again is not well at once."""
        sound = time.monotonic() - SOUND_SECONDS
        for name, since in self._working.items():
            if since <= sound:
                self._errors.pop(name, None)
        return dict(self._errors)

    def ask_to_stop(self) -> None:
        self._process.terminate()

    def stop(self, patience: float = STOP_SECONDS + 1.0) -> None:
        """End it: batches that are under way are cancelled, and done again next time."""
        self.ask_to_stop()
        self._process.join(patience)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(
    commands: Connection,
    reports: Connection,
    prepare: Callable[[], None] | None,
    tables: StorageLocation | None,
) -> None:
    stop = begun(prepare)
    mirrors = _Mirrors(reports, tables)
    wanted: Mapping[str, Project] = {}
    while not stop.is_set():
        try:
            if commands.poll(LOOK_SECONDS):
                wanted = commands.recv()
        except (EOFError, OSError):  # whoever started this process is gone
            break
        mirrors.reconcile(wanted)
    mirrors.reconcile({})
    mirrors.wait(STOP_SECONDS)
    # Threads of Spark's gateway may wait for a JVM that is gone; nothing here needs a farewell.
    os._exit(0)


class _Mirrors:
    """The threads of the mirrors."""

    def __init__(self, reports: Connection, tables: StorageLocation | None) -> None:
        self._reports, self._sending, self._tables = reports, threading.Lock(), tables
        self._threads: dict[str, _Applying] = {}
        self._spark: Any = None
        self._starting = threading.Lock()

    def reconcile(self, wanted: Mapping[str, Project]) -> None:
        for name, one in list(self._threads.items()):
            if wanted.get(name) != one.project:
                one.end()
            if not one.is_alive():
                del self._threads[name]
        for name, project in wanted.items():
            if name not in self._threads:
                watcher = BatchWatcher(name, self._send)
                one = _Applying(name, project, self.session, self.report, watcher)
                self._threads[name] = one
                one.start()

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for one in self._threads.values():
            one.join(max(until - time.monotonic(), 0.0))

    def report(self, name: str, *, is_working: bool, error: MirrorlakeError | None) -> None:
        self._send((name, is_working, error))

    def _send(self, message: object) -> None:
        with self._sending:
            self._reports.send(message)

    def session(self, project: Project) -> Any:
        """The one session; None where a mirror needs none. Raises SparkUnavailable."""
        if project.events is not None and not project.spark.is_cluster:
            return None
        with self._starting:
            if self._spark is None:
                with extras.needed("applying changes"):
                    from mirrorlake.spark.session.spark_session import Spark
                self._spark = Spark.start(project.spark, tables=self._tables)
            return self._spark.session


class _Applying(threading.Thread):
    """One mirror: applies what lands, and tries again after an error."""

    def __init__(
        self,
        name: str,
        project: Project,
        session: Callable[[Project], Any],
        report: Callable[..., None],
        watcher: BatchWatcher,
    ) -> None:
        super().__init__(name=f"mirror {name}", daemon=True)
        self.project, self._mirror_name = project, name
        self._session, self._report, self._watcher = session, report, watcher
        self._stop_asked = threading.Event()
        self._mirror: Mirror | None = None

    def end(self) -> None:
        """Stop after the step at hand; its Spark jobs are cancelled if it takes long."""
        if not self._stop_asked.is_set():
            self._stop_asked.set()
            threading.Thread(target=self._see_to_it, daemon=True).start()

    def _see_to_it(self) -> None:
        self.join(CANCEL_AFTER)
        while self.is_alive():  # a step of several jobs begins the next when one is cancelled
            if self._mirror is not None:
                with suppress(Exception):  # the JVM may be gone
                    self._mirror.cancel()
            self.join(CANCEL_EVERY)

    def run(self) -> None:
        structlog.contextvars.bind_contextvars(mirror=self._mirror_name)
        pause = FIRST_PAUSE
        session: Any = None
        while not self._stop_asked.is_set():
            error: MirrorlakeError | None = None
            try:
                session = self._session(self.project)
                self._mirror = Mirror(self.project, spark=session, stop=self._stop_asked)
                self._report(self._mirror_name, is_working=True, error=None)
                self._mirror.apply_run(self._watcher)
            except Exception as raised:  # noqa: BLE001  (whatever Spark says)
                if self._stop_asked.is_set():
                    break
                error = named(raised, self._mirror_name)
                log.error(MIRROR_STOPPED, mirror=self._mirror_name, code=error.code)
                if not self._is_sound(session, is_ours=error is raised):
                    log.error(MIRRORS_ENDED, mirror=self._mirror_name, reason=type(raised).__name__)
                    os._exit(1)  # a new process begins anew, with a Spark that answers
            self._report(self._mirror_name, is_working=False, error=error)
            if isinstance(error, LeaseHeld):
                pause = FIRST_PAUSE
            self._stop_asked.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
        self._report(self._mirror_name, is_working=False, error=None)

    def _is_sound(self, session: Any, *, is_ours: bool) -> bool:
        """Whether Spark is not what is wrong. is_ours: the error was no surprise."""
        if session is None and (is_ours or self.project.events is not None):
            return True
        return _answers(session)


def _answers(session: Any) -> bool:
    """Whether Spark still does what it is asked."""
    try:
        session.sql("select 1").collect()
    except Exception:  # noqa: BLE001  (whatever it says, and where there is none)
        return False
    return True
