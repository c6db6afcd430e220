"""What an apply loop shows of itself, seldom enough to cost nothing: status files, operation log.

Both follow from what the loop has planned and done, and from what the tables record; whoever loses
them loses nothing. A monitor that cannot write does not stop the mirror.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import structlog

from mirrorlake.app.loop.report import TableReport
from mirrorlake.app.status import status_files
from mirrorlake.app.status.operation_log import Item, LoggedOperation, OperationLog
from mirrorlake.app.status.outage import outage_of
from mirrorlake.app.status.table_status import View, tables_of
from mirrorlake.app.status.table_status_file import entry
from mirrorlake.apply.logs.processed_names import ProcessedNames
from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.source_state import Outage
from mirrorlake.landing import zone_id
from mirrorlake.landing.file_identity import Tails
from mirrorlake.landing.scan import Scanner, TableScan
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles, TablePlan
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

MONITORING_FAILED = "monitoring_failed"
EVERY = 5.0
"""Seconds between two writings at most, and between two heartbeats."""

LOOK_EVERY = 1.0
"""Seconds between two looks whether the source answers; when that changes it is written at once."""

_BEGINS = {
    TableState.SNAPSHOTTING: LoggedOperation.START_SNAPSHOTTING,
    TableState.REPLICATING: LoggedOperation.START_REPLICATING,
    TableState.RESEEDING: LoggedOperation.START_RESEEDING,
}


class Monitor:
    """Follows one apply loop. progress: the state of the table at a path; followers: of the loop,
    which remember the names of files for it."""

    def __init__(
        self,
        store: Store,
        scanner: Scanner,
        settings: MirrorSettings,
        clock: Clock,
        progress: Callable[[str], Progress],
        followers: ProcessedNames,
        name: str = "",
        source: str = "GenericMirror",
        reached: CrashHook = no_crash,
    ) -> None:
        self._store, self._scanner, self._settings, self._clock = store, scanner, settings, clock
        self._progress, self._followers = progress, followers
        self._name, self._source, self._reached = name, source, reached
        self._log: OperationLog | None = None
        self._id = ""
        self._tails = Tails(store)
        self._states: dict[TableId, TableState] = {}
        self._added: set[TableId] = set()
        self._errors: dict[TableId, str] = {}
        self._written = clock.monotonic() - EVERY
        self._shown = b""
        self._looked = self._written
        self._outage: Outage | None = None

    def open(self) -> None:
        self._id = zone_id.mirror_id(self._store)
        self._log = OperationLog(self._store, self._clock, Item(self._id, self._name, self._source))

    def begun(self, planned: Sequence[TablePlan]) -> None:
        """Log the tables that go over to another state, before anything is applied in it."""
        for table in planned:
            if table.state is not self._states.get(table.table) and table.state in _BEGINS:
                self._add(_BEGINS[table.state], table.table)
            self._states[table.table] = table.state

    def failed(self, reports: Iterable[TableReport]) -> None:
        """Log the tables that have an error, once for each."""
        for report in reports:
            said = str(report.error) if report.error else ""
            if report.error and said != self._errors.get(report.table):
                self._add(LoggedOperation.FAIL_TABLE, report.table, error=report.error)
            if report.error:
                self._states[report.table] = TableState.FAILED
            self._errors[report.table] = said

    def added(self, table: TableId) -> None:
        """Log a table that is being created, once, however often its first batch is tried."""
        if table not in self._added:
            self._added.add(table)
            self._add(LoggedOperation.ADD_TABLE, table)

    def altered(self, table: TableId) -> None:
        self._add(LoggedOperation.REPLICATING_SCHEMA, table)

    def applied(self, step: ApplyFiles, outcome: Applied, begun: datetime) -> None:
        self._added.discard(step.table)
        loading = self._states.get(step.table) is TableState.SNAPSHOTTING
        counts = outcome.counts
        late = self._clock.now() - step.evidence.source_time if step.evidence.source_time else None
        self._add(
            LoggedOperation.SNAPSHOTTING if loading else LoggedOperation.REPLICATING,
            step.table,
            begun=begun,
            rows=counts.insert + counts.update + counts.delete,
            size=step.evidence.landed_bytes,
            latency=max(late.total_seconds(), 0.0) if late is not None else None,
        )

    def removed(self, table: TableId) -> None:
        self._add(LoggedOperation.REMOVE_TABLE, table)
        self._added.discard(table)
        self._states.pop(table, None)
        self._errors.pop(table, None)

    def show(self, scans: Sequence[TableScan], reports: Iterable[TableReport]) -> None:
        """Write what has changed, if it is time for it, and a heartbeat."""
        now = self._clock.monotonic()
        if self._log is None or (now - self._written < EVERY and not self._look(now)):
            return
        self._written = now
        self._write(scans, reports, is_running=True)

    def close(self, scans: Sequence[TableScan], reports: Iterable[TableReport]) -> None:
        """The mirror stops, and with it every table that has not failed (LZ-295)."""
        if self._log is None:
            return
        for table, state in self._states.items():
            if state is not TableState.FAILED:
                self._add(LoggedOperation.STOP_TABLE, table)
        self._write(scans, reports, is_running=False)

    def _look(self, now: float) -> bool:
        """Look whether the source answers. Returns whether that has changed."""
        if now - self._looked < LOOK_EVERY:
            return False
        before, self._looked = self._outage, now
        self._outage = outage_of(self._store, self._clock.now())
        return self._outage != before

    def _add(self, operation: LoggedOperation, table: TableId, **facts: Any) -> None:
        if self._log is not None:
            self._log.add(operation, table, **facts)

    def _halted(self) -> Mapping[str, Mapping[str, Any]]:
        """The tables that are no longer captured; whatever others write there stops no monitor."""
        try:
            return Records(self._store, self._scanner.zone()).failed()
        except UNREADABLE:
            return {}

    def _write(
        self, scans: Sequence[TableScan], reports: Iterable[TableReport], *, is_running: bool
    ) -> None:
        assert self._log is not None
        now = self._clock.now()
        view = View(
            self._store,
            self._settings,
            self._scanner,
            self._followers,
            now,
            self._tails,
            is_fed=False,
            with_feed=False,  # which reads the log, and is in no status file
            is_running=is_running,
        )
        try:
            found = tables_of(
                view,
                scans,
                lambda path, _table: self._progress(path),
                {str(report.table): entry(report) for report in reports},
                self._halted(),
            )
            content = status_files.tables(found, self._id)
            if content != self._shown:
                self._store.replace(status_files.TABLES, content)
                self._shown = content
                self._reached(CrashPoint.STATUS_WRITTEN)
            status = "Running" if is_running else "Stopped"
            wrong = ("source_unavailable", str(self._outage)) if self._outage else ("", "")
            status_files.write_replicator(self._store, status, now, *wrong)
            self._log.flush()
        except (OSError, UnsafePath) as error:
            log.warning(MONITORING_FAILED, reason=type(error).__name__)
