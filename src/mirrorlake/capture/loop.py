"""The capture loop: orders effects and does nothing else.

Order, on which "nothing lost, nothing twice" rests; a crash test stands behind every arrow:

    staged files of all tables durable → published under their numbers → cut written
        → acknowledged to the source

The source forgets only what was acknowledged. What was published and not acknowledged comes again
and is recognised by the positions in the newest footer of each table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import assert_never

import structlog

from mirrorlake.capture import members, segments
from mirrorlake.capture.outbox import Outbox
from mirrorlake.capture.record import Records, StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.strict import Strict
from mirrorlake.capture.table_positions import TablePosition
from mirrorlake.errors import TableError
from mirrorlake.landing.cuts import Cut, Cuts
from mirrorlake.model.landed import format_time
from mirrorlake.model.position import LogPoint
from mirrorlake.model.seams import Clock, CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import ChangeStream
from mirrorlake.sources.chunk import Changes, Chunk, SchemaChange, TableLost, Truncation
from mirrorlake.storage.store import Store

log = structlog.get_logger()

FILES_PUBLISHED = "files_published"

AHEAD = "ahead"
"""The files of a table reach beyond the cut: it was loaded later, or a crash came between."""


class CaptureLoop:
    """Reads one stream into the outboxes of its tables, and publishes them.

    places: the tables that are loaded. landed: the position of the newest cut, else the start of
    the stream; cuts only grow. guard: raises when we may not write any more; asked after each read,
    before anything is done about it. `position`: up to where everything is landed and
    acknowledged. `changes`: rows taken from the stream in this run.
    """

    def __init__(
        self,
        stream: ChangeStream,
        store: Store,
        record: StreamRecord,
        records: Records,
        cuts: Cuts,
        locations: Sequence[TablePosition],
        landed: LogPoint,
        settings: CaptureSettings,
        clock: Clock,
        reached: CrashHook = no_crash,
        strict: Strict | None = None,
        guard: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard = guard
        self._stream, self._record, self._records = stream, record, records
        self._cuts, self._settings, self._clock, self._reached = cuts, settings, clock, reached
        self._outboxes = {
            location.table.table: Outbox(
                table=location.table.table,
                folder=location.folder,
                stream=record.stream,
                store=store,
                number=location.number,
                checkpoint=location.checkpoint,
                unfinished=dict(location.unfinished),
                file_bytes=settings.roll_bytes,
                staging=strict.staging(location.folder) if strict else location.folder,
                fill=strict.fill if strict else None,
                recreate=strict.recreate if strict else None,
            )
            for location in locations
        }
        # Tables whose files reach beyond what the stream has brought again so far.
        self._ahead = {p.table.table: p.checkpoint.point for p in locations if p.checkpoint}
        self._unnamed = set(self._outboxes)  # their newest file is in no cut of this run
        self._stopped = {t: str(e["code"]) for t, e in records.stopped().items()}
        self._cut = cuts.newest()
        self._complete = landed  # everything that ends here or before was read
        self._commit_time: datetime | None = None
        self._last_cut = clock.monotonic()
        self._rolled = float("-inf")
        self.position = landed
        self.changes = 0
        # A crash may have come between the cut and this.
        stream.acknowledge(landed)

    def step(self, wait: float) -> bool:
        """Read once, and publish when it is time. Returns whether anything came."""
        chunk = self._stream.read(min(wait, self._until_roll()))
        self._guard()
        if chunk is not None:
            self._take(chunk)
        if self._roll_is_due():
            self.roll()
        elif self._heartbeat_is_due():
            self._write_cut([])
        return chunk is not None

    def is_read_to(self, target: LogPoint) -> bool:
        """Whether everything that ends at or before `target` has been read."""
        return self._complete.covers(target)

    def roll(self) -> None:
        """Publish everything that is closed, in all tables, and acknowledge it."""
        self._rolled = self._clock.monotonic()
        busy = [box for box in self._outboxes.values() if not box.is_empty()]
        for box in busy:
            self._guarded(box, box.seal)
        if busy:
            self._reached(CrashPoint.CHANGES_STAGED)
        for box in busy:
            self._guarded(box, partial(self._publish, box))
        if busy:
            self._reached(CrashPoint.CHANGES_PUBLISHED)
        self._write_cut([box for box in busy if box.table in self._outboxes])

    def _publish(self, box: Outbox) -> None:
        for _number in box.publish():
            self._reached(CrashPoint.CHANGES_PUBLISHED_ONE)

    def _guarded(self, box: Outbox, action: Callable[[], None]) -> None:
        """What is wrong with one table stops that table only (LZ-267)."""
        if box.table in self._outboxes:
            try:
                action()
            except TableError as error:
                self.stop_table(box.table, error)

    def abandon(self) -> None:
        """Forget what is not published."""
        for box in self._outboxes.values():
            box.abandon()

    def stop_table(self, table: TableId, error: TableError) -> None:
        """Take a table out of the stream, for a person to reset it; the others go on."""
        members.stop(self._records, error)
        self._stopped[str(table)] = error.code
        box = self._outboxes.pop(table, None)
        if box is not None:
            box.abandon()

    # -- reading --------------------------------------------------------------------------------

    def _take(self, chunk: Chunk) -> None:
        transactions, now = chunk.transactions, self._clock.monotonic()
        ended = segments.Closed.of(transactions, 0) if chunk.opens else None
        for box in self._outboxes.values() if ended else ():
            if ended and box.has_open():
                box.close(ended, now)
        for part in chunk.parts:
            match part:
                case Changes() | Truncation():
                    if part.table.table in self._outboxes:
                        box = self._outboxes[part.table.table]
                        self.changes += box.take(part, transactions, now)
                case SchemaChange():
                    pass  # a file has one set of columns: what follows begins another
                case TableLost(table, error):
                    self.stop_table(table, error)
                case _:
                    assert_never(part)
        if closed := transactions.closed():
            self._advance(transactions.through(closed - 1), transactions.time[closed - 1])
        if chunk.idle is not None:
            self._advance(chunk.idle, self._commit_time)

    def _advance(self, point: LogPoint, time: datetime | None) -> None:
        """Everything that ends at or before the point was read."""
        if self._complete.covers(point):
            return
        self._complete, self._commit_time = self._complete.join(point), time
        for table, ahead in list(self._ahead.items()):
            if self._complete.covers(ahead):
                del self._ahead[table]
                if table in self._outboxes:
                    self._outboxes[table].pass_checkpoint()

    # -- publishing -----------------------------------------------------------------------------

    def _until_roll(self) -> float:
        due = self._roll_at()
        if due is None:
            return self._settings.heartbeat_seconds
        return max(due - self._clock.monotonic(), 0.0)

    def _roll_at(self) -> float | None:
        """When what waits is published, if no file gets full before.

        Changes that keep coming are published together, at a distance: each batch costs the same
        at the other end, however small. What comes after a pause is not kept waiting for others.
        No change waits longer than `roll_seconds` either way.
        """
        oldest = self._oldest()
        if oldest is None:
            return None
        debounced = oldest + min(self._settings.debounce_seconds, self._settings.roll_seconds)
        return max(debounced, self._rolled + self._settings.roll_seconds)

    def _oldest(self) -> float | None:
        ages = [box.oldest for box in self._outboxes.values() if box.oldest is not None]
        return min(ages, default=None)

    def _roll_is_due(self) -> bool:
        due = self._roll_at()
        if due is None:
            return False
        full = sum(box.size for box in self._outboxes.values()) >= self._settings.roll_bytes
        return full or self._clock.monotonic() >= due

    def _heartbeat_is_due(self) -> bool:
        moved = not self.position.covers(self._complete)
        waited = self._clock.monotonic() - self._last_cut
        return moved and self._oldest() is None and waited >= self._settings.heartbeat_seconds

    def _write_cut(self, busy: Sequence[Outbox]) -> None:
        """Everything up to `_complete` is published: say so, then let the source forget it."""
        self._unnamed |= {box.table for box in busy}
        if self._cut is not None and self.position.covers(self._complete):
            return  # brought again after a restart, and nothing beyond
        excluded = self._excluded()
        cut = Cut(
            number=self._cut.number + 1 if self._cut else 1,
            stream=self._record.stream,
            position=str(self._complete),
            commit_time=format_time(self._commit_time) if self._commit_time else None,
            tables={
                str(table): box.number
                for table, box in self._outboxes.items()
                if table in self._unnamed and str(table) not in excluded
            },
            excluded=excluded,
            source=self._record.source,
        )
        self._cut = self._cuts.write(cut)
        self._unnamed = {table for table in self._unnamed if str(table) in excluded}
        self._reached(CrashPoint.CUT_WRITTEN)
        self._stream.acknowledge(self._complete)
        self.position, self._last_cut = self._complete, self._clock.monotonic()
        self._reached(CrashPoint.ACKNOWLEDGED)
        if busy:
            log.debug(FILES_PUBLISHED, cut=cut.number, position=cut.position, tables=len(busy))

    def _excluded(self) -> dict[str, str]:
        """Tables about which a cut says nothing now: stopped, or ahead of it."""
        stopped = {table: f"stopped: {code}" for table, code in self._stopped.items()}
        return stopped | {str(table): AHEAD for table in self._ahead}
