"""Keeps the capture of one mirror running, for as long as it is wanted.

A process that ends by itself is started again, with growing pauses. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.running.capture_process import STOP_SECONDS, CaptureProcess
from mirrorlake.app.running.capturing import run_capture
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError, SourceUnavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.table import TableId

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
KILL_SECONDS = STOP_SECONDS + 0.5
"""How long a process may take to end that was asked to: less than all of them together. It leaves
earlier by itself, if it can."""


class CaptureReports(Watcher):
    """What a capture process reported last. interruption: why it waits for the source;
    has_answered: whether it has said anything about that; retained_bytes: of its log that the
    source keeps for it, None when unknown; loads: how far each load is."""

    def __init__(self) -> None:
        self.interruption: SourceUnavailable | None = None
        self.has_answered = False
        self.retained_bytes: int | None = None
        self.loads: dict[TableId, LoadProgress] = {}

    def loading(self, progress: LoadProgress) -> None:
        self.loads[progress.table] = progress

    def waiting(self, error: SourceUnavailable | None) -> None:
        self.interruption, self.has_answered = error, True

    def retained(self, log: LogRetention) -> None:
        self.retained_bytes = log.size


class CaptureKeeper:
    """Call `keep` or `end` again and again. prepare: called first in each process; must pickle."""

    def __init__(self, clock: Clock, prepare: Callable[[], None] | None = None) -> None:
        self._clock, self._prepare = clock, prepare
        self._process: CaptureProcess | None = None
        self._project: Project | None = None
        self._asked: float | None = None  # when it was asked to end
        self._due, self._pause = float("-inf"), FIRST_PAUSE
        self.reports = CaptureReports()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_due(self) -> bool:
        """Whether it would be started now; False while it waits after a failure."""
        return self._clock.monotonic() >= self._due

    def keep(self, project: Project) -> MirrorlakeError | None:
        """Let it run with these settings: other ones end it, and begin another. Returns what ended
        it by itself since the last call."""
        if self._process is None:
            if self.is_due:
                self._start(project)
            return None
        if self._asked is not None or project != self._project:
            if self.end():
                self._start(project)
            return None
        try:
            self._process.check()
        except MirrorlakeError as error:
            self._process.stop(0.0)
            self._process = None
            self.put_off()
            return error
        return None

    def put_off(self) -> None:
        """Something keeps it from running: it is tried again later, and then later still."""
        self._due = self._clock.monotonic() + self._pause
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def healed(self) -> None:
        """The next failure is the first again."""
        self._pause = FIRST_PAUSE

    def end(self) -> bool:
        """Let it finish the step at hand, and end. Returns whether it has: call it again until it
        does. One that does not react is killed; what it had not published is read again."""
        if self._process is None:
            self._due = float("-inf")
            return True
        now = self._clock.monotonic()
        if self._asked is None:
            self._asked = now
            self._process.ask_to_stop()
        if self._process.is_alive and now - self._asked < KILL_SECONDS:
            return False
        self._process.stop(0.0)
        self._process, self._asked = None, None
        self._due = float("-inf")
        return True

    def _start(self, project: Project) -> None:
        self._project, self.reports = project, CaptureReports()
        self._process = CaptureProcess(partial(run_capture, project), self._prepare, self.reports)
        self._process.start()
