"""Keeps the process of all mirrors running, for as long as one of them has something to apply."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from mirrorlake.app.running.batches import AppliedBatch
from mirrorlake.app.running.capture_keeper import FIRST_PAUSE, LONGEST_PAUSE, CaptureKeeper
from mirrorlake.app.running.mirrors_process import MirrorsProcess
from mirrorlake.config import Project
from mirrorlake.errors import MirrorlakeError
from mirrorlake.model.clock import Clock
from mirrorlake.storage.urls import StorageLocation

DRAIN_SECONDS, STEP_SECONDS = 4.0, 0.02
"""How long all processes together may take to end, and how often it is looked whether they have."""


class MirrorsKeeper:
    """Call `keep` again and again. prepare: called first in the process; must pickle. note: called
    with each batch that is applied. tables: where the tables of one of the mirrors lie, if that is
    on objects; the session is made for it."""

    def __init__(
        self,
        clock: Clock,
        prepare: Callable[[], None] | None = None,
        note: Callable[[AppliedBatch], None] = lambda _one: None,
        tables: StorageLocation | None = None,
    ) -> None:
        self._clock, self._prepare, self._note, self._tables = clock, prepare, note, tables
        self._process: MirrorsProcess | None = None
        self._due, self._pause = float("-inf"), FIRST_PAUSE

    def keep(self, wanted: Mapping[str, Project]) -> None:
        """Let exactly these mirrors run, by name."""
        if self._process is not None and not self._process.is_alive:
            self._process = None
            self._due = self._clock.monotonic() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        if self._process is None:
            if not wanted or self._clock.monotonic() < self._due:
                return
            self._process = MirrorsProcess(self._prepare, self._note, self._tables)
        self._process.want(wanted)
        self._process.look()
        if self._process.is_working:
            self._pause = FIRST_PAUSE

    @property
    def errors(self) -> dict[str, MirrorlakeError]:
        """Why a mirror does not apply, by name."""
        return self._process.errors if self._process is not None else {}

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.ask_to_stop()

    def stop(self, patience: float) -> None:
        """End it: batches that are under way are cancelled, and done again next time."""
        if self._process is not None:
            self._process.stop(patience)


def drain(captures: Sequence[CaptureKeeper], mirrors: MirrorsKeeper, clock: Clock) -> None:
    """Let every process finish the step at hand, all at the same time."""
    until = clock.monotonic() + DRAIN_SECONDS
    mirrors.ask_to_stop()
    while sum(not capture.end() for capture in captures) and clock.monotonic() < until:
        time.sleep(STEP_SECONDS)
    mirrors.stop(max(until - clock.monotonic(), 0.1))
