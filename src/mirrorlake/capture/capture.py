"""Capture as a whole: takes the lease, finds or makes its place in the log, loads, streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import structlog

from mirrorlake.capture import append_only, members, schema_policy
from mirrorlake.capture.backfill.backfills import Backfills, BackfillSettings, ReadingThreads
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.loop import CaptureLoop, common
from mirrorlake.capture.record import Outage, Records, StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink, SinkWriter
from mirrorlake.errors import (
    LeaseLost,
    PrerequisiteMissing,
    SlotInUse,
    SourceGap,
    SourceUnavailable,
    TableAltered,
    TableError,
    UnsupportedTable,
)
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import (
    ALTERED,
    DIFFERS,
    ChangeStream,
    CheckResult,
    CheckSeverity,
    Established,
    Snapshot,
    Source,
)
from mirrorlake.sources.chunk import TableDiffers
from mirrorlake.sources.table import KnownTables, SourceTable
from mirrorlake.storage.lease import RENEW, TERM, Lease

log = structlog.get_logger()

CAPTURE_STARTED = "capture_started"
TABLE_LOADED = "table_loaded"
FINDING = "source_finding"
STREAM_INTERRUPTED = "stream_interrupted"
STREAM_RESUMED = "stream_resumed"
APPEND_ONLY = "append_only_table"

BACKFILL_WAIT = 0.05
"""Seconds for which an idle stream may keep a chunk waiting that was read beside it."""

RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 30.0


Waiting = Callable[[SourceUnavailable | None], None]
"""Is told why `run` waits for the source, and None whenever it answers."""


class Capture:
    """Takes the changes of one source into the sinks of its stream. Not for several threads."""

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        settings: CaptureSettings,
        clock: Clock,
        *,
        stop: threading.Event | None = None,
        reached: CrashHook = no_crash,
        holder: str | None = None,
        retained: Callable[[int], None] = lambda _size: None,
        waiting: Waiting = lambda _error: None,
        backfill: BackfillSettings | None = None,
    ) -> None:
        """retained: told how many bytes of its log the source keeps for us."""
        self._waiting = waiting
        self._source, self._records, self._sinks = source, records, sinks
        self._retained = retained
        self._settings, self._clock, self._reached = settings, clock, reached
        self._stop = stop or threading.Event()
        self._writers: list[SinkWriter] = []
        self._lease = Lease(records.store, "capture", clock, holder, records.stream_id)
        self._tables: list[SourceTable] = []
        self._stream: ChangeStream | None = None
        self._found: set[CheckResult] = set()  # by the watch, and logged
        self._has_begun = False
        self._has_answered = False  # the source did, in every way that is needed
        self._lost_at: datetime | None = None  # since when it does not answer
        self.loop: CaptureLoop | None = None
        self._backfills = Backfills(
            source.snapshot,
            BackfillRecords(records),
            clock,
            _InTurn() if settings.load_workers <= 1 else ReadingThreads(),
            refused=next((one.unsupported for one in sinks if one.unsupported), ""),
            settings=backfill,
            reached=reached,
            lost=self._lost,
        )

    # -- life -----------------------------------------------------------------------------------

    def open(self) -> None:
        """Be ready to stream: everything selected is loaded.

        Raises LeaseHeld, PrerequisiteMissing, SourceGap, SourceUnavailable.
        """
        self._begin()
        until = self._clock.monotonic() + TERM.total_seconds()
        while self.loop is None and not self._stop.is_set():
            try:
                self._reopen()
            except SlotInUse as error:
                # Whoever stalled is cut off by the server, or finds that its lease is lost.
                if self._clock.monotonic() >= until:
                    raise
                self._interrupted(error, RETRY_SECONDS)
                self._disconnect()
                self._rest(RETRY_SECONDS)
        self._resumed()

    def once(self) -> None:
        """Land everything that was committed when this was called, and what was asked to be
        backfilled."""
        self._catch_up()
        if not self._stop.is_set() and self._replaced():
            self._disconnect()
            self._reopen()  # loads them
            self._catch_up()

    def _catch_up(self) -> None:
        target, loop = self._source.current(), self.loop
        while loop is not None and not self._stop.is_set() and not loop.position.covers(target):
            self.step(0.2)
            if loop.is_read_to(target):
                self._check_source()
                self._finish()
        while not self._stop.is_set() and not self._backfills.is_done():
            self.step(0.2)

    def run(self) -> None:
        """Land changes until told to stop. A source that goes away is waited for, also while tables
        are loaded. Raises as `open` does, of which it is in no need."""
        self._begin()
        watched = self._clock.monotonic()
        pause = RETRY_SECONDS
        while not self._stop.is_set():
            try:
                if self.loop is None:
                    self._reopen()
                self.step(1.0)
                self._resumed()
                if self._clock.monotonic() - watched >= self._settings.watch_seconds:
                    watched = self._clock.monotonic()
                    self._watch()
                pause = RETRY_SECONDS
            except SourceUnavailable as error:
                if not self._has_answered:
                    raise
                self._waiting(error)
                self._interrupted(error, pause)
                self._disconnect()
                self._source.close()  # whatever else it holds is as dead as what failed
                self._rest(pause)
                pause = min(pause * 2, MOST_RETRY_SECONDS)
        self._finish()

    def close(self) -> None:
        """Let go of the source and of the lease. What is not published is read again next time."""
        self._disconnect()
        self._source.close()
        self._lease.release()

    def _begin(self) -> None:
        """What is done once, before the source is asked for anything."""
        if self._has_begun:
            return
        self._lease.take()
        self._records.end_outage()
        for sink in self._sinks:
            sink.recover()
        self._has_begun = True

    # -- a source that does not answer ----------------------------------------------------------

    def _interrupted(self, error: SourceUnavailable, pause: float) -> None:
        """Say that the source does not answer, since when, and when it is asked again."""
        reason = error.what
        if isinstance(error, SlotInUse) and self._lease.predecessor:
            reason += f"; capture was run before by {self._lease.predecessor}, which did not end it"
        log.warning(STREAM_INTERRUPTED, reason=reason, retry_seconds=pause)
        now = self._clock.now()
        self._lost_at = self._lost_at or now
        again = now + timedelta(seconds=pause)
        self._records.begin_outage(Outage(self._lost_at, again, reason, error.hint))

    def _rest(self, pause: float) -> None:
        """Wait, and stay known as the one who captures."""
        until = self._clock.monotonic() + pause
        while not self._stop.is_set() and (left := until - self._clock.monotonic()) > 0:
            self._lease.check()
            self._clock.sleep(min(left, RENEW.total_seconds()))

    def _resumed(self) -> None:
        """Say that the source answers again, if it did not."""
        if self._lost_at is not None:
            seconds = (self._clock.now() - self._lost_at).total_seconds()
            self._records.end_outage()
            self._lost_at = None
            log.info(STREAM_RESUMED, seconds=round(seconds, 1))

    @contextmanager
    def _renewing(self) -> Iterator[None]:
        """Stay known as the one who captures while parts of tables are loaded, however long it
        takes. A lease that is lost meanwhile is found by who asks for it next."""
        done = threading.Event()

        def renew() -> None:
            with suppress(LeaseLost, OSError):
                while not done.wait(RENEW.total_seconds()):
                    self._lease.check()

        thread = threading.Thread(target=renew, name="renew", daemon=True)
        if self._settings.load_workers > 1:
            thread.start()
        try:
            yield
        finally:
            done.set()
            if thread.ident is not None:
                thread.join()

    # -- the place in the log -------------------------------------------------------------------

    def _position_in_log(self) -> StreamRecord:
        """The stream of this zone, made when the zone is new. Raises SourceGap."""
        identity = self._source.identity()
        self._has_answered = True
        self._waiting(None)
        record = self._records.stream()
        if record is None:
            objects = self._source.objects
            if objects and (occupant := objects.occupied()):
                raise PrerequisiteMissing(
                    f"{occupant.message}, but was not created for this landing zone",
                    where=self._home,
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
        self._name_home()
        return record

    def _name_home(self) -> None:
        if self._source.objects is not None:
            self._source.objects.name_home(self._home)

    @property
    def _home(self) -> str:
        return self._records.store.location(self._records.zone)

    def _check_prerequisites(self) -> None:
        """Nothing is made in a source that cannot be captured."""
        for finding in self._source.check():
            if finding.severity is CheckSeverity.ERROR and finding.table is None:
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
            self._name_home()
            self._load(established.snapshot, record)
        finally:
            established.snapshot.close()
        return record

    def _landed(self, record: StreamRecord) -> LogPoint:
        """Up to where every sink holds everything, at least from the start of the stream."""
        start = self._source.parse_point(record.start)
        return common([sink.durable() or start for sink in self._sinks])

    def _captured(self) -> list[SourceTable]:
        return members.captured(self._source.discover(), self._records, self._sinks)

    def _replaced(self) -> list[SourceTable]:
        """Tables that are other ones than were loaded, and begin anew by themselves."""
        if SchemaChangeKind.TABLE_RECREATED in self._settings.stops_at:
            return []
        return members.replaced(self._source.discover(), self._records, self._sinks)

    # -- loading --------------------------------------------------------------------------------

    def _streamed(self) -> list[SourceTable]:
        """The tables that are not stopped."""
        stopped = self._records.stopped()
        return [table for table in self._tables if str(table.table) not in stopped]

    def _load(self, snapshot: Snapshot, record: StreamRecord) -> None:
        """Load what is missing, sink by sink. The tables are known by what they are at the start of
        it, in the publication that carries them from then on."""
        streamed = self._streamed()
        begun = {table.table for sink in self._sinks for table in sink.missing(streamed)}
        found = [table for table in self._source.discover() if table.table in begun and table.known]
        self._know({t.table: {**t.known, "loaded": str(snapshot.point)} for t in found})
        # As counted before the snapshot: what came in between counts as missed, not as loaded.
        append_only.begin(self._records, [table for table in streamed if table.table in begun])
        self._resumed()
        for sink in self._sinks:
            missing = sink.missing(self._streamed())
            with self._renewing(), self._pool() as pool:
                for outcome in sink.load(record, snapshot, missing, pool):
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

    # -- streaming ------------------------------------------------------------------------------

    def _connect(self, record: StreamRecord) -> None:
        """Load what is missing, then stream from the last acknowledged point."""
        streamed = self._streamed()
        missing = {table.table: table for sink in self._sinks for table in sink.missing(streamed)}
        if missing and self._included(list(missing.values())):
            snapshot = self._source.snapshot()
            try:
                self._load(snapshot, record)
            finally:
                snapshot.close()
        start = self._source.parse_point(record.start)
        self._writers = []
        for sink in self._sinks:
            self._writers.append(sink.open(record, self._streamed(), start, self._lost))
        self._confirm_known(common([writer.durable for writer in self._writers]), at_start=True)
        self._stream = self._source.stream(
            self._streamed(),
            common([writer.durable for writer in self._writers]),
            metadata=any(sink.metadata for sink in self._sinks),
        )
        self.loop = CaptureLoop(
            self._stream,
            self._writers,
            self._lost,
            self._settings.heartbeat_seconds,
            self._clock,
            self._reached,
            self._lease.check,
            self._know_from,
            partial(schema_policy.refusal, self._settings),
            self._backfills.take,
            self._differs,
            lambda: self._backfills.differing,
        )
        self._backfills.begin(self._streamed())
        recorded = self._records.known()
        self._know({t.table: t.known for t in self._streamed() if str(t.table) not in recorded})

    def _know(self, known: KnownTables) -> None:
        """Record by what tables are recognised, of those of which the source says it."""
        known = {table: facts for table, facts in known.items() if facts}
        if known:
            self._records.know(known)
        self._tables = [replace(t, known=known.get(t.table, t.known)) for t in self._tables]

    def _know_from(self, known: KnownTables, point: LogPoint) -> None:
        """Record by what tables are recognised from a point on. What was recorded before and is
        durable by now counts first: points come in order."""
        if self.loop is not None:
            self._confirm_known(self.loop.position)
        self._records.know({table: facts for table, facts in known.items() if facts}, str(point))

    def _confirm_known(self, durable: LogPoint, *, at_start: bool = False) -> None:
        """Let count by what tables are recognised where everything is durable."""

        def is_durable(point: str) -> bool:
            return durable.covers(self._source.parse_point(point))

        self._records.confirm(is_durable, at_start=at_start)
        known = self._records.known()
        self._tables = [replace(t, known=known.get(str(t.table), t.known)) for t in self._tables]

    def _lost(self, table: TableId, error: TableError) -> None:
        """A table leaves the stream, for a person to reset it; the others go on."""
        if str(table) not in self._records.stopped():
            members.stop(self._records, error)
        for writer in self._writers:
            writer.stop(table, error)
        self._backfills.stop(table, error)

    def _differs(self, part: TableDiffers) -> None:
        """A table is read again by itself, where that is wanted and can be done; else it stops."""
        table = next((one for one in self._streamed() if one.table == part.table), None)
        if table is None:
            return
        error = part.error if self._backfills.refused else None
        if error := error or schema_policy.refusal_to_read(self._settings, table, part):
            self._lost(part.table, error)
        else:
            self._backfills.require(table.table, part.error)

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

    def _reopen(self) -> None:
        """Find or make the place in the log, load what is missing, and stream."""
        is_first = not self._tables
        for table in self._replaced():
            self._lease.check()
            members.begin_anew(table, self._records, self._sinks, self._reached)
        self._tables = self._captured()
        for table in self._tables if is_first else ():
            if table.append_only:
                log.warning(APPEND_ONLY, table=str(table.table), reason=table.append_only)
        record = self._position_in_log()
        self._connect(record)
        self._look_at_appended(self._tables)
        self._check_source()
        log.info(CAPTURE_STARTED, stream=record.stream, tables=len(self._tables))

    def _disconnect(self) -> None:
        self._backfills.abandon()
        if self.loop is not None:
            self.loop.abandon()
            self.loop = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._writers = []

    def step(self, wait: float) -> None:
        """Read once from the stream, and publish when it is time; go on with backfills."""
        assert self.loop is not None
        self.loop.step(min(wait, BACKFILL_WAIT) if self._backfills.is_busy else wait)
        self._backfills.step(self.loop, self._writers)

    def _finish(self) -> None:
        if self.loop is not None:
            self._lease.check()
            self.loop.roll()
            self._confirm_known(self.loop.position)

    def _watch(self) -> None:
        """Look for what would be lost silently, and for tables that came, went or were replaced."""
        self._check_source()
        known = {table.table for table in self._tables}
        found = self._captured()
        self._look_at_appended(found)
        if self._replaced() or {table.table for table in found} != known:
            self._finish()
            self._disconnect()  # the next round loads new tables and streams on

    def _look_at_appended(self, tables: Sequence[SourceTable]) -> None:
        """Mark append-only tables that differ, or stop them. tables: as they are now."""
        differing = list(append_only.look(self._records, tables, self._clock.now()))
        if not self._settings.stops_where_rows_differ:
            return
        found, names = self._records.append_only(), {str(t.table): t.table for t in tables}
        for name in differing:
            self._lost(names[name], append_only.error_of(name, found[name]))

    def _check_source(self) -> None:
        """Look for what would be lost silently. Raises SourceGap; stops single tables."""
        objects = self._source.objects
        if objects is not None and (size := objects.retained()) is not None:
            self._retained(size)
        for finding in self._source.watch(self._streamed()):
            if finding.severity is CheckSeverity.OK:
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
            if finding.check == DIFFERS and finding.table is not None:
                what, hint = finding.message, finding.remedy
                error = TableAltered(what, table=str(finding.table), hint=hint)
                kind = SchemaChangeKind.PARTITION_CHANGED
                self._differs(TableDiffers(finding.table, kind, error))
            if finding.severity is CheckSeverity.ERROR and finding.table is None:
                raise SourceGap(finding.message, where="the source", hint=finding.remedy)
            if finding.severity is CheckSeverity.ERROR and finding.table is not None:
                as_what = TableAltered if finding.check == ALTERED else TableError
                self._lost(
                    finding.table,
                    as_what(finding.message, table=str(finding.table), hint=finding.remedy),
                )


def _same_source(record: StreamRecord, identity: Mapping[str, str]) -> None:
    for name, expected in record.source.items():
        found = identity.get(name)
        if found == expected:
            continue
        if not found:
            gone = next((made for made in record.made if made.startswith(name)), f"the {name}")
            raise SourceGap(
                f"{gone} no longer exists; `mirrorlake detach` removes it",
                where="the source",
                hint="Run `mirrorlake reset --all` to load all tables again.",
            )
        raise SourceGap(
            f"this landing zone belongs to another source: its {name} was {expected} and is now "
            f"{found}",
            where="the source",
            hint="Set source.url to the source that this landing zone was captured from. If that "
            "source was restored, replaced or created again, run `mirrorlake reset --all` to load "
            "all tables again.",
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
