"""Capture as a whole: takes the lease, finds or makes its place in the log, loads, streams."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial

import structlog

from mirrorlake.capture.backfill.backfills import Backfills, BackfillSettings
from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.backfill.unloaded import Unloaded
from mirrorlake.capture.executors import InTurn, ReadingThreads
from mirrorlake.capture.log_start import LogStart
from mirrorlake.capture.loop import CaptureLoop, common
from mirrorlake.capture.missing_tables import MissingTables
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.repair.stream_repair import StreamRepair
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink, SinkWriter
from mirrorlake.capture.tables import members
from mirrorlake.capture.tables.captured import CapturedTables
from mirrorlake.capture.tables.carried import CarriedTables
from mirrorlake.capture.watch import append_only
from mirrorlake.capture.watch.joining import AlteredTables, Joining
from mirrorlake.capture.watch.outages import Outages
from mirrorlake.capture.watch.retention import LogRetention
from mirrorlake.capture.watch.source_guard import SourceGuard
from mirrorlake.capture.watch.table_watch import TableWatch
from mirrorlake.errors import AlteredWhileLoaded, SlotInUse, SourceUnavailable, TableError
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import ChangeStream, OpenAgain, Source
from mirrorlake.sources.chunk import Part
from mirrorlake.sources.table import KnownTables, SourceTable
from mirrorlake.storage.lease import RENEW, TERM, Lease

log = structlog.get_logger()

CAPTURE_STARTED = "capture_started"
APPEND_ONLY = "append_only_table"

BACKFILL_WAIT = 0.05
"""Seconds for which an idle stream may keep a chunk waiting that was read beside it."""

RETRY_SECONDS = 1.0
MOST_RETRY_SECONDS = 30.0


Waiting = Callable[[SourceUnavailable | None], None]
"""Called with the reason why `run` waits for the source, and with None whenever it answers."""


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
        retained: Callable[[LogRetention], None] = lambda _log: None,
        waiting: Waiting = lambda _error: None,
        backfill: BackfillSettings | None = None,
    ) -> None:
        """retained: called with what the source keeps of its log for us."""
        self._waiting = waiting
        self._source, self._records, self._sinks = source, records, sinks
        self._guard = SourceGuard(source, records, settings, clock, retained)
        self._settings, self._clock, self._reached = settings, clock, reached
        self._stop = stop or threading.Event()
        self._writers: list[SinkWriter] = []
        self._lease = Lease(records.store, "capture", clock, holder, records.stream_id)
        self._tables = CapturedTables(source, records)
        self._stream: ChangeStream | None = None
        self._has_begun = False
        self._has_answered = False  # the source did, in every way that is needed
        self._is_continuous = False  # tables that come may wait, while the others go on
        self._outages = Outages(records, clock, self._stop)
        self.loop: CaptureLoop | None = None
        self._carried = CarriedTables(
            source, records, sinks, settings, clock, self._lease.check, reached
        )
        self._joining = Joining(source, clock, self._outages.awaits)
        self._altered = AlteredTables(clock)
        self._log_start = LogStart(source, records, sinks, clock, reached)
        is_corrected = all(sink.is_corrected for sink in sinks)
        self._unloaded = Unloaded(
            source, records, settings, clock, self._lost, is_corrected=is_corrected
        )
        self._missing = MissingTables(
            source,
            records,
            sinks,
            settings,
            self._tables,
            self._unloaded,
            self._joining,
            self._lease,
            self._outages.resumed,
            self._while_loading,
        )
        self._backfills = Backfills(
            source.snapshot,
            BackfillRecords(records),
            clock,
            InTurn() if settings.one_thread else ReadingThreads(),
            refused=next((sink.unsupported for sink in sinks if sink.unsupported), ""),
            settings=backfill,
            reached=reached,
            lost=self._not_read,
            unloaded=self._unloaded,
            guard=self._lease.check,
            begins=partial(append_only.begins, records),
            ends=partial(append_only.ends, records),
            undescribed=self._guard.look_soon,
            divides=not settings.ignores_columns,
            remedy="reset" if self._log_start.refused() else "repair",
        )
        self._table_watch = TableWatch(
            source,
            records,
            sinks,
            settings,
            clock,
            self._backfills,
            self._unloaded,
            self._tables.streamed,
            self._lost,
            self._found_lost,
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
            except SourceUnavailable:
                if not self._stop.is_set():
                    raise
                self._disconnect()
        self._outages.resumed()

    def once(self) -> None:
        """Land everything that was committed when this was called, and complete the backfills
        that were requested."""
        if self.loop is None:  # it was stopped before it was open
            return
        self._catch_up()
        while not self._stop.is_set():
            pause = self._altered.next()
            if pause is None and not self._carried.replaced(self._source.discover()):
                break
            self._rest(pause or 0.0)
            self._disconnect()
            self._reopen()  # loads them
            self._catch_up()

    def _catch_up(self) -> None:
        target = self._source.current()
        while (
            (loop := self.loop) is not None
            and not self._stop.is_set()
            and not loop.position.covers(target)
        ):
            self.step(0.2)
            if self.loop is loop and loop.is_read_to(target):
                self._check_source(self._source.discover())
                if self._table_watch.awaits_log:
                    target = self._source.current()
                else:
                    self._finish()
        while not self._stop.is_set() and not self._backfills.is_done():
            self.step(0.2)

    def run(self) -> None:
        """Land changes until `stop` is set. Waits for a source that goes away, also while it loads
        tables. Raises as `open` does, which need not be called before."""
        self._begin()
        self._is_continuous = True
        pause = RETRY_SECONDS
        while not self._stop.is_set():
            try:
                if self.loop is None:
                    self._reopen()
                    continue
                if self.step(self._guard.read_seconds):
                    self._guard.moved()
                self._outages.resumed()
                if self._guard.finds_rejected():
                    self._check_source(self._source.discover())
                if self._guard.is_watch_due() or self._joining.is_due() or self._altered.is_due():
                    self._watch()
                pause = RETRY_SECONDS
            except SourceUnavailable as error:
                if self._stop.is_set():
                    self._disconnect()
                    break
                if not self._has_answered:
                    raise
                self._waiting(error)
                self._interrupted(error, pause)
                self._joining.end()
                self._disconnect()
                self._source.close()  # its other connections have failed as well
                self._rest(pause)
                pause = min(pause * 2, MOST_RETRY_SECONDS)
        self._finish()

    def close(self) -> None:
        """Let go of the source and of the lease. What is not published is read again next time."""
        self._disconnect()
        self._source.close()
        self._lease.release()

    def repair(self) -> StreamRepair:
        """What repairs the stream, while this capture is not open."""
        return StreamRepair(
            self._source,
            self._records,
            self._sinks,
            self._log_start,
            self._tables_to_capture,
            self._leased,
            self._clock,
            self._reached,
        )

    @contextmanager
    def _leased(self) -> Iterator[None]:
        self._begin()
        self._carried.keep_names()
        self._outages.watch(self._source.pulse())
        try:
            with self._missing.renewing():
                yield
        finally:
            self._outages.unwatch()

    def _begin(self) -> None:
        """What is done once, before the first request to the source."""
        if self._has_begun:
            return
        self._lease.take()
        self._records.end_outage()
        self._records.rewrite()
        for sink in self._sinks:
            sink.recover()
        self._has_begun = True

    # -- a source that does not answer ----------------------------------------------------------

    def _interrupted(self, error: SourceUnavailable, pause: float) -> None:
        """Report that the source does not answer, since when, and when the next attempt is."""
        reason = error.what
        if isinstance(error, SlotInUse) and self._lease.predecessor:
            reason += f"; capture was run before by {self._lease.predecessor}, which did not end it"
        self._outages.interrupted(error, reason, pause)

    def _rest(self, pause: float) -> None:
        """Wait, and stay known as the one who captures."""
        until = self._clock.monotonic() + pause
        while not self._stop.is_set() and (left := until - self._clock.monotonic()) > 0:
            self._lease.check()
            self._clock.sleep(min(left, RENEW.total_seconds()))

    # -- the place in the log -------------------------------------------------------------------

    def _answered(self) -> Mapping[str, str]:
        """The identity of the source, now that it answers. From here on it is looked at: on a
        connection that stalls no answer may ever come."""
        self._outages.watch(self._source.pulse())
        identity = self._source.identity()
        self._has_answered = True
        self._waiting(None)
        return identity

    def _establish(self, record: StreamRecord, identity: Mapping[str, str]) -> StreamRecord:
        """Give the stream its start in the log, and load what is missing from a snapshot there."""
        with self._missing.renewing():
            record, established = self._log_start.establish(record, identity, self._tables.all)
        with closing(established.snapshot):
            self._missing.load_from(established.snapshot, record)
        return record

    def _tables_to_capture(self) -> list[SourceTable]:
        return self._unaltered(self._carried.before_start())

    def _unaltered(self, captured: list[SourceTable]) -> list[SourceTable]:
        """Without tables that wait because they are being altered."""
        self._altered.keep([table.table for table in captured])
        return [table for table in captured if not self._altered.waits(table.table)]

    def _while_loading(self) -> None:
        self._guard.moved()  # for all that is known: no stream is read
        if self._guard.finds_rejected():
            self._source.watch([])
        self._look_at_log()

    # -- streaming ------------------------------------------------------------------------------

    def _connect(self, record: StreamRecord) -> None:
        """Load what is missing, then stream from the last acknowledged point."""
        self._missing.load(record, may_wait=self._is_continuous)
        self._unloaded.begin()
        durable = self._open_writers(record)
        self._tables.confirm(durable, at_start=True)
        self._carried.keep_names()
        self._stream = self._source.stream(
            self._tables.streamed(),
            durable,
            metadata=any(sink.metadata for sink in self._sinks),
            secret=self._records.secret_of(record),
            reached=self._reached,
        )
        self.loop = CaptureLoop(
            self._stream,
            self._writers,
            self._lost,
            self._settings.heartbeat_seconds,
            self._clock,
            self._reached,
            guard=self._lease.check,
            know=self._know_from,
            refuses=self._table_watch.refusal,
            taken=self._backfills.take,
            differs=self._table_watch.differs,
            differing=self._differing,
            landed=self._as_landed,
        )
        streamed = self._tables.streamed()
        self._backfills.begin(streamed)
        self._unloaded.read(streamed, self._backfills.differing, self._backfills.require)
        self._tables.know_first()

    def _open_writers(self, record: StreamRecord) -> LogPoint:
        """Open a writer of each sink. Returns up to where all of them hold everything."""
        self._writers = []
        for sink in self._sinks:
            start = self._log_start.joined(record, sink)
            self._writers.append(sink.open(record, self._tables.streamed(), start, self._lost))
        return common([writer.durable for writer in self._writers])

    def _know_from(self, known: KnownTables, point: LogPoint) -> None:
        durable = None if self.loop is None else self.loop.position
        self._tables.know_from(known, point, durable)

    def _lost(self, table: TableId, error: TableError) -> None:
        """A table leaves the stream, for a person to reset it; the others go on."""
        if str(table) not in self._records.stopped() and not self._carried.dropped.note([table]):
            members.stop(self._records, error)
        for writer in self._writers:
            writer.stop(table, error)
        self._backfills.stop(table, error)

    def _differing(self) -> set[TableId]:
        return {*self._backfills.differing, *self._unloaded.tables, *self._table_watch.differing}

    def _not_read(self, table: TableId, error: TableError) -> None:
        """A table was not read again that differs: it is lost, unless it is stopped already, or
        nothing of it is there that could differ."""
        is_held = any(sink.holds(table) for sink in self._sinks)
        if is_held and str(table) not in self._records.stopped():
            self._lost(table, error)

    def _as_landed(self, part: Part) -> Part | None:
        """As sinks that are corrected take a part of the stream, None for nothing."""
        found = self._table_watch.ignored.landed(part)
        being_read = self._backfills.read_whole
        found = None if found is None else self._unloaded.landed(found, being_read)
        return None if found is None else self._backfills.landed(found)

    def _reopen(self) -> None:
        """Open the stream. A table that is altered while it is loaded is loaded later."""
        while self.loop is None and not self._stop.is_set():
            try:
                self._open_stream()
            except AlteredWhileLoaded as error:
                mine = [table for table in self._tables.all if str(table.table) == error.where]
                # What one of the sinks has of a table already would miss its changes.
                if not mine or any(not sink.missing(mine) for sink in self._sinks):
                    raise
                self._altered.put_off(error)
                self._disconnect()

    def _open_stream(self) -> None:
        """Find or make the place in the log, load what is missing, and stream."""
        is_first = not self._tables.all
        identity, record = self._answered(), self._records.stream()
        if record is not None and not record.is_established:
            members.forget_all(self._records, self._sinks)
        elif record is not None and record.is_complete:
            record = self._log_start.resume(record, identity)
        self._carried.keep_names()
        self._carried.begin_replaced()
        self._carried.begin_loaded_first()
        members.try_again(self._records, self._sinks)
        if record is not None and record.is_complete:
            self.repair().of_selected()
        self._tables.all = self._tables_to_capture()
        for table in self._tables.all if is_first else ():
            if table.append_only:
                log.warning(APPEND_ONLY, table=str(table.table), reason=table.append_only)
        if record is None:
            record = self._log_start.begin(identity)
        if not record.is_complete:
            record = self._establish(record, identity)
        self._connect(record)
        self._altered.loaded([table.table for table in self._tables.all])
        self._joining.opened()
        self._check_source(self._source.discover())
        log.info(CAPTURE_STARTED, stream=record.stream, tables=len(self._tables.all))

    def _disconnect(self) -> None:
        self._outages.unwatch()
        self._backfills.abandon()
        if self.loop is not None:
            self.loop.abandon()
            self.loop = None
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._writers = []

    def step(self, wait: float) -> bool:
        """Read once from the stream, and publish when it is time; go on with backfills. Returns
        whether the log of the source may have moved."""
        assert self.loop is not None
        try:
            moved = self.loop.step(min(wait, BACKFILL_WAIT) if self._backfills.is_busy else wait)
            self._backfills.step(self.loop, self._writers)
        except OpenAgain:
            self._disconnect()
            self.open()
            return True
        self._outages.check()
        return moved or self.loop.is_open

    def _finish(self) -> None:
        if self.loop is not None:
            self._lease.check()
            self.loop.roll()
            self._tables.confirm(self.loop.position)

    def _watch(self) -> None:
        """Look for what would be lost silently, and for tables that came, went or were replaced."""
        now = self._source.discover()
        self._land_dropped(
            {table.table for table in self._tables.streamed()} - {t.table for t in now}
        )
        self._check_source(now)
        streamed = {table.table for table in self._tables.all}
        found = {table.table for table in self._unaltered(self._carried.decide(now, streamed))}
        is_joining = bool(self._carried.replaced(now) or found - streamed)
        if not is_joining:
            self._joining.end()
        if streamed - found or (is_joining and self._joining.can_begin()):
            self._joining.closes()
            self._finish()
            self._disconnect()  # the next round loads new tables and streams on

    def _found_lost(self, table: TableId, error: TableError) -> None:
        """A look at the source has found that a table is lost."""
        self._land_dropped([table])
        self._lost(table, error)

    def _land_dropped(self, tables: Iterable[TableId]) -> None:
        """Land what was committed before tables were dropped, unless they stop for that."""
        if self.loop is None or not self._carried.dropped.among(tables):
            return
        target = self._source.current()
        while not (self._stop.is_set() or self.loop.is_read_to(target)):
            self.step(self._guard.read_seconds)
            self._guard.moved()
        self._finish()

    def _look_at_log(self) -> None:
        """Look at how much of its log the source keeps, when it is time: whether that grows is seen
        only when what was read is acknowledged. Raises SourceGap once it keeps no more."""
        if self._guard.is_due() and (gap := self._guard.look_at_log()):
            self._finish()
            self._disconnect()
            self._lease.check()  # the slot may be another's by now
            self._guard.release()
            raise self._log_start.with_hint(gap)

    def _check_source(self, tables: Sequence[SourceTable]) -> None:
        """Look for what would be lost silently. Raises SourceGap; stops single tables."""
        self._lease.check()
        # Before a table that has lost its key is published without its updates.
        self._table_watch.look_at_tables(tables)
        self._look_at_log()
        if gap := self._table_watch.look_at_source(tables):
            raise self._log_start.with_hint(gap)
