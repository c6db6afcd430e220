"""Capture as a whole: takes the lease, finds or makes its place in the log, loads, streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace

import structlog

from mirrorlake import root
from mirrorlake.capture import members, table_positions
from mirrorlake.capture.load import Loader, LoadProgress
from mirrorlake.capture.loop import CaptureLoop
from mirrorlake.capture.record import Records, StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.strict import Strict
from mirrorlake.capture.table_positions import TablePosition
from mirrorlake.errors import (
    PrerequisiteMissing,
    SourceGap,
    SourceUnavailable,
    TableError,
    UnsupportedTable,
)
from mirrorlake.landing import publish
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.position import LogPoint
from mirrorlake.model.seams import Clock, CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import ChangeStream, Established, Finding, Severity, Snapshot, Source
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.lease import Lease
from mirrorlake.storage.store import Store

log = structlog.get_logger()

CAPTURE_STARTED = "capture_started"
TABLE_LOADED = "table_loaded"
FINDING = "source_finding"
STREAM_INTERRUPTED = "stream_interrupted"
APPEND_ONLY = "append_only_table"

RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 30.0


class Capture:
    """Lands the changes of one source in one zone. Not for several threads."""

    def __init__(
        self,
        source: Source,
        store: Store,
        settings: CaptureSettings,
        clock: Clock,
        *,
        stop: threading.Event | None = None,
        reached: CrashHook = no_crash,
        holder: str | None = None,
        progress: Callable[[LoadProgress], None] = lambda _progress: None,
    ) -> None:
        self._source, self._store, self._settings = source, store, settings
        self._clock, self._reached, self._stop = clock, reached, stop or threading.Event()
        self._zone = root.LANDING
        self._records = Records(store, self._zone)
        self._cuts = Cuts(store, self._zone)
        self._lease = Lease(store, "capture", clock, holder)
        self._progress = progress
        self._tables: list[SourceTable] = []
        self._stream: ChangeStream | None = None
        self._found: set[Finding] = set()  # by the watch, and logged
        self.loop: CaptureLoop | None = None

    # -- life -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Be ready to stream: everything selected is loaded.

        Raises LeaseHeld, PrerequisiteMissing, SourceGap, SourceUnavailable.
        """
        self._lease.take()
        table_positions.flush_zone(self._store, self._zone)
        self._tables = members.captured(self._source, self._records)
        for table in self._tables:
            if table.append_only:
                log.warning(APPEND_ONLY, table=str(table.table), reason=table.append_only)
        record = self._position_in_log()
        self._connect(record)
        self._check_source()
        log.info(CAPTURE_STARTED, stream=record.stream, tables=len(self._tables))

    def once(self) -> None:
        """Land everything that was committed when this was called."""
        target = self._source.current()
        while not self._stop.is_set() and not self._has_reached(target):
            self.step(0.2)
            if self._is_read_to(target):
                self._check_source()
                self._finish()

    def run(self) -> None:
        """Land changes until told to stop. A source that goes away is waited for."""
        watched = self._clock.monotonic()
        pause = RETRY_SECONDS
        while not self._stop.is_set():
            try:
                if self.loop is None:
                    self._reopen()
                self.step(1.0)
                if self._clock.monotonic() - watched >= self._settings.watch_seconds:
                    watched = self._clock.monotonic()
                    self._watch()
                pause = RETRY_SECONDS
            except SourceUnavailable as error:
                log.warning(STREAM_INTERRUPTED, reason=error.what, retry_seconds=pause)
                self._disconnect()
                self._clock.sleep(pause)
                pause = min(pause * 2, MOST_RETRY_SECONDS)
        self._finish()

    def close(self) -> None:
        """Let go of the source and of the lease. What is not published is read again next time."""
        self._disconnect()
        self._source.close()
        self._lease.release()

    # -- the place in the log -------------------------------------------------------------------

    def _position_in_log(self) -> StreamRecord:
        """The stream of this zone, made when the zone is new. Raises SourceGap."""
        identity = self._source.identity()
        record = self._records.stream()
        if record is None:
            objects = self._source.objects
            if objects and (occupant := objects.occupied()):
                raise PrerequisiteMissing(
                    f"{occupant.message}, and this zone did not make it",
                    where=self._store.location(self._zone),
                    hint=occupant.remedy,
                )
            self._check_prerequisites()
            record = StreamRecord.new(identity, objects.intended() if objects else ())
            self._records.write_stream(record)
            self._reached(CrashPoint.STREAM_RECORDED)
        if not record.is_established:
            record = replace(record, source=identity)
            self._records.write_stream(record)
            return self._establish(record)
        _same_source(record, identity)
        self._source.resume(self._landed(record))
        return record

    def _check_prerequisites(self) -> None:
        """Nothing is made in a source that cannot be captured."""
        for finding in self._source.check():
            if finding.severity is Severity.ERROR and finding.table is None:
                raise PrerequisiteMissing(finding.message, where="the source", hint=finding.remedy)

    def _establish(self, record: StreamRecord) -> StreamRecord:
        objects = self._source.objects
        if objects is not None:
            established = objects.establish(self._tables)
        else:
            established = Established(self._source.snapshot(), ())
        try:
            self._reached(CrashPoint.SLOT_CREATED)
            record = replace(record, source=self._source.identity())
            record = record.established(str(established.snapshot.point), established.made)
            self._records.write_stream(record)
            self._reached(CrashPoint.ESTABLISHED)
            self._load(established.snapshot, self._to_load())
        finally:
            established.snapshot.close()
        return record

    def _landed(self, record: StreamRecord) -> LogPoint:
        """Up to where the zone holds everything: the newest cut, else the start of the stream."""
        newest = self._cuts.newest()
        return self._source.parse_point(newest.position if newest else record.start)

    # -- loading --------------------------------------------------------------------------------

    def _to_load(self) -> dict[TableId, tuple[SourceTable, str]]:
        """The selected tables that have no complete load; complete ones are published here."""
        loader, found = self._loader(), {}
        stopped = self._records.stopped()
        for table, folder in self._folders():
            if str(table.table) in stopped:
                continue
            publish.remove_staged(self._store, folder)
            if loader.unfinished(folder):
                loader.finish(folder, table.table)
            elif members.is_new(table.table, folder, self._records):
                found[table.table] = (table, folder)
        return found

    def _load(self, snapshot: Snapshot, tables: dict[TableId, tuple[SourceTable, str]]) -> None:
        record = self._records.stream()
        assert record is not None
        for table, folder in tables.values():
            table_positions.describe(self._store, table, folder, record.source)
        with self._pool() as pool:
            for outcome in self._loader().run(snapshot, tables, pool):
                if isinstance(outcome, TableError):
                    members.stop(self._records, outcome)
                    continue
                log.info(
                    TABLE_LOADED,
                    table=str(outcome.table),
                    rows=outcome.rows,
                    files=outcome.files,
                    position=str(outcome.point),
                )
                self._lease.check()

    def _pool(self) -> Executor:
        if self._settings.load_workers <= 1:
            return _InTurn()
        return ThreadPoolExecutor(self._settings.load_workers, thread_name_prefix="load")

    def _loader(self) -> Loader:
        record = self._records.stream()
        assert record is not None
        return Loader(
            self._store, record.stream, self._settings.load_bytes, self._reached, self._progress
        )

    def _folders(self) -> list[tuple[SourceTable, str]]:
        found = table_positions.folders(self._store, self._zone, self._tables)
        return [(table, found[table.table]) for table in self._tables]

    # -- streaming ------------------------------------------------------------------------------

    def _connect(self, record: StreamRecord) -> None:
        """Load what is missing, then stream from the last acknowledged point."""
        late = self._to_load()
        if late and self._included([table for table, _folder in late.values()]):
            snapshot = self._source.snapshot()
            try:
                self._load(snapshot, late)
            finally:
                snapshot.close()
        strict = None
        if self._settings.strict:
            strict = Strict(self._source, self._store, self._records, record, self._tables)
            strict.remove_staged()
        found = self._table_positions(strict)
        landed = self._landed(record)
        self._stream = self._source.stream([location.table for location in found], landed)
        self.loop = CaptureLoop(
            self._stream,
            self._store,
            record,
            self._records,
            self._cuts,
            found,
            landed,
            self._settings,
            self._clock,
            self._reached,
            strict,
            self._lease.check,
        )

    def _included(self, tables: Sequence[SourceTable]) -> bool:
        """Let the stream carry more tables. If the source cannot, they stop, and no others."""
        objects = self._source.objects
        if objects is None:
            return True
        try:
            objects.include(tables)
        except PrerequisiteMissing as error:
            for table in tables:
                members.stop(
                    self._records,
                    UnsupportedTable(error.what, table=str(table.table), hint=error.hint),
                )
            return False
        return True

    def _table_positions(self, strict: Strict | None) -> list[TablePosition]:
        stopped = self._records.stopped()
        found = []
        for table, folder in self._folders():
            if str(table.table) in stopped:
                continue
            truncated = strict.complete(table, folder) if strict else None
            try:
                found.append(
                    table_positions.find(self._store, self._source, table, folder, truncated)
                )
            except TableError as error:
                members.stop(self._records, error)
        return found

    def _reopen(self) -> None:
        record = self._records.stream()
        assert record is not None
        _same_source(record, self._source.identity())
        self._source.resume(self._landed(record))
        self._tables = members.captured(self._source, self._records)
        self._connect(record)

    def _disconnect(self) -> None:
        if self.loop is not None:
            self.loop.abandon()
            self.loop = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def step(self, wait: float) -> None:
        """Read once from the stream, and publish when it is time."""
        assert self.loop is not None
        self.loop.step(wait)

    def _finish(self) -> None:
        if self.loop is not None:
            self._lease.check()
            self.loop.roll()

    def _has_reached(self, target: LogPoint) -> bool:
        return self.loop is not None and self.loop.position.covers(target)

    def _is_read_to(self, target: LogPoint) -> bool:
        return self.loop is not None and self.loop.is_read_to(target)

    def _watch(self) -> None:
        """Look for what would be lost silently, and for tables that came or went."""
        self._check_source()
        known = {table.table for table in self._tables}
        if {table.table for table in members.captured(self._source, self._records)} != known:
            self._finish()
            self._disconnect()  # the next round loads new tables and streams on

    def _check_source(self) -> None:
        """Look for what would be lost silently. Raises SourceGap; stops single tables."""
        stopped = self._records.stopped()
        streamed = [table for table in self._tables if str(table.table) not in stopped]
        for finding in self._source.watch(streamed):
            if finding.severity is Severity.OK:
                continue
            if finding not in self._found:
                self._found.add(finding)
                about = {"table": str(finding.table)} if finding.table else {}
                log.warning(
                    FINDING,
                    check=finding.check,
                    message=finding.message,
                    hint=finding.remedy,
                    **about,
                )
            if finding.severity is Severity.ERROR and finding.table is None:
                raise SourceGap(finding.message, where="the source", hint=finding.remedy)
            if finding.severity is Severity.ERROR and self.loop is not None:
                error = TableError(finding.message, table=str(finding.table), hint=finding.remedy)
                self.loop.stop_table(finding.table, error)  # type: ignore[arg-type]


def _same_source(record: StreamRecord, identity: Mapping[str, str]) -> None:
    for name, expected in record.source.items():
        if identity.get(name) != expected:
            raise SourceGap(
                f"this zone belongs to another source: its {name} was {expected} and is "
                f"{identity.get(name, 'gone')}",
                where="the source",
                hint="Point source.url at the one it belongs to. If that was restored, replaced or "
                "made again, load the tables anew with `mirrorlake reset --all`.",
            )


class _InTurn(Executor):
    """Runs each piece when it is submitted, on the caller's thread."""

    def submit(self, fn, /, *args, **kwargs):  # type: ignore[no-untyped-def]
        future: Future[object] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except TableError as error:
            future.set_exception(error)
        return future
