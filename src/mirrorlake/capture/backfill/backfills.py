"""Backfills under way: reads chunks beside the stream, and has them landed between transactions.

For each chunk, in this order; a crash test stands behind every arrow:

    window begun → snapshot taken → chunk read → stream read to the chunk's point
        → everything before landed → file of the chunk landed → cut → progress recorded

A crash anywhere reads the chunk again, which changes nothing that is right already. What makes the
file right, in whatever state the table is:

1. The window begins while no transaction is open, and before the snapshot is taken: every change
   beyond the snapshot's point is in it, whole.
2. The chunk has every row in its range as of the point, as is checked by the order of its rows.
3. The file stands behind all that ends where the stream stands, and repeats what ended there
   beyond the point, in its order. So it tells the range as of where it stands, no earlier.
4. Whoever applies it makes the range equal to it: what is missing comes, what is gone goes, what is
   equal stays untouched.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import structlog

from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
    BackfillRequest,
)
from mirrorlake.capture.backfill.reading import ChunkLimits, ChunkReading, ReadChunk
from mirrorlake.capture.backfill.window import ChangeWindow, Spoiled
from mirrorlake.capture.loop import CaptureLoop
from mirrorlake.capture.sink import BackfillRows, Lost, SinkWriter
from mirrorlake.errors import CannotBackfill, SourceUnavailable, TableAltered, TableError
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.landed import BackfillChunk, format_time, parse_time
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.chunk import Chunk, SchemaChange
from mirrorlake.sources.ordered import check_ordered
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

BACKFILL_STARTED = "backfill_started"
BACKFILL_CHUNK = "backfill_chunk_landed"
BACKFILL_REPEATED = "backfill_chunk_repeated"
BACKFILL_ENDED = "backfill_ended"

MOST_RETRY_SECONDS = 30.0

Result = ReadChunk | TableError | SourceUnavailable


@dataclass(frozen=True, slots=True)
class BackfillSettings:
    """How backfills go. look_seconds: how often requests are looked for; window_bytes: of
    changes that are kept beside a snapshot; at_once: tables; unseen: how often columns are read
    again that the stream has not described, before that ends the backfill."""

    limits: ChunkLimits = field(default_factory=ChunkLimits)
    look_seconds: float = 1.0
    window_bytes: int = 256 << 20
    at_once: int = 2
    retry_seconds: float = 1.0
    unseen: int = 10


@dataclass(slots=True)
class _Session:
    """One snapshot of one table, and what happened to the table since just before it."""

    window: ChangeWindow
    reading: ChunkReading
    pending: Future[Result] | None = None
    ready: ReadChunk | None = None


@dataclass(slots=True)
class _Running:
    """A backfill under way. left: the keys to read; rows: that a chunk has at most; read: rows, and
    since when, for the limit per second; not_before: when the source is asked again; unseen: how
    often its columns were other ones than the stream has described, since a chunk was read."""

    job: BackfillJob
    table: SourceTable
    left: KeyRange
    rows: int
    since: float
    read: int = 0
    not_before: float = 0.0
    unseen: int = 0
    session: _Session | None = None


class Backfills:
    """All backfills of one stream. On the thread of its loop, but for reading."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        jobs: BackfillRecords,
        clock: Clock,
        pool: Executor,
        *,
        refused: str = "",
        settings: BackfillSettings | None = None,
        reached: CrashHook = no_crash,
        lost: Lost = lambda _table, _error: None,
    ) -> None:
        """refused: why no table can be backfilled, empty when some can. lost: told of a table that
        differs, of which no backfill has come to its end."""
        self._snapshot, self._jobs, self._clock, self._pool = snapshot, jobs, clock, pool
        self.refused, self._settings = refused, settings or BackfillSettings()
        self._reached, self._lost = reached, lost
        self._tables: dict[TableId, SourceTable] = {}
        self._running: dict[TableId, _Running] = {}
        self._looked = float("-inf")
        self._waiting = False  # for one that is under way
        self._over: set[str] = set()
        self.differing: set[TableId] = set()  # until they have been read again

    # -- life -----------------------------------------------------------------------------------

    def begin(self, tables: Sequence[SourceTable]) -> None:
        """A stream of these tables begins."""
        self._tables = {table.table: table for table in tables}
        self._looked = float("-inf")
        self._note_differing()

    def abandon(self) -> None:
        """The stream ends: what is read and not landed is read again."""
        for running in self._running.values():
            self._end_session(running)
        self._running = {}

    @property
    def is_busy(self) -> bool:
        """Whether something is read."""
        return bool(self._running)

    def is_done(self) -> bool:
        """Whether nothing is left that was asked for."""
        self._look()
        if not self._running:
            return not self._waiting
        # What waits for the stream to describe columns goes on when it does, perhaps much later.
        return all(one.unseen > self._settings.unseen for one in self._running.values())

    def require(self, table: TableId, error: TableError) -> None:
        """Read a table again by itself, from now on, because it differs: it is noted at once, and
        the table is lost when it cannot be done. What has not begun yet will do."""
        for job in self._jobs.jobs(but=self._over):
            if job.request.reason and job.request.table == str(table) and not job.started:
                return
        now = format_time(self._clock.now())
        number = f"{uuid.uuid4()}"
        self._jobs.add(BackfillRequest(number, str(table), requested=now, reason=error.what))
        self._looked = float("-inf")
        self._note_differing()
        self._reached(CrashPoint.BACKFILL_REQUIRED)

    def _note_differing(self) -> None:
        open_jobs = [job for job in self._jobs.jobs(but=self._over) if not job.state.is_over]
        self.differing = {TableId.parse(j.request.table) for j in open_jobs if j.request.reason}

    # -- beside the stream ----------------------------------------------------------------------

    def take(self, chunk: Chunk) -> None:
        """What the stream has brought."""
        for part in chunk.parts:
            if isinstance(part, SchemaChange):
                self._tables[part.table.table] = part.table
        for running in self._running.values():
            if running.session is not None:
                running.session.window.take(chunk)

    def stop(self, table: TableId, error: TableError) -> None:
        """The table has left the stream."""
        self._tables.pop(table, None)
        if running := self._running.get(table):
            self._end(running, BackfillJobState.FAILED, error.what)

    def step(self, loop: CaptureLoop, writers: Sequence[SinkWriter]) -> None:
        """Do what can be done without waiting."""
        if self._clock.monotonic() - self._looked >= self._settings.look_seconds:
            self._look()
        for table, running in list(self._running.items()):
            if self._running.get(table) is running:
                self._advance(running, loop, writers)

    # -- what was asked for ---------------------------------------------------------------------

    def _look(self) -> None:
        """Begin what was asked for, and end what was asked to end."""
        self._looked, self._waiting = self._clock.monotonic(), False
        for job in self._jobs.jobs(but=self._over):
            table = TableId.parse(job.request.table)
            mine = self._running.get(table)
            if job.state.is_over:
                self._over.add(job.request.id)
            elif self._jobs.is_to_stop(job):
                if mine and mine.job.request.id == job.request.id:
                    self._end(mine, BackfillJobState.STOPPED, "")
                else:
                    self._ended(job, BackfillJobState.STOPPED, "")
            elif mine is not None or len(self._running) >= self._settings.at_once:
                self._waiting = self._waiting or mine is None or mine.job.request != job.request
            else:
                self._start(job, table)

    def _start(self, job: BackfillJob, table: TableId) -> None:
        found = self._tables.get(table)
        if self.refused:
            self._ended(job, BackfillJobState.UNSUPPORTED, self.refused)
            return
        if found is None:
            what = "it is not captured: it is stopped, not selected, or not in the source"
            self._ended(job, BackfillJobState.FAILED, what)
            return
        try:
            check_ordered(found)
            left = job.remaining() or asked(found, job.request.keys)
        except CannotBackfill as error:
            self._ended(job, BackfillJobState.UNSUPPORTED, error.what)
            return
        now, rate = self._clock.now(), job.request.max_rows_per_second
        expected = found.rows if job.request.keys is None else None
        job = job.now(now, state=BackfillJobState.ACTIVE, left=left.as_record(), expected=expected)
        most = self._settings.limits.rows
        rows = min(most, rate) if rate else most
        self._running[table] = _Running(job, found, left, rows, self._clock.monotonic())
        self._jobs.write(job)
        log.info(BACKFILL_STARTED, table=str(table), backfill=job.request.id, rows=job.rows)

    def _end(self, running: _Running, state: BackfillJobState, message: str) -> None:
        self._end_session(running)
        del self._running[running.table.table]
        self._ended(running.job, state, message)

    def _ended(self, job: BackfillJob, state: BackfillJobState, message: str) -> None:
        table = TableId.parse(job.request.table)
        if job.request.reason and state is not BackfillJobState.COMPLETED and table in self._tables:
            why = f"reading it again ended: {message or 'it was stopped on request'}"
            error = TableAltered(
                f"{job.request.reason}; {why}",
                table=str(table),
                hint=f"Run `mirrorlake reset {table}` to reload it.",
            )
            self._lost(table, error)  # first: without the backfill it stays as it is
        job = job.now(self._clock.now(), state=state, message=message)
        self._jobs.write(job)
        self._note_differing()
        log.info(
            BACKFILL_ENDED,
            table=job.request.table,
            backfill=job.request.id,
            state=str(state),
            rows=job.rows,
            chunks=job.chunks,
            reason=message,
        )

    # -- one table ------------------------------------------------------------------------------

    def _advance(self, running: _Running, loop: CaptureLoop, writers: Sequence[SinkWriter]) -> None:
        table = running.table.table
        is_behind = any(writer.is_ahead(table) for writer in writers)
        if running.session is None and not is_behind:
            self._open(running, loop)
        session = running.session
        if session is None:
            return
        if session.window.size > self._settings.window_bytes:
            self._repeat(running, "its table changes faster than the chunk is read")
            return
        self._read(running, session)
        if running.session is not session or session.ready is None:
            return
        if session.reading.is_over():
            session.reading.close()  # nobody waits for us while the chunk waits for the stream
        if loop.is_open or is_behind or not loop.is_read_to(session.ready.upto):
            return
        self._land(running, session, session.ready, loop, writers)

    def _open(self, running: _Running, loop: CaptureLoop) -> None:
        """Begin a window, and then the snapshot."""
        now = self._clock.monotonic()
        if loop.is_open or now < running.not_before or not self._may_read(running):
            return
        running.table = self._tables[running.table.table]
        limits = replace(self._settings.limits, rows=running.rows)
        reading = ChunkReading(self._snapshot, running.table, running.left, limits, self._clock)
        running.session = _Session(ChangeWindow(running.table, loop.complete), reading)

    def _read(self, running: _Running, session: _Session) -> None:
        """Have the next chunk read; take it when it is."""
        if session.ready is not None:
            return
        if session.pending is None:
            session.pending = self._pool.submit(session.reading.next)
            return
        if not session.pending.done():
            return
        result, session.pending = session.pending.result(), None
        match result:
            case ReadChunk():
                session.ready = result
                running.read += result.rows.num_rows
                running.unseen = 0
            case CannotBackfill():
                self._end(running, BackfillJobState.UNSUPPORTED, result.what)
            case TableAltered() if self._is_patient(running):
                running.unseen += 1
                self._read_later(running, result.what)
            case TableError():
                self._end(running, BackfillJobState.FAILED, result.what)
            case SourceUnavailable():
                self._read_later(running, result.what)

    def _is_patient(self, running: _Running) -> bool:
        """Whether it waits for a change that tells of other columns."""
        return bool(running.job.request.reason) or running.unseen < self._settings.unseen

    def _read_later(self, running: _Running, reason: str) -> None:
        self._repeat(running, reason)
        # Until a chunk is landed; it may take a person to let it be read.
        running.job = running.job.now(self._clock.now(), message=reason)
        self._jobs.write(running.job)
        pause = self._settings.retry_seconds * max(1, running.unseen - self._settings.unseen)
        running.not_before = self._clock.monotonic() + min(pause, MOST_RETRY_SECONDS)

    def _may_read(self, running: _Running) -> bool:
        """Whether the limit of rows per second lets another chunk be read."""
        rate = running.job.request.max_rows_per_second
        return not rate or self._clock.monotonic() >= running.since + running.read / rate

    def _land(
        self,
        running: _Running,
        session: _Session,
        chunk: ReadChunk,
        loop: CaptureLoop,
        writers: Sequence[SinkWriter],
    ) -> None:
        try:
            rows = session.window.behind(chunk)
        except Spoiled as reason:
            running.rows = max(running.rows // 2, 1)
            self._repeat(running, str(reason))
            return
        said = BackfillChunk(running.job.request.id, running.job.chunks + 1, chunk.keys)
        loop.interleave(lambda point, time: self._write(writers, running, said, rows, point, time))
        if running.session is not session:
            return  # the table was stopped meanwhile
        running.left = running.left.beyond(chunk.keys.high) if chunk.keys.high else running.left
        running.job = running.job.now(
            self._clock.now(),
            rows=running.job.rows + chunk.rows.num_rows,
            chunks=said.number,
            left=running.left.as_record(),
            message="",
        )
        session.ready = None
        log.info(
            BACKFILL_CHUNK,
            table=str(running.table.table),
            backfill=said.backfill,
            chunk=said.number,
            rows=chunk.rows.num_rows,
            rows_in_all=running.job.rows,
        )
        if chunk.is_last:
            self._end(running, BackfillJobState.COMPLETED, "")
        else:
            self._jobs.write(running.job)
            if session.reading.is_over() or not self._may_read(running):
                self._end_session(running)  # so that nothing is held open while nothing is read
        self._reached(CrashPoint.BACKFILL_RECORDED)

    def _write(
        self,
        writers: Sequence[SinkWriter],
        running: _Running,
        chunk: BackfillChunk,
        rows: pa.Table,
        point: LogPoint,
        time: datetime | None,
    ) -> None:
        if running.table.table in self._running:  # rolling may have stopped it
            for writer in writers:
                writer.backfill(BackfillRows(running.table, chunk, rows, point, time))

    def _repeat(self, running: _Running, reason: str) -> None:
        """Read from another snapshot what is not landed."""
        self._end_session(running)
        log.info(
            BACKFILL_REPEATED,
            table=str(running.table.table),
            backfill=running.job.request.id,
            reason=reason,
        )

    def _end_session(self, running: _Running) -> None:
        session, running.session = running.session, None
        if session is None:
            return
        reading = session.reading
        if session.pending is None:
            reading.close()
        else:  # in the middle of a read on another thread
            session.pending.add_done_callback(lambda _done: reading.close())


def asked(table: SourceTable, keys: tuple[str, str] | None) -> KeyRange:
    """The range of keys that was asked for: of the first key column, both ends with it.

    Raises CannotBackfill for a text that is no value of the column.
    """
    if keys is None:
        return KeyRange()
    name = table.key[0]
    low, high = (_value(table, name, text) for text in keys)
    return KeyRange(low, high, is_closed=True)


def _value(table: SourceTable, name: str, text: str) -> pa.Table:
    kind = arrow_type(table.schema[name].type)
    try:
        if pa.types.is_timestamp(kind):
            value = pa.array([parse_time(text)], kind)
        elif pa.types.is_binary(kind):
            value = pa.array([bytes.fromhex(text.removeprefix("\\x"))], kind)
        else:
            value = pa.array([text]).cast(kind)
    except (pa.ArrowInvalid, ValueError) as error:
        raise CannotBackfill(
            f"a bound is no value of its key column {name}, which is a {table.schema[name].type}",
            table=str(table.table),
            column=name,
        ) from error
    return pa.table([value], names=[name])


class ReadingThreads(Executor):
    """Runs each piece of work on a thread of its own, which no end of the process waits for."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  (whoever asks for the result gets it)
                future.set_exception(error)

        threading.Thread(target=work, name="backfill", daemon=True).start()
        return future
