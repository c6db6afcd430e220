"""Which table is vacuumed now: each at most once a day, one between two batches (LZ-263).

A table is not vacuumed while that would take away changes that a subscription has not read yet,
unless the time is over for which it waits (CF-187).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

import structlog

from mirrorlake import root
from mirrorlake.app.maintenance.dates import Dates
from mirrorlake.app.maintenance.position_maps import keep_positions
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import MirrorlakeError, TableError
from mirrorlake.feed.subscriptions.record import Subscriptions
from mirrorlake.feed.subscriptions.retention import Retention, needed_versions
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.model.clock import Clock
from mirrorlake.storage.store import Store

log = structlog.get_logger()

TABLE_VACUUMED = "table_vacuumed"
VACUUM_FAILED = "vacuum_failed"
VACUUM_HELD = "vacuum_held"
SUBSCRIPTION_CUT_OFF = "subscription_cut_off"
PATH = f"{root.STATE}/vacuumed.json"
INTERVAL = timedelta(days=1)
EVERY = 60.0
"""Seconds between two looks at most."""


class Vacuums:
    """Remembers when each table was vacuumed, across processes. retention: None for never; hold:
    age up to which files are left for a subscription that needs them."""

    def __init__(
        self,
        store: Store,
        engine: MirrorEngine,
        clock: Clock,
        retention: timedelta | None,
        hold: timedelta = timedelta(),
    ) -> None:
        self._store, self._hold = store, hold
        self._done, self._engine, self._clock = Dates(store, PATH), engine, clock
        self._retention = retention
        self._looked = clock.monotonic() - EVERY

    def next(self, paths: Iterable[str], known: Collection[str]) -> str | None:
        """The table that waits longest, if any is due and it is time to look. It counts as done.

        paths: those that may be vacuumed now; known: those of all tables, the others are forgotten.
        """
        if self._clock.monotonic() - self._looked < EVERY:
            return None
        self._looked = self._clock.monotonic()
        due = self._due(paths, known)
        return self._begun(due[0]) if due else None

    def all(
        self, paths: Iterable[str], known: Collection[str], before_commit: Callable[[], None]
    ) -> None:
        """Vacuum every table that is due."""
        for path in self._due(paths, known):
            self.vacuum(self._begun(path), before_commit)

    def _due(self, paths: Iterable[str], known: Collection[str]) -> list[str]:
        """The tables to vacuum, longest ago first. A day begins for those not seen before, and goes
        on while a table is held by something else."""
        if self._retention is None:
            return []
        done, now = self._done.read(), self._clock.now()
        wanted, kept = list(paths), set(known)
        begun = dict.fromkeys(wanted, now) | {p: date for p, date in done.items() if p in kept}
        if begun != done:
            self._done.write(begun)
        due = [path for path in wanted if now - begun[path] >= INTERVAL]
        return sorted(due, key=lambda path: begun[path])

    def vacuum(self, path: str, before_commit: Callable[[], None]) -> None:
        """Vacuum a table, in any thread, unless a subscription needs what it would remove."""
        assert self._retention is not None
        keep_positions(self._store, path)  # a table with few commits gets no checkpoint for long
        if self._is_held(path):
            return
        try:
            self._engine.vacuum(path, self._retention, before_commit)
        except TableError as error:
            log.warning(VACUUM_FAILED, path=path, code=error.code, hint=error.hint)
        else:
            log.info(TABLE_VACUUMED, path=path)

    def _is_held(self, path: str) -> bool:
        now = self._clock.now()
        try:
            records = Subscriptions(self._store).of_table(path)
            if not records:
                return False
            retention = Retention(self._retention, self._hold)
            log_ = TableLog.below(self._store, path)
            needed = needed_versions(log_, records, retention)
        except (MirrorlakeError, OSError, BrokenLog) as error:
            # Who reads is not known, so nothing is taken away.
            log.warning(VACUUM_HELD, path=path, subscriptions=None, reason=type(error).__name__)
            return True
        for one in needed:
            if one.is_cut_off(now):
                log.warning(
                    SUBSCRIPTION_CUT_OFF,
                    path=path,
                    subscription=one.subscription,
                    version=one.version,
                )
        held = [one for one in needed if one.is_held(now)]
        if held:
            names = [one.subscription for one in held]
            until = max(one.ends for one in held).isoformat()
            log.warning(VACUUM_HELD, path=path, subscriptions=names, until=until)
        return bool(held)

    def _begun(self, path: str) -> str:
        # Before the act: a table that cannot be vacuumed is not tried again in each round.
        self._done.write(self._done.read() | {path: self._clock.now()})
        return path
