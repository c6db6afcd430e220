"""Several mirrors side by side, as `serve` runs its streams: each capture in a process of its own,
all that apply together in another. What is wrong with one stops no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from mirrorlake.app.running.capture_keeper import CaptureKeeper
from mirrorlake.app.running.mirrors_keeper import MirrorsKeeper, drain
from mirrorlake.app.running.process import prepared
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError, SourceGap, UsageError
from mirrorlake.model.clock import WallClock

LOOK_SECONDS = 0.2

Failed = Callable[[str, MirrorlakeError], None]
"""Called with the name of a mirror and what is wrong with it, once for each message."""


class SeveralMirrors:
    """The mirrors of one project file. prepare: called first in each process; must pickle."""

    def __init__(
        self,
        projects: Sequence[Project],
        stop: threading.Event,
        prepare: Callable[[], None] | None = None,
        failed: Failed = lambda _name, _error: None,
    ) -> None:
        self._projects, self._stop, self._failed = projects, stop, failed
        clock = WallClock(stop)
        self._captures = {
            one.name: CaptureKeeper(clock, partial(prepared, prepare, one.name))
            for one in projects
            if one.source is not None
        }
        tables = next((where for one in projects if (where := one.tables_elsewhere)), None)
        self._mirrors = MirrorsKeeper(clock, prepare, tables=tables)
        self._applied = {one.name: one for one in projects if one.lands}
        self._lost: dict[str, MirrorlakeError] = {}
        self._told: dict[str, str] = {}
        self._clock = clock

    def run(self) -> dict[str, MirrorlakeError]:
        """Run until asked to stop, or until nothing can go on. Returns what ended a mirror for
        good, by name; what is landed of it is applied all the same."""
        try:
            while not self._stop.is_set() and len(self._lost) < len(self._projects):
                self._look()
                self._stop.wait(LOOK_SECONDS)
        finally:
            drain(list(self._captures.values()), self._mirrors, self._clock)
        return self._lost

    def _look(self) -> None:
        for project in self._projects:
            capture = self._captures.get(project.name)
            if capture is None or project.name in self._lost:
                continue
            error = capture.keep(project)
            if error is not None:
                self._tell(project.name, error)
                if isinstance(error, SourceGap | UsageError):
                    self._lost[project.name] = error  # trying again cannot help
            elif capture.reports.has_answered and capture.reports.interruption is None:
                capture.healed()
        self._mirrors.keep(self._applied)
        for name, error in self._mirrors.errors.items():
            self._tell(name, error)

    def _tell(self, name: str, error: MirrorlakeError) -> None:
        if self._told.get(name) != str(error):
            self._told[name] = str(error)
            self._failed(name, error)
