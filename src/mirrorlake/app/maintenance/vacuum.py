"""Which table is vacuumed now: each at most once a day, one between two batches (LZ-263).

A table is not vacuumed while that would take away changes that a reader has not read yet, unless
the time is over for which it waits (CF-187). How long the table itself says that it keeps files and
commits follows from that: the setting, and more while a reader holds them (CF-186, CF-188). Until
it says so, its log is not cleaned either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from mirrorlake import root
from mirrorlake.app.maintenance.dates import Dates
from mirrorlake.app.maintenance.position_maps import keep_positions
from mirrorlake.delta.log.retention import FILES, LOG, RetentionTimes
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.errors import MirrorlakeError, TableError
from mirrorlake.feed.subscriptions.record import Subscriptions
from mirrorlake.feed.subscriptions.retention import (
    FeedReader,
    NeededVersion,
    Retention,
    changed_properties,
    needed_versions,
)
from mirrorlake.mirror.engine import MirrorEngine
from mirrorlake.model.clock import Clock
from mirrorlake.storage.store import Store

log = structlog.get_logger()

TABLE_VACUUMED = "table_vacuumed"
VACUUM_FAILED = "vacuum_failed"
VACUUM_HELD = "vacuum_held"
LOG_HELD = "log_held"
SUBSCRIPTION_CUT_OFF = "subscription_cut_off"
RETENTION_CHANGED = "retention_changed"
PATH = f"{root.STATE}/vacuumed.json"
INTERVAL = timedelta(days=1)
EVERY = 60.0
"""Seconds between two looks at most."""
LOOKED = 3_600.0
"""Seconds, at most, for which the log of a table may be cleaned after a look at its readers: much
less than the margin by which they are held early, if the log is kept for days."""

ReadersOf = Callable[[str], Sequence[FeedReader]]
"""Who reads the feed of the table at a path, beside its subscriptions."""

BuiltPaths = Callable[[], Sequence[str]]
"""The paths of the tables that are built from change feeds."""

LEAST_BUILT = timedelta(days=1)
"""The least retention of tables that are built from change feeds. Nothing holds up their builders
while they are vacuumed, so it must be longer than a build takes."""


def no_readers(_path: str) -> Sequence[FeedReader]:
    return ()


def no_targets() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True)
class VacuumOutcome:
    """held_by: the readers for which files were left, None where the readers are unknown; error:
    why it failed."""

    held_by: tuple[str, ...] | None = ()
    error: TableError | None = None


class Vacuums:
    """Remembers when each table was vacuumed, across processes. retention: None for never; hold:
    age up to which files are left for a reader that needs them; built: the tables that are built
    from change feeds, which are vacuumed too."""

    def __init__(
        self,
        store: Store,
        engine: MirrorEngine,
        clock: Clock,
        retention: timedelta | None,
        hold: timedelta = timedelta(),
        readers: ReadersOf = no_readers,
        built: BuiltPaths = no_targets,
    ) -> None:
        self._store, self._readers, self._built = store, readers, built
        self._times = Retention(retention, hold)
        self._done, self._engine, self._clock = Dates(store, PATH), engine, clock
        self._retention = retention
        self._looked = clock.monotonic() - EVERY
        self._cleanable: dict[str, float] = {}  # until when, by path

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
        if self._retention is None and self._times.hold <= RetentionTimes().log:
            return []
        done, now = self._done.read(), self._clock.now()
        built = self._built()
        wanted, kept = [*paths, *built], {*known, *built}
        # A date in the future is of a clock that was set back since.
        before = {path: min(date, now) for path, date in done.items() if path in kept}
        begun = dict.fromkeys(wanted, now) | before
        if begun != done:
            self._done.write(begun)
        due = [path for path in wanted if now - begun[path] >= INTERVAL]
        return sorted(due, key=lambda path: begun[path])

    @property
    def is_on(self) -> bool:
        return self._retention is not None

    def now(self, path: str, before_commit: Callable[[], None]) -> VacuumOutcome:
        """Vacuum a table whether it is due or not; its next day begins."""
        return self.vacuum(self._begun(path), before_commit)

    def vacuum(self, path: str, before_commit: Callable[[], None]) -> VacuumOutcome:
        """Vacuum a table, in any thread, unless a reader needs what it would remove. Without a
        retention of vacuum only the log is kept for readers."""
        keep_positions(self._store, path)  # a table with few commits gets no checkpoint for long
        try:
            table = TableLog.below(self._store, path)
            held_by = self._held_by(path, table)
            self._set_properties(path, table, before_commit, is_held=bool(held_by))
        except (MirrorlakeError, OSError, BrokenLog) as error:
            # Who reads is not known, or the table cannot say it: so nothing is taken away.
            log.warning(VACUUM_HELD, path=path, subscriptions=None, reason=type(error).__name__)
            return VacuumOutcome(None)
        if held_by or self._retention is None:
            return VacuumOutcome(held_by)
        try:
            retention = self._retention
            if path in self._built():
                retention = max(retention, LEAST_BUILT)
            self._engine.vacuum(path, retention, before_commit)
        except TableError as error:
            log.warning(VACUUM_FAILED, path=path, code=error.code, hint=error.hint)
            return VacuumOutcome(error=error)
        log.info(TABLE_VACUUMED, path=path)
        return VacuumOutcome()

    def may_clean_log(self, path: str) -> bool:
        """Whether the log of a table may be cleaned now: what it says of positions is kept, and no
        reader needs what it would forget before the table says that it keeps it."""
        keep_positions(self._store, path)
        now = self._clock.monotonic()
        if now < self._cleanable.get(path, now):
            return True
        try:
            needed = self._needed(path, TableLog.below(self._store, path))
        except (MirrorlakeError, OSError, BrokenLog) as error:
            log.warning(LOG_HELD, path=path, subscriptions=None, reason=type(error).__name__)
            return False
        moment = self._clock.now()
        names = [one.reader for one in needed if one.is_held_in_log(moment)]
        if names:
            log.warning(LOG_HELD, path=path, subscriptions=names)
            return False
        # Where the log keeps commits for an hour or so, one may be due to be held before the next.
        coming = [one.forgotten - moment for one in needed if one.forgotten > moment]
        seconds = min((time.total_seconds() for time in coming), default=LOOKED)
        self._cleanable[path] = now + min(seconds, LOOKED)
        return True

    def preview(self, path: str) -> VacuumOutcome:
        """What `vacuum` would come to now, unless it fails. Changes nothing."""
        now = self._clock.now()
        try:
            needed = self._needed(path, TableLog.below(self._store, path))
        except (MirrorlakeError, OSError, BrokenLog):
            return VacuumOutcome(None)
        return VacuumOutcome(tuple(one.reader for one in needed if one.is_held(now)))

    def _held_by(self, path: str, table: TableLog) -> tuple[str, ...]:
        now = self._clock.now()
        needed = self._needed(path, table)
        for one in needed:
            if one.is_cut_off(now):
                log.warning(
                    SUBSCRIPTION_CUT_OFF,
                    path=path,
                    subscription=one.reader,
                    version=one.version,
                )
        held = [one for one in needed if one.is_held(now)]
        names = tuple(one.reader for one in held)
        if held:
            until = max(one.ends for one in held).isoformat()
            log.warning(VACUUM_HELD, path=path, subscriptions=list(names), until=until)
        return names

    def _needed(self, path: str, table: TableLog) -> list[NeededVersion]:
        records = Subscriptions(self._store).of_table(path)
        readers = [*map(FeedReader.of, records), *self._readers(path)]
        return needed_versions(table, readers, self._times) if readers else []

    def _set_properties(
        self, path: str, table: TableLog, before_commit: Callable[[], None], *, is_held: bool
    ) -> None:
        snapshot = table.snapshot()
        if not snapshot.exists:
            return
        changed = changed_properties(snapshot.properties, self._times, is_held=is_held)
        if changed:
            before_commit()
            self._engine.set_properties(path, changed)
            log.info(RETENTION_CHANGED, path=path, files=changed.get(FILES), log=changed.get(LOG))

    def _begun(self, path: str) -> str:
        # Before the act: a table that cannot be vacuumed is not tried again in each round.
        self._done.write(self._done.read() | {path: self._clock.now()})
        return path
