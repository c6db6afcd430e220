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
   beyond the point, in its order. So it has the range as of where it stands, no earlier.
4. Applying it makes the range equal to it: missing rows are inserted, rows that are gone are
   deleted, equal rows stay untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import numpy as np
import pyarrow as pa
import structlog

from mirrorlake.capture.backfill import unread
from mirrorlake.capture.backfill.jobs import (
    BackfillJob,
    BackfillJobState,
    BackfillRecords,
)
from mirrorlake.capture.backfill.noted_rows import NotedRows
from mirrorlake.capture.backfill.ranges import remaining
from mirrorlake.capture.backfill.reading import ChunkLimits, ChunkReading, ReadChunk
from mirrorlake.capture.backfill.running import ReadResult, RunningBackfill, SnapshotSession
from mirrorlake.capture.backfill.unloaded import Unloaded
from mirrorlake.capture.backfill.window import ChangeWindow, Spoiled
from mirrorlake.capture.loop import CaptureLoop
from mirrorlake.capture.sink import BackfillRows, Lost, SinkWriter
from mirrorlake.errors import CannotBackfill, TableAltered, TableError, Unavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.keys import ColumnBounds, KeyRange
from mirrorlake.model.landed import BackfillChunk
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import OpenAgain, Snapshot
from mirrorlake.sources.chunk import Changes, Chunk, Part, SchemaChange, TableDiffers, TableLost
from mirrorlake.sources.ordered import check_readable, has_ranges
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

BACKFILL_STARTED = "backfill_started"
BACKFILL_CHUNK = "backfill_chunk_landed"
BACKFILL_REPEATED = "backfill_chunk_repeated"
BACKFILL_ENDED = "backfill_ended"
LOADED_FIRST = "table_loaded_before_changes"

MOST_RETRY_SECONDS = 30.0
PAUSE = 4
"""Times as long as reading a table without a key took in vain, until it is read again."""


