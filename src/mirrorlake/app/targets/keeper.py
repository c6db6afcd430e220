"""Keeps the tables up to date that a project builds from change feeds, beside the apply loop.

A target that stops says why, once, and is tried again; nothing else stops with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog

from mirrorlake.app.landed_files import LandedFiles
from mirrorlake.app.stores import store_of
from mirrorlake.app.targets.change_log import ChangeLog, ChangeLogSource
from mirrorlake.app.targets.functions import TargetLocation, build_of
from mirrorlake.app.targets.names import is_unclear, named_targets
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.workspace import Unreachable
from mirrorlake.errors import MirrorlakeError
from mirrorlake.feed.targets.build import BuildRequest, TargetBuilder, TargetReport
from mirrorlake.feed.targets.settings import ChangeLogSettings, TargetSettings
from mirrorlake.feed.targets.target import TargetTable
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook
from mirrorlake.model.table import TableId
from mirrorlake.root import STATE, delta_path
from mirrorlake.storage.store import Store

log = structlog.get_logger()

TARGET_BUILT = "target_built"
TARGET_STOPPED = "target_stopped"

ERRORS = f"{STATE}/target-errors.json"
POLL = 0.5
"""Seconds between two looks at the logs of sources."""

AGAIN = 30.0
"""Seconds until a target that stopped is tried again."""

LEAVE = 2.0
"""Seconds for which the end of a run waits for what is under way."""


@dataclass(slots=True)
class _OpenTarget:
    """A target. seen: the version of its source when it was brought up to date; due: when it is
    tried again after an error, by the monotonic clock."""

    settings: TargetSettings
    source: TableLog
    build: Callable[[BuildRequest], list[TargetReport]]
    seen: int = -1
    due: float = 0.0
    error: MirrorlakeError | None = field(default=None)


class TargetKeeper:
    """The targets of one project."""

    def __init__(self, project: Project, clock: Clock, reached: CrashHook) -> None:
        self._store, self._clock = store_of(project), clock
        self._project, self._reached = project, reached
        self._targets = [self._of(one) for one in named_targets(project)]

    def _of(self, settings: TargetSettings) -> _OpenTarget:
        project, reached = self._project, self._reached
        source, target = (
            location_of_table(self._store, project, table)
            for table in (settings.table, settings.target)
        )
        if isinstance(settings.options, ChangeLogSettings):
            build = _change_log(project, settings.table, source, target, reached)
        else:
            build = build_of(source, target, settings.options, reached)
        return _OpenTarget(settings, TableLog(source.location, source.options), build)

    def once(self) -> dict[TableId, MirrorlakeError]:
        """Bring all of them up to date. Returns why targets stopped, by name."""
        self._name()
        for one in self._targets:
            self._keep(one)
        return {one.settings.target: one.error for one in self._targets if one.error}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep them up to date for as long as this lasts, in a thread."""
        if not self._targets:
            yield
            return
        ended = threading.Event()

        def work() -> None:
            while not ended.wait(POLL):
                self.once()

        thread = threading.Thread(target=work, daemon=True, name="targets")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(LEAVE)

    def _name(self) -> None:
        """Find tables that have come since, and that have their names without quotes."""
        if all(not is_unclear(one.settings) or one.seen >= 0 for one in self._targets):
            return
        for number, settings in enumerate(named_targets(self._project)):
            if settings != self._targets[number].settings:
                self._targets[number] = self._of(settings)

    def _keep(self, one: _OpenTarget) -> None:
        if one.error is not None and self._clock.monotonic() < one.due:
            return
        try:
            version = one.source.snapshot().version
            if version < 0 or (version == one.seen and one.error is None):
                return
            reports = one.build(BuildRequest(from_latest=one.settings.from_latest))
        except MirrorlakeError as error:
            self._stopped(one, error)
        except (BrokenLog, OSError, Unreachable) as error:
            said = f"the log of its source cannot be read: {type(error).__name__}"
            self._stopped(one, MirrorlakeError(said, where=str(one.settings.table)))
        else:
            one.seen = reports[-1].covered
            for report in (report for report in reports if report.commits):
                log.info(TARGET_BUILT, target=str(one.settings.target), **report.counts())
            self._note(one, None)

    def _stopped(self, one: _OpenTarget, error: MirrorlakeError) -> None:
        one.due = self._clock.monotonic() + AGAIN
        if str(error) != str(one.error):
            log.error(
                TARGET_STOPPED,
                target=str(one.settings.target),
                table=str(one.settings.table),
                code=error.code,
                hint=error.hint,
            )
        self._note(one, error)

    def _note(self, one: _OpenTarget, error: MirrorlakeError | None) -> None:
        """Store what stops targets, for `status`, whenever that changes."""
        is_same = str(one.error) == str(error)
        one.error = error
        if not is_same:
            facts = {str(k.settings.target): k.error.facts() for k in self._targets if k.error}
            self._store.replace(ERRORS, json.dumps(facts).encode())


def _change_log(
    project: Project,
    table: TableId,
    source: TargetLocation,
    target: TargetLocation,
    reached: CrashHook,
) -> Callable[[BuildRequest], list[TargetReport]]:
    files = LandedFiles(project, table)
    changes = ChangeLogSource(source.location, source.options, files)
    opened = TargetTable(target.location, target.options, reached)
    builder = TargetBuilder(changes, opened, ChangeLog(changes))
    return lambda request: [builder.build(request)]


def location_of_table(store: Store, project: Project, table: TableId) -> TargetLocation:
    """Where the table of a name lies."""
    path = delta_path(table, project.mirror.default_schema)
    return TargetLocation(store.location(path), store.options(path))


def errors(store: Store) -> dict[str, dict[str, Any]]:
    """What stops targets, by name, as it was stored last."""
    try:
        found = json.loads(store.read(ERRORS))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
