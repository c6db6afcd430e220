"""What is done with files after their commit: their names recorded, then they are moved aside."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from mirrorlake.landing import cleanup
from mirrorlake.landing.cleanup import UNTIDY
from mirrorlake.landing.scan import Scanner
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.mirror.processed import Followers
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import CleanUp, TablePlan
from mirrorlake.model.seams import Clock, Point, Probe
from mirrorlake.storage.store import Store

log = structlog.get_logger()

CLEANUP_REFUSED = "cleanup_refused"


class Tidying:
    """Keeps the folders of one zone tidy, in groups: it costs less."""

    def __init__(
        self,
        store: Store,
        scanner: Scanner,
        followers: Followers,
        engine: MirrorEngine,
        settings: MirrorSettings,
        clock: Clock,
        probe: Probe,
    ) -> None:
        self._store, self._scanner, self._followers = store, scanner, followers
        self._engine, self._settings, self._clock, self._probe = engine, settings, clock, probe
        self._moved = clock.monotonic()

    def do(self, planned: Sequence[TablePlan], *, force: bool = False) -> None:
        """Record names; move applied files aside, if it is time for it, and remove what has been
        aside long enough."""
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
        for place in (table.folder, *table.places):
            cleanup.expire(self._store, place, self._clock.now(), self._settings.retention)

    def _move(self, step: CleanUp) -> None:
        for file in cleanup.move(self._store, step.folder, step.files, self._clock.now()):
            self._scanner.forget(file.path)
            self._probe(Point.CLEANUP_MOVED_ONE)
        self._probe(Point.CLEANUP_DONE)
