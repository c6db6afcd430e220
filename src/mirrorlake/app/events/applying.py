"""Applies the event files of a project, once or until it is stopped.

Needs no JVM, unless Spark is to apply large batches.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

import structlog

from mirrorlake.app.loop.report import ApplyReport, TableReport
from mirrorlake.app.loop.watcher import Watcher
from mirrorlake.app.own_root import check_root
from mirrorlake.app.status import ended
from mirrorlake.app.stores import StorePlaces, event_store_of, store_of
from mirrorlake.apply.events.batches.spread import EventSpread
from mirrorlake.apply.events.batches.tasks import EventPlaces
from mirrorlake.apply.events.consumer import EventConsumer
from mirrorlake.apply.events.journal import FileJournals, ReadFile
from mirrorlake.apply.events.listing import EventFiles
from mirrorlake.apply.events.remembered.state import FOLDER, states
from mirrorlake.apply.events.remembered.waiting import WaitingDeletions, waiting_deletions
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.apply.runner import Runner
from mirrorlake.config import Project
from mirrorlake.delta.workspace import Unreachable
from mirrorlake.errors import (
    MirrorlakeError,
    SparkUnavailable,
    StorageUnavailable,
    TableError,
    Unavailable,
)
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook
from mirrorlake.model.table import TableId
from mirrorlake.root import delta_path
from mirrorlake.sources.base import REACHABLE, CheckResult, CheckSeverity
from mirrorlake.storage.lease import Lease, renewed

log = structlog.get_logger()

EVENTS_WAIT = "events_wait"
EVENTS_STOPPED = "events_stopped"

ERRORS = f"{FOLDER}/errors.json"
VACUUM = timedelta(days=1)
"""How often data files are removed that no version needs."""


class EventApplier:
    """The tables of one project that are made of event files.

    runner: returns a runner whose tasks apply large batches; None to apply them in this process.
    keeps_changes: whether commits keep every change of keys that they change several times.
    """

    def __init__(
        self,
        project: Project,
        clock: Clock,
        stop: threading.Event,
        reached: CrashHook,
        runner: Callable[[], Runner] | None = None,
        *,
        keeps_changes: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        assert project.events is not None
        self._project = project
        self._settings = replace(project.events, keeps_changes=keeps_changes)
        self._clock, self._stop, self._reached = clock, stop, reached
        self._store = store_of(project)
        self._lease = Lease(self._store, ended.MIRROR, clock)
        self._spread = None if runner is None else EventSpread(runner, self._places())
        self._vacuumed = clock.now()
        self._watcher = watcher or Watcher()
        self.report = ApplyReport()

    def check(self) -> list[CheckResult]:
        """Whether the files can be listed. Raises UsageError for a root inside another one."""
        check_root(self._project, self._store)
        where = self._settings.described
        try:
            store = event_store_of(self._settings)
            listing = EventFiles(store, self._settings).listed(store, self._settings.path)
        except OSError as error:
            message = f"{where} cannot be listed: {error.strerror or type(error).__name__}"
            hint = "Check the place and the credentials in the environment."
            return [CheckResult(REACHABLE, CheckSeverity.ERROR, message, hint)]
        if not listing.files and not listing.folders:
            message = f"{where} is empty, or not there"
            hint = "Check source.url and source.path, unless it is filled later."
            return [CheckResult(REACHABLE, CheckSeverity.WARNING, message, hint)]
        return [CheckResult(REACHABLE, CheckSeverity.OK, f"{where} can be listed")]

    def once(self) -> ApplyReport:
        """Apply the files that are there when this is called. Raises LeaseHeld, Unavailable."""
        with self._consuming() as consumer:
            self._begin()
            self._cycle(consumer)
        return self.report

    def replay(self) -> ApplyReport:
        """Read the files with dead letters again, and drop those of files that are gone (ST-254).
        Raises LeaseHeld, Unavailable."""
        with self._consuming() as consumer, storage_errors(self._settings.described):
            self.report.gone_files = consumer.drop_gone()
            consumer.replay()
        return self.report

    def run(self) -> ApplyReport:
        """Apply files until `stop` is set; a storage that does not answer is waited for."""
        with self._consuming() as consumer:
            self._begin()
            waits = ""
            while not self._stop.is_set():
                try:
                    self._cycle(consumer)
                    self._vacuum()
                    waits = ""
                except SparkUnavailable:
                    raise  # its session has ended, and cannot be started again in this process
                except Unavailable as error:
                    if str(error) != waits:
                        log.warning(EVENTS_WAIT, reason=error.what, hint=error.hint)
                    waits = str(error)
                self._clock.sleep(self._settings.poll_seconds)
        return self.report

    # -- what the consumer reports --------------------------------------------------------------

    def applied(
        self, table: TableId, done: EventTableReport, files: int, held: TableError | None
    ) -> None:
        """A batch is in its table. held: why other events of it are not."""
        known = self._known(table)
        self._watcher.found({table: 0})
        self._watcher.events_applied(done.counts)
        self.report.tables[table] = replace(
            known,
            version=done.version,
            last_file=int(known.last_file) + files,
            inserts=known.inserts + done.counts.insert,
            updates=known.updates + done.counts.update,
            deletes=known.deletes + done.counts.delete,
            commits=known.commits + done.commits,
            error=held,
        )
        if str(known.error) != str(held):
            self._note()

    def stopped(self, table: TableId, error: TableError) -> None:
        """A table stops; it is said once."""
        known = self._known(table)
        self._watcher.found({table: 0})
        if str(known.error) != str(error):
            log.error(EVENTS_STOPPED, table=str(table), code=error.code, hint=error.hint)
        self.report.tables[table] = replace(known, error=error)
        self._note()

    def _known(self, table: TableId) -> TableReport:
        return self.report.tables.get(table) or TableReport(table, delta_path(table, None))

    def _note(self) -> None:
        """Store what stops tables, for `status`."""
        errors = {str(table): error.facts() for table, error in self._errors().items()}
        self._store.replace(ERRORS, json.dumps(errors).encode())

    def _errors(self) -> dict[TableId, TableError]:
        return {table: one.error for table, one in self.report.tables.items() if one.error}

    def _begin(self) -> None:
        """Tell the watcher which tables there are."""
        with storage_errors(str(self._project.root)):
            known = states(self._store)
        counts = {table: state.counts for table, state in known.items()}
        self._watcher.found(
            {table: one.insert + one.update + one.delete for table, one in counts.items()}
        )
        self._watcher.begun(self.report)

    # -- parts ----------------------------------------------------------------------------------

    @contextmanager
    def _consuming(self) -> Iterator[EventConsumer]:
        """The consumer, with the right to write."""
        check_root(self._project, self._store)
        self._lease.take()
        try:
            self._store.delete(ERRORS)
            yield EventConsumer(
                self._store,
                event_store_of(self._settings),
                self._settings,
                self._clock,
                self,
                reached=self._reached,
                check=self._lease.check,
                ended=self._stop.is_set,
                spread=self._spread,
            )
        finally:
            with suppress(MirrorlakeError, OSError):
                self._lease.release()

    def _places(self) -> EventPlaces:
        source = partial(event_store_of, self._settings)
        return EventPlaces(source, StorePlaces.of(self._project).open, self._settings)

    def _cycle(self, consumer: EventConsumer) -> None:
        self._lease.check()
        with renewed(self._lease), storage_errors(self._settings.described):
            consumer.cycle()
        if not self._stop.is_set():
            self._watcher.caught_up()

    def _vacuum(self) -> None:
        """Remove data files that no version of the retention needs (LZ-263)."""
        retention = self._project.mirror.vacuum
        if retention is None or self._clock.now() - self._vacuumed < VACUUM:
            return
        self._vacuumed = self._clock.now()
        for table in self.report.tables.keys() - self._errors().keys():
            with storage_errors(str(table)):
                LogTables(self._store).vacuum(delta_path(table, None), retention, self._lease.check)


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """A storage that does not answer, as an error of ours."""
    try:
        yield
    except (OSError, Unreachable) as error:
        failed = error if isinstance(error, OSError) else error.__cause__
        why = str(error)
        if isinstance(error, OSError):
            why = error.strerror or type(error).__name__
        known = StorageUnavailable.of(failed) if isinstance(failed, OSError) else None
        raise known or Unavailable(
            f"the storage does not answer: {why}",
            where=where,
            hint="Check the place and the credentials in the environment. It is tried again.",
        ) from error


def dead_letters(project: Project) -> list[ReadFile]:
    """The files of which events, or all of them, could not be applied (ST-253)."""
    return FileJournals(store_of(project)).read().dead


def deletions_that_wait(project: Project) -> list[WaitingDeletions]:
    """The deletions that wait for the event with their key, by table (ST-230)."""
    return waiting_deletions(store_of(project))
