"""What is done with files after their commit: their names recorded, then they are moved aside.

A move costs a few flushes of the disk, and batches wait for it. So each table has its turn now and
then, only for so long in a cycle, and in groups that grow with the record of the times, which is
written whole each time: a file costs the same however many lie aside.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import datetime, timedelta

import structlog

from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.errors import TableError
from mirrorlake.landing import cleanup, layout
from mirrorlake.landing.cleanup import CLEANUP_ERRORS
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import CleanUp, TablePlan
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store

log = structlog.get_logger()

CLEANUP_REFUSED = "cleanup_refused"
MOST_SECONDS = 0.1
"""In one cycle; the rest waits for the next."""
LOOK_AGAIN = timedelta(hours=1)
"""A cleanup folder is listed so often at least: others may have put something old there."""
SLACK = 168
"""What is due within such a part of the retention, an hour of a week, is removed together, for the
folder is listed each time, and its record written whole."""
GROUP = 64
"""One file is moved at a time for so many that are aside."""
MOST_WAITING = 512
"""Files that wait at most until they make a group: all are listed in each look."""


class LandingCleanup:
    """Keeps the folders of one zone tidy, in groups: it costs less."""

    def __init__(
        self,
        store: Store,
        scanner: Scanner,
        followers: ProcessedNames,
        engine: MirrorEngine,
        settings: MirrorSettings,
        clock: Clock,
        reached: CrashHook,
    ) -> None:
        self._store, self._scanner, self._followers = store, scanner, followers
        self._engine, self._settings, self._clock, self._reached = engine, settings, clock, reached
        self._begun = clock.monotonic()
        self._moved: dict[str, float] = {}  # when each table had its turn, by folder
        self._due: dict[str, datetime] = {}  # when something has been aside long enough, by place
        self._aside: dict[str, int] = {}  # files, at least, by place
        self._durable: set[str] = set()  # paths of tables

    def do(self, planned: Sequence[TablePlan], *, force: bool = False) -> None:
        """Record names; of tables whose turn it is, move applied files aside and remove what has
        been aside long enough. force: of all."""
        for _path in self._followers.record(self._engine.make_durable):
            self._reached(CrashPoint.NAMES_RECORDED)
        until = self._clock.monotonic() + MOST_SECONDS
        for table in planned if force else self._turns(planned):
            try:
                self._clean_up(table, force=force)
            except (*CLEANUP_ERRORS, TableError) as error:
                log.warning(CLEANUP_REFUSED, table=str(table.table), reason=str(error))
            if not force and self._clock.monotonic() > until:
                break

    def _turns(self, planned: Sequence[TablePlan]) -> list[TablePlan]:
        """The tables whose turn it is, longest ago first."""
        now, moved = self._clock.monotonic(), self._moved
        if len(moved) > 2 * len(planned):
            self._forget(
                {at for table in planned for at in (table.folder, *table.partition_folders)}
            )
        due = [
            table
            for table in planned
            if now - moved.get(table.folder, self._begun) >= self._settings.cleanup_seconds
        ]
        return sorted(due, key=lambda table: moved.get(table.folder, self._begun))

    def _forget(self, but: Set[str]) -> None:
        """Folders that are gone."""
        for known in (self._moved, self._due, self._aside):
            for folder in known.keys() - but:
                del known[folder]

    def _clean_up(self, table: TablePlan, *, force: bool) -> None:
        self._moved[table.folder] = self._clock.monotonic()
        for step in table.steps:
            if isinstance(step, CleanUp) and (self._is_group(step) or force):
                self._make_durable(table.path)
                self._move(step)
        now, retention = self._clock.now(), self._settings.retention
        for location in (table.folder, *table.partition_folders):
            if force or now >= self._due.get(location, now):
                removed, due = cleanup.sweep(self._store, location, now, retention, self._reached)
                if removed:
                    self._aside.pop(location, None)  # counted again before the next group
                self._due[location] = min(max(due, now + retention / SLACK), now + LOOK_AGAIN)

    def _is_group(self, step: CleanUp) -> bool:
        if step.folder not in self._aside:
            location = f"{step.folder}/{layout.CLEANUP}"
            self._aside[step.folder] = len(self._store.list(location).files)
        return len(step.files) >= min(self._aside[step.folder] // GROUP, MOST_WAITING)

    def _make_durable(self, path: str) -> None:
        """Once for each table: a process before this one may have been killed between a commit and
        making it durable, and the files that are moved are applied in it."""
        if path not in self._durable:
            batch = self._engine.progress(path).batch
            if batch is not None:
                self._engine.make_durable(path, batch.version)
            self._durable.add(path)

    def _move(self, step: CleanUp) -> None:
        for file in cleanup.move(self._store, step.folder, step.files, self._clock.now()):
            self._aside[step.folder] += 1
            self._scanner.forget(file.path)
            self._reached(CrashPoint.CLEANUP_MOVED_ONE)
        self._reached(CrashPoint.CLEANUP_DONE)