@dataclass(frozen=True, slots=True)
class BackfillSettings:
    """How backfills go. look_seconds: how often requests are looked for; window_bytes: of
    changes that are kept beside a snapshot; at_once: tables; unseen: how often columns are read
    again that the stream has not described, before that ends the backfill; keeps_saved: columns
    with former values stay, because rows that the source does not have any more need them."""

    limits: ChunkLimits = field(default_factory=ChunkLimits)
    look_seconds: float = 1.0
    window_bytes: int = 256 << 20
    at_once: int = 2
    retry_seconds: float = 1.0
    unseen: int = 10
    keeps_saved: bool = False


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
        unloaded: Unloaded | None = None,
        guard: Callable[[], None] = lambda: None,
        begins: Callable[[BackfillJob], None] = lambda _job: None,
        ends: Callable[[SourceTable], None] = lambda _table: None,
        undescribed: Callable[[], None] = lambda: None,
        divides: bool = True,
        remedy: str = "repair",
    ) -> None:
        """guard: raises when this process may no longer write; called before a job is written.
        begins: called before the first snapshot of a backfill, perhaps once more after a crash;
        ends: when all rows of a table are landed, before the end of its backfill is recorded.
        undescribed: called when the source has other columns than the stream has described.
        divides: whether a large table without a key is read in pieces, by hashes of all columns.
        remedy: the command by which a table is read again whose backfill has failed.
        refused: why no table can be backfilled, empty when some can. lost: called for a table
        that differs, of which no backfill has come to its end, also for one that is not in the
        stream."""
        self._snapshot, self._jobs, self._clock, self._pool = snapshot, jobs, clock, pool
        self.refused, self._settings = refused, settings or BackfillSettings()
        self._reached, self._lost, self._unloaded = reached, lost, unloaded
        self._guard, self._undescribed = guard, undescribed
        self._begins, self._ends = begins, ends
        self._divides, self._remedy = divides, remedy
        self._tables: dict[TableId, SourceTable] = {}
        self._running: dict[TableId, RunningBackfill] = {}
        self._looked = float("-inf")
        self._waiting = False  # for one that is under way
        self._over: set[str] = set()
        self._required: dict[TableId, list[BackfillJob]] = {}  # of tables that differ
        self._held: Collection[TableId] = ()
        self._opens_again = ""  # why, when a table begins anew

    # -- life -----------------------------------------------------------------------------------

    def begin(self, tables: Sequence[SourceTable]) -> None:
        """A stream of these tables begins."""
        self._tables = {table.table: table for table in tables}
        self._looked = float("-inf")
        self._guard()
        self._jobs.separate(self._tables)
        self._note_differing()

    def abandon(self) -> None:
        """The stream ends: what is read and not landed is read again."""
        for running in self._running.values():
            running.end_session()
        self._running, self._opens_again = {}, ""

    @property
    def is_busy(self) -> bool:
        """Whether something is read."""
        return bool(self._running)

    def is_done(self) -> bool:
        """Whether no requested backfill is left."""
        self._look()
        if self._opens_again:
            return False
        if not self._running:
            return not self._waiting
        # What waits for the stream to describe columns goes on when it does, perhaps much later.
        return all(backfill.unseen > self._settings.unseen for backfill in self._running.values())

    def require(
        self,
        table: TableId,
        error: TableError,
        saved: tuple[str, ...] = (),
        within: Sequence[ColumnBounds] = (),
    ) -> None:
        """Read a table again by itself, from now on, because it differs: it is noted at once, and
        the table is lost when it cannot be done. What has not begun yet will do, unless there are
        columns to be `saved` until then. within: as in `TableDiffers`."""
        for bounds in within or (None,):
            now = self._clock.now()
            self._jobs.require(str(table), error.what, now, self._over, saved, bounds)
        self._looked = float("-inf")
        self._note_differing()
        self._reached(CrashPoint.BACKFILL_REQUIRED)

    def hold(self, tables: Collection[TableId]) -> None:
        """Begin no backfill of these tables, until this is called without them."""
        self._held = {*tables}

    def _note_differing(self, but: str = "") -> None:
        """but: the id of one that has come to its end."""
        self._required = {}
        for job in self._jobs.jobs(but=self._over | {but}):
            if job.is_due:
                table = TableId.parse(job.request.table)
                self._required.setdefault(table, []).append(job)

    @property
    def differing(self) -> Collection[TableId]:
        """The tables that differ until they have been read again."""
        return self._required.keys()

    @property
    def read_whole(self) -> Collection[TableId]:
        """Those of the tables that differ all rows of which are read."""
        due = self._required.items()
        return {table for table, jobs in due if any(job.request.is_whole for job in jobs)}

    # -- beside the stream ----------------------------------------------------------------------

    def landed(self, part: Part) -> Part | None:
        """A part of the stream as it is landed, as long as its table differs."""
        table = part.table if isinstance(part, TableLost | TableDiffers) else part.table.table
        if table not in self.differing or isinstance(part, TableLost | TableDiffers):
            return part
        if not isinstance(part, Changes):
            return part
        found, again = unread.landed(part, partial(self._is_unread, part.table))
        if again:
            what = "a row moved to a key that was read, with values that the source did not send"
            self.require(table, TableAltered(what, table=str(table)))
        return found

    def _is_unread(self, table: SourceTable, rows: pa.Table) -> np.ndarray:
        """Which rows of a table that differs come with a chunk that is not landed yet."""
        running, found = self._running.get(table.table), np.zeros(rows.num_rows, bool)
        for job in self._required[table.table]:
            left = job.remaining()  # as long as it has not gone on after a restart
            if running is not None and running.job.request.id == job.request.id:
                left = running.left
            found |= remaining(table, job, left).contains(rows)
        return found

    def take(self, chunk: Chunk) -> None:
        """What the stream has brought."""
        for part in chunk.parts:
            if isinstance(part, SchemaChange):
                self._tables[part.table.table] = part.table
                self._widen(part.table.table)
                self._restart(part.table.table)
        for running in self._running.values():
            if running.session is not None:
                running.session.window.take(chunk)

    def _widen(self, table: TableId) -> None:
        """Read all of a table whose columns have changed: the bounds of what is to be read again
        are those of a column by its name."""
        if any(job.request.within for job in self._required.get(table, ())):
            what = "its columns were altered before a part of it was read again"
            self.require(table, TableAltered(what, table=str(table)))

    def _restart(self, table: TableId) -> None:
        """Read a table without a key from the beginning when its columns have changed: the hashes
        of its rows are other ones then, so that a row may have one that was read already. Recorded
        before the change is landed: a process that dies before gets the change again."""
        for job in self._jobs.jobs(but=self._over):
            if job.request.table != str(table) or "hashes" not in (job.left or {}):
                continue
            anew = job.now(self._clock.now(), left=None, rows=0, bytes=0)
            running = self._running.get(table)
            if running is not None and running.job.request.id == job.request.id:
                running.job, running.left = anew, KeyRange()
            self._record(anew)
            self._note_differing()

    def stop(self, table: TableId, error: TableError) -> None:
        """The table has left the stream, and is lost already."""
        self._tables.pop(table, None)
        if running := self._running.get(table):
            self._end(running, BackfillJobState.FAILED, error.what, is_lost=True)

    def step(self, loop: CaptureLoop, writers: Sequence[SinkWriter]) -> None:
        """Do what can be done without waiting. Raises OpenAgain for a table that begins anew."""
        if self._clock.monotonic() - self._looked >= self._settings.look_seconds:
            self._look()
        for table, running in list(self._running.items()):
            if self._running.get(table) is running:
                self._advance(running, loop, writers)
        if self._opens_again:
            raise OpenAgain(self._opens_again)

    @property
    def _reading(self) -> int:
        """How many are under way and do not wait for the stream to describe columns, which may be
        never: others would wait with them."""
        return sum(not running.unseen for running in self._running.values())

    # -- requests -------------------------------------------------------------------------------

    def _look(self) -> None:
        """Begin the requested backfills, and end those that were requested to end."""
        self._looked, self._waiting = self._clock.monotonic(), False
        stopped = self._jobs.stopped()
        for job in self._jobs.jobs(but=self._over):
            table = TableId.parse(job.request.table)
            mine = self._running.get(table)
            if job.state.is_over:
                self._jobs.drop_parts(job)
                self._over.add(job.request.id)
            elif job.request.id in stopped:
                if mine and mine.job.request.id == job.request.id:
                    self._end(mine, BackfillJobState.STOPPED, "")
                else:
                    self._ended(job, BackfillJobState.STOPPED, "")
            elif table in self._held:
                continue
            elif mine is not None or self._reading >= self._settings.at_once:
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
            check_readable(found)
            left = remaining(found, job, job.remaining())
        except CannotBackfill as error:
            self._ended(job, BackfillJobState.UNSUPPORTED, error.what)
            return
        is_new = not job.started
        expected = job.expected or (found.rows if job.request.is_whole else None)
        job = job.now(
            self._clock.now(),
            state=BackfillJobState.ACTIVE,
            left=left.as_record(),
            expected=expected,
        )
        most = self._settings.limits
        limits = replace(
            most,
            rows=min(most.rows, job.request.max_rows_per_second or most.rows),
            size=min(most.size, job.request.max_bytes_per_second or most.size),
            divides=self._divides,
        )
        since = self._clock.monotonic()
        self._guard()
        if is_new:
            self._begins(job)
        self._running[table] = RunningBackfill(job, found, left, limits, since, since)
        self._jobs.write(job)
        self._reached(CrashPoint.BACKFILL_BEGUN)
        log.info(BACKFILL_STARTED, table=str(table), backfill=job.request.id, rows=job.rows)

    def _end(
        self,
        running: RunningBackfill,
        state: BackfillJobState,
        message: str,
        *,
        is_lost: bool = False,
    ) -> None:
        running.end_session()
        del self._running[running.table.table]
        self._ended(running.job, state, message, is_lost=is_lost)

    def _ended(
        self, job: BackfillJob, state: BackfillJobState, message: str, *, is_lost: bool = False
    ) -> None:
        """is_lost: the table is lost already."""
        self._guard()
        table = TableId.parse(job.request.table)
        if state is BackfillJobState.UNSUPPORTED and job.request.reason and self._unloaded:
            now = self._tables.get(table)
            if now is not None and self._unloaded.gives_up(now, job.request.reason):
                log.warning(LOADED_FIRST, table=str(table), reason=message)
                self._opens_again = f"{table} is loaded before its changes: {message}"
                return  # its job stays as it is until the table begins anew, which removes it
        if job.request.reason and state is not BackfillJobState.COMPLETED and not is_lost:
            why = f"reading it again ended: {message or 'it was stopped on request'}"
            error = TableAltered(
                f"{job.request.reason}; {why}",
                table=str(table),
                hint=f"Run `mirrorlake {self._remedy} {table}` to read it again.",
            )
            self._lost(table, error)  # first: without the backfill it stays as it is
        is_whole = state is BackfillJobState.COMPLETED and job.request.is_whole
        if is_whole and (now := self._tables.get(table)) is not None:
            self._ends(now)
        job = job.now(self._clock.now(), state=state, message=message)
        self._record(job)
        self._jobs.drop_parts(job)
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

    def _advance(
        self, running: RunningBackfill, loop: CaptureLoop, writers: Sequence[SinkWriter]
    ) -> None:
        table = running.table.table
        is_behind = any(writer.is_ahead(table) for writer in writers)
        if running.session is None and not is_behind:
            self._open(running, loop)
        session = running.session
        if session is None:
            return
        if session.window.size > self._settings.window_bytes:
            self._overflown(running, session)
            return
        self._read(running, session)
        if running.session is not session or session.ready is None:
            return
        if session.pending is None and session.reading.is_over():
            session.reading.close()  # no snapshot is held while the chunk waits for the stream
        if loop.is_open or is_behind or not loop.is_read_to(session.ready.upto):
            return
        self._land(running, session, session.ready, loop, writers)

    def _overflown(self, running: RunningBackfill, session: SnapshotSession) -> None:
        """There are too many changes to be kept. Without ranges all of the table is read at once: a
        while passes before the next attempt, so that the source does not do only that."""
        reason = "its table changes faster than it is read"
        if has_ranges(running.table):
            self._repeat(running, reason)
            return
        self._read_later(running, reason)
        now = self._clock.monotonic()
        running.not_before = max(running.not_before, now + PAUSE * (now - session.begun))

    def _open(self, running: RunningBackfill, loop: CaptureLoop) -> None:
        """Begin a window, and then the snapshot."""
        now = self._clock.monotonic()
        if loop.is_open or now < running.not_before or not running.may_read(now):
            return
        running.table = self._tables[running.table.table]
        try:
            running.left = remaining(running.table, running.job, running.left)
        except CannotBackfill as error:
            self._end(running, BackfillJobState.UNSUPPORTED, error.what)
            return
        jobs = self._jobs
        reading = ChunkReading(
            self._snapshot,
            running.table,
            running.left,
            running.limits,
            self._clock,
            is_estimated=running.job.expected is None,
            noted=NotedRows(jobs.records, jobs.parts_of(running.job), self._guard, self._reached),
        )
        running.session = SnapshotSession(ChangeWindow(running.table, loop.complete), reading, now)

    def _read(self, running: RunningBackfill, session: SnapshotSession) -> None:
        """Take the chunk that is read, and have the one behind it read."""
        if session.ready is None and session.pending is not None and session.pending.done():
            self._take_read(running, session, session.pending.result())
        if running.session is session:
            self._read_on(running, session)

    def _read_on(self, running: RunningBackfill, session: SnapshotSession) -> None:
        """Have the next chunk read; end the session when another snapshot is to be read."""
        if session.pending is not None or (session.ready and session.ready.is_last):
            return
        if not session.reading.is_over() and running.may_read(self._clock.monotonic()):
            session.pending = self._pool.submit(session.reading.next)
        elif session.ready is None and not session.reading.is_read:
            running.end_session()  # so that nothing is held open while nothing is read

    def _take_read(
        self, running: RunningBackfill, session: SnapshotSession, result: ReadResult
    ) -> None:
        session.pending = None
        match result:
            case ReadChunk():
                session.ready = result
                running.read += result.rows.num_rows
                running.size += result.rows.nbytes
                if running.job.expected is None and session.reading.expected is not None:
                    expected = running.job.rows + session.reading.expected
                    running.job = replace(running.job, expected=expected)
                running.unseen = 0
            case CannotBackfill():
                self._end(running, BackfillJobState.UNSUPPORTED, result.what)
            case TableAltered() if self._is_patient(running):
                running.unseen += 1
                if running.unseen == 1:
                    self._undescribed()
                self._read_later(running, result.what)
            case TableError():
                self._end(running, BackfillJobState.FAILED, result.what)
            case Unavailable():
                self._read_later(running, result.what)

    def _is_patient(self, running: RunningBackfill) -> bool:
        """Whether it waits for a change with other columns."""
        return bool(running.job.request.reason) or running.unseen < self._settings.unseen

    def _read_later(self, running: RunningBackfill, reason: str) -> None:
        self._repeat(running, reason)
        # Until a chunk is landed; it may take a person to let it be read.
        running.job = running.job.now(self._clock.now(), message=reason)
        self._record(running.job)
        pause = self._settings.retry_seconds * max(1, running.unseen - self._settings.unseen)
        running.not_before = self._clock.monotonic() + min(pause, MOST_RETRY_SECONDS)

    def _land(
        self,
        running: RunningBackfill,
        session: SnapshotSession,
        chunk: ReadChunk,
        loop: CaptureLoop,
        writers: Sequence[SinkWriter],
    ) -> None:
        is_corrected = all(writer.is_corrected for writer in writers)
        try:
            rows = session.window.behind(chunk)
            read = chunk.rows if is_corrected else session.window.unchanged(chunk)
        except Spoiled as reason:
            running.limits = replace(running.limits, rows=max(running.limits.rows // 2, 1))
            self._repeat(running, str(reason))
            return
        said = BackfillChunk(running.job.request.id, running.job.chunks + 1, chunk.keys)
        is_dropping = chunk.is_last and not self._settings.keeps_saved
        dropped = running.job.request.saved if is_dropping else ()

        def land(point: LogPoint, time: datetime | None) -> None:
            found = BackfillRows(running.table, said, rows, point, time, read, chunk.taken, dropped)
            if running.table.table in self._running:  # rolling may have stopped it
                for writer in writers:
                    writer.backfill(found)

        is_whole = chunk.is_last and running.job.request.is_whole
        if chunk.is_last:
            self._note_differing(but=said.backfill)
        if is_whole and self._unloaded:
            self._unloaded.completing(running.table.table)
        loop.interleave(land)
        if running.session is not session:
            return  # the table was stopped meanwhile
        running.left = running.left.behind(chunk.keys)
        before, running.landed = running.landed, self._clock.monotonic()
        running.job = running.job.now(
            self._clock.now(),
            rows=running.job.rows + chunk.rows.num_rows,
            bytes=running.job.bytes + chunk.rows.nbytes,
            seconds=running.job.seconds + running.landed - before,
            chunks=said.number,
            left=running.left.as_record(),
            message="",
        )
        session.ready = None
        if is_whole and self._unloaded:
            self._unloaded.complete(running.table.table)
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
            self._record(running.job)
            self._read_on(running, session)

    def _record(self, job: BackfillJob) -> None:
        """Record how far a backfill is."""
        self._guard()
        self._jobs.write(job)
        self._reached(CrashPoint.BACKFILL_RECORDED)

    def _repeat(self, running: RunningBackfill, reason: str) -> None:
        """Read from another snapshot what is not landed."""
        running.end_session()
        log.info(
            BACKFILL_REPEATED,
            table=str(running.table.table),
            backfill=running.job.request.id,
            reason=reason,
        )
