"""Writes changes into the files of a landing zone.

Order of effects; a crash test covers every arrow:

    stage files of all tables durably → publish them under their numbers
        → stage a chunk of a backfill → publish it → write the cut

Changes that were published but not acknowledged are sent again; the positions in the newest footer
of each table identify them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial

import structlog

from mirrorlake.capture.landing.outbox import Outbox, key_of
from mirrorlake.capture.landing.strict import Strict
from mirrorlake.capture.landing.table_positions import TablePosition
from mirrorlake.capture.origins import as_of, with_metadata
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.segments import Closed, counts
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import BackfillRows, Lost
from mirrorlake.capture.staged.staged_file import StagedFile
from mirrorlake.errors import TableError
from mirrorlake.landing import publish
from mirrorlake.landing.cuts import STOPPED, Cut, Cuts
from mirrorlake.model.change import MARKER_COLUMN
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FileKind, Footer, format_time
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import Changes, Chunk, SchemaChange, Truncation

log = structlog.get_logger()

FILES_PUBLISHED = "files_published"

DIFFERS = "differs"
"""The table is being read again; until then its rows are from several points."""

AHEAD = "ahead"
"""The files of the table extend beyond the cut: it was loaded later, or a crash came in between."""


class LandingWriter:
    """The `SinkWriter` of a landing zone.

    tables: the loaded tables.
    durable: the position of the newest cut, else the start of the stream.
    """

    is_corrected = True

    def __init__(
        self,
        records: Records,
        record: StreamRecord,
        cuts: Cuts,
        tables: Sequence[TablePosition],
        durable: LogPoint,
        settings: CaptureSettings,
        lost: Lost,
        reached: CrashHook = no_crash,
        strict: Strict | None = None,
    ) -> None:
        self._record, self._cuts, self._settings = record, cuts, settings
        self._lost, self._reached = lost, reached
        self._outboxes = {
            found.table.table: Outbox(
                table=found.table.table,
                folder=found.folder,
                stream=record.stream,
                stream_id=records.stream_id,
                store=records.store,
                number=found.number,
                checkpoint=found.checkpoint,
                file_bytes=settings.roll_bytes,
                staging=strict.staging(found.folder) if strict else found.folder,
                unfinished=dict(found.unfinished),
                upto=found.upto,
                key=found.key,
                fill=strict.fill if strict else None,
                recreate=strict.recreate if strict else None,
                metadata=settings.metadata_columns,
            )
            for found in tables
        }
        # Tables whose files extend beyond what the stream has sent so far.
        self._ahead = {found.table.table: found.ahead for found in tables if found.ahead}
        self._unnamed = set(self._outboxes)  # tables whose newest file is in no cut of this run
        self._published: set[TableId] = set()  # since the last cut
        self._altered = set[TableId]()  # perhaps with an alteration that is not landed
        self._backfilled = False  # since the last cut, whose point may be the same
        self._stopped = {table: str(e["code"]) for table, e in records.stopped().items()}
        self._cut = cuts.newest()
        self._rolled = float("-inf")
        self.durable = durable
        # Not the cut: the stream may begin before it because another sink is behind.
        self._taken: LogPoint | None = None

    def take(self, chunk: Chunk, now: float) -> None:
        ended = Closed.of(chunk.transactions, 0) if chunk.opens else None
        for box in list(self._outboxes.values()) if ended else ():
            if ended and (box.has_open() or box.has_altered()):
                self._guarded(box, partial(box.close, ended, now))
        for part in chunk.parts:
            match part:
                case SchemaChange() if table := self._outboxes.get(part.table.table):
                    # Rows with other columns start a new file without help.
                    table.alter(part, chunk.transactions, now)
                    self._altered.add(part.table.table)
                case Changes() | Truncation() if table := self._outboxes.get(part.table.table):
                    # Files of a large transaction are written before its end.
                    self._guarded(table, partial(table.take, part, chunk.transactions, now))
        if self._altered:
            found = self._altered & self._outboxes.keys()
            self._altered = {t for t in found if self._outboxes[t].taken(now)}
        self._advance(chunk)

    def due(self) -> float | None:
        """When to publish.

        Changes that arrive continuously are published together at intervals, because each batch has
        a fixed cost for the reader. The first change after a pause waits only `debounce_seconds`.
        No change waits longer than `roll_seconds`, and none waits once a full file is pending.
        """
        waiting = [box.oldest for box in self._outboxes.values() if box.oldest is not None]
        if not waiting:
            return None
        if sum(box.size for box in self._outboxes.values()) >= self._settings.roll_bytes:
            return float("-inf")
        debounce = min(self._settings.debounce_seconds, self._settings.roll_seconds)
        return max(min(waiting) + debounce, self._rolled + self._settings.roll_seconds)

    def roll(self, now: float) -> None:
        """Publish everything that is closed, in all tables."""
        self._rolled = now
        busy = [box for box in self._outboxes.values() if not box.is_empty()]
        for box in busy:
            self._guarded(box, box.seal)
        if busy:
            self._reached(CrashPoint.CHANGES_STAGED)
        for box in busy:
            self._guarded(box, partial(self._publish, box))
        if busy:
            self._reached(CrashPoint.CHANGES_PUBLISHED)
        self._published |= {box.table for box in busy if box.table in self._outboxes}

    def cut(
        self, point: LogPoint, time: datetime | None, differing: Collection[TableId] = ()
    ) -> None:
        self._unnamed |= self._published
        if self._cut is not None and self.durable.covers(point) and not self._backfilled:
            return  # everything was sent again after a restart, with nothing new
        position = self.durable.join(point)
        excluded = {table: STOPPED.format(code) for table, code in self._stopped.items()}
        excluded |= {str(table): AHEAD for table in self._ahead}
        self._cut = self._cuts.write(
            Cut(
                number=self._cut.number + 1 if self._cut else 1,
                stream=self._record.stream,
                position=str(position),
                commit_time=format_time(time) if time else None,
                tables={
                    str(table): box.number
                    for table, box in self._outboxes.items()
                    if table in self._unnamed and str(table) not in excluded
                },
                excluded={str(table): DIFFERS for table in differing} | excluded,
                source=self._record.source,
            )
        )
        self._unnamed = {table for table in self._unnamed if str(table) in excluded}
        self._backfilled = False
        self.durable = position
        self._reached(CrashPoint.CUT_WRITTEN)
        if self._published:
            log.debug(
                FILES_PUBLISHED,
                cut=self._cut.number,
                position=str(position),
                tables=len(self._published),
            )
        self._published = set()

    def is_ahead(self, table: TableId) -> bool:
        return table in self._ahead

    def backfill(self, chunk: BackfillRows) -> None:
        box = self._outboxes.get(chunk.table.table)
        if box is None:
            return
        assert box.is_empty()
        assert not box.has_open()
        path = publish.staged_path(box.folder, "backfill")
        position = str(Position(chunk.point, 0))
        rows = chunk.rows
        if box.metadata:
            rows = with_metadata(rows, as_of(position, rows.num_rows))
        file = StagedFile(box.store, path, rows.schema)
        file.write(rows)
        file.finish(
            Footer(
                stream=box.stream,
                kind=FileKind.BACKFILL,
                first=position,
                last=position,
                complete=True,
                commit_times=(chunk.time, chunk.time) if chunk.time else None,
                rows=counts(chunk.rows[MARKER_COLUMN]),
                stream_id=box.stream_id,
                alteration=box.altered(chunk.table, chunk.dropped),
                backfill=chunk.chunk,
                key=key_of(chunk.table),
            )
        )
        self._reached(CrashPoint.BACKFILL_STAGED)
        publish.publish(box.store, box.folder, path, box.number + 1, table=str(box.table))
        box.number += 1
        self._reached(CrashPoint.BACKFILL_PUBLISHED)
        self._published.add(box.table)
        self._backfilled = True

    def stop(self, table: TableId, error: TableError) -> None:
        self._stopped[str(table)] = error.code
        box = self._outboxes.pop(table, None)
        if box is not None:
            box.abandon()

    def abandon(self) -> None:
        for box in self._outboxes.values():
            box.abandon()

    def _advance(self, chunk: Chunk) -> None:
        """Release tables for which the stream has sent again everything that was landed before the
        restart."""
        for point in chunk.reached():
            self._taken = point if self._taken is None else self._taken.join(point)
        for table, ahead in list(self._ahead.items()):
            if self._taken is not None and self._taken.covers(ahead):
                del self._ahead[table]
                if table in self._outboxes:
                    self._outboxes[table].pass_checkpoint()

    def _publish(self, box: Outbox) -> None:
        for _number in box.publish():
            self._reached(CrashPoint.CHANGES_PUBLISHED_ONE)

    def _guarded(self, box: Outbox, action: Callable[[], object]) -> None:
        """Call `action`; an error of the table stops only that table (LZ-267)."""
        if box.table in self._outboxes:
            try:
                action()
            except TableError as error:
                self._lost(box.table, error)
