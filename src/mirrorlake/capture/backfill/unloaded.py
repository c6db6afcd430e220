"""Tables whose rows are not loaded: only changes are landed, until a backfill has read all rows.

A row appears with its first change. Until then the mirror may lack it, so values that the source
did not send are taken from the row as it is now; if it has changed since, that change follows. The
same holds for a row that the project selects from a change on.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.backfill.noted_rows import has_notes
from mirrorlake.capture.filled import filled
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Lost
from mirrorlake.errors import TableAltered, TableError
from mirrorlake.model.change import Marker
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Recognising, Snapshot, Source
from mirrorlake.sources.chunk import Changes, Part
from mirrorlake.sources.ordered import LARGEST_TABLE, has_ranges
from mirrorlake.sources.selection import takes
from mirrorlake.sources.table import SnapshotPart, SourceTable

_BESIDE = "its rows are loaded beside its changes"

LARGEST_BESIDE = LARGEST_TABLE // 4
"""Bytes of a table without ranges up to which it is read beside its changes. In memory it may have
many times as many, and what has one of the hashes has to fit into that."""


def _selected_by_change(part: Changes) -> np.ndarray | None:
    """The values that were not sent of rows that the project may not have selected before: such a
    row comes as an insert, and the mirror has none from which it could take them. Those that go
    with it from key to key are among them, because its deletion follows where it is gone by now."""
    if part.unchanged is None or part.table.selection.get("rows") is None:
        return None
    missing: np.ndarray = part.unchanged & (part.marker == Marker.INSERT)[:, np.newaxis]
    return missing


class Unloaded:
    """Those of one stream. `tables`: what is known of them since `begin`."""

    def __init__(
        self,
        source: Source,
        records: Records,
        settings: CaptureSettings,
        clock: Clock,
        lost: Lost,
        *,
        is_corrected: bool = True,
    ) -> None:
        """lost: called for a table of which values cannot be read; is_corrected: whether all sinks
        are, as in `Sink`."""
        self._source, self._records, self._settings = source, records, settings
        self._jobs, self._clock, self._lost = BackfillRecords(records), clock, lost
        self._is_corrected = is_corrected
        self.tables: set[TableId] = set()

    def begin(
        self,
        missing: Sequence[SourceTable] = (),
        held: Collection[TableId] = (),
        snapshot: Snapshot | None = None,
    ) -> None:
        """Decide, once for each table that is to be loaded, whether its rows are. Tables that are
        not there when the stream begins have joined it later, and so do those that begin anew,
        whose rows are loaded in any case. A table whose deletions name whole rows is always read,
        before changes or beside them: each of them must find its row.

        held: those of the missing tables that a sink has already, which has their rows or gets
        them. snapshot: what the missing ones are loaded from."""
        known = self._records.loads()
        if known is None and self._settings.loads_all and self._settings.load_beside is None:
            return
        is_joining, known = known is not None, known or {}
        new = [table for table in missing if str(table.table) not in known]
        anew = [table for table in missing if known.get(str(table.table), True) is None]
        is_loaded = self._settings.load_joining or not is_joining
        beside = self._read_beside(anew, held, snapshot, is_joining=True)
        if is_loaded:
            beside |= self._read_beside(new, held, snapshot, is_joining=is_joining)
        loads = {
            str(table.table): is_loaded
            and takes(table.table, self._settings.load)
            and table.table not in beside
            for table in new
        }
        loads |= {str(table.table): table.table not in beside for table in anew}
        whole = {table.table for table in (*new, *anew) if table.whole_rows}
        loads |= {str(table): True for table in whole - beside}
        self._require(beside, {table.table for table in (*new, *anew)} - {*held})
        if loads or not is_joining:
            self._records.write_loads(known | loads, self._records.load_first() - loads.keys())
        self.tables = {TableId.parse(name) for name in self._records.unloaded()}
        self._read_anew(self.tables & {table.table for table in missing})

    def _require(self, beside: set[TableId], new: set[TableId]) -> None:
        """Request the backfills of tables before it is recorded that their rows are not loaded:
        nothing else tells those that are read beside their changes from those that are not read.
        new: what no sink has; a process that died just here may have requested some of it."""
        jobs = self._jobs.jobs() if new or beside else []
        due = {job.request.table for job in jobs if job.is_due}
        for name in sorted(due & {str(table) for table in new} - {str(table) for table in beside}):
            self._jobs.drop(name)
        for name in sorted({str(table) for table in beside} - due):
            self._jobs.create(name, _BESIDE, self._clock.now())
        if beside:
            self._records.reached(CrashPoint.BACKFILL_REQUIRED)

    def _read_anew(self, missing: Collection[TableId]) -> None:
        """Read all rows of these tables, as far as they are read beside their changes: a sink has
        none of them, although some may have been read for another one, or before the table
        stopped."""
        names = {str(table) for table in missing}
        for job in self._jobs.jobs() if names else ():
            if job.request.table in names and job.request.reason and job.started:
                if job.state.is_over:
                    self._jobs.require(job.request.table, _BESIDE, self._clock.now())
                else:
                    self._jobs.write(job.now(self._clock.now(), left=None, rows=0, bytes=0))

    def read(
        self,
        tables: Sequence[SourceTable],
        under_way: Collection[TableId],
        require: Callable[[TableId, TableError], None],
    ) -> None:
        """Have the rows read of tables that began without them although they are to be loaded,
        whatever the settings and their sizes are by now. under_way: tables that are read already;
        require: has a table read, and lets it stop when that fails."""
        for table in tables:
            name = table.table
            is_wanted = self._settings.load_joining and takes(name, self._settings.load)
            if name in self.tables and name not in under_way and is_wanted:
                require(name, TableAltered(_BESIDE, table=str(name)))

    def _read_beside(
        self,
        tables: Sequence[SourceTable],
        held: Collection[TableId],
        snapshot: Snapshot | None,
        *,
        is_joining: bool,
    ) -> set[TableId]:
        """The tables whose rows the stream does not wait for: it waits for the smallest ones, as
        long as they have less than so many bytes together. For tables that join, all others would
        wait whose changes were mirrored before."""
        least = self._settings.load_beside
        if least is None:
            return set()
        if is_joining:
            least = min(least, self._settings.joining_beside)
        found, together = set[TableId](), 0
        able = [t for t in tables if t.table not in held and self._can_be_beside(t)]
        for table in sorted(able, key=lambda one: one.size):
            if together + table.size < least:
                together += table.size
            elif has_ranges(table) or has_notes(snapshot, table):
                found.add(table.table)
        return found

    def _can_be_beside(self, table: SourceTable) -> bool:
        is_refused = str(table.table) in self._records.load_first()
        if is_refused or not takes(table.table, self._settings.load):
            return False
        return has_ranges(table) or self._can_be_read_at_once(table)

    def _can_be_read_at_once(self, table: SourceTable) -> bool:
        """Whether the backfill of a table without ranges is sure to come to its end, if it keeps
        the parts that it has read, since a stream of changes can outrun any attempt: it has to have
        room for all rows. Where a sink is not corrected, rows would be there twice that came as
        changes before they were read."""
        return (
            self._is_corrected
            and not (self._settings.ignores_columns and not table.key)
            and not (self._settings.soft_deletes and table.append_only)
            and table.size <= LARGEST_BESIDE
            and table.size <= shutil.disk_usage(tempfile.gettempdir()).free
        )

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot in which the tables have no rows."""
        return _Without(snapshot, self.tables) if self.tables else snapshot

    def landed(self, part: Part, being_read: Collection[TableId] = ()) -> Part | None:
        """A part of the stream as it is landed, None for nothing. being_read: tables of which each
        row that is not read yet will come whole, so that nothing is lost where values cannot be
        read, because columns have changed since. A row that is selected from a change on may be
        in a part that was read."""
        if not isinstance(part, Changes):
            return part
        is_unloaded = part.table.table in self.tables and bool(part.table.key)
        missing = part.unchanged if is_unloaded else _selected_by_change(part)
        if missing is not None and missing.any():
            assert part.unchanged is not None
            try:
                rows, _gone = filled(self._source, part.table, part.rows, missing)
            except TableError as error:
                selects = part.table.selection.get("rows") is not None
                if not is_unloaded or selects or part.table.table not in being_read:
                    self._lost(part.table.table, error)
                    return None
            else:
                left = part.unchanged & ~missing
                part = replace(part, rows=rows, unchanged=left if left.any() else None)
        return part.replacing() if is_unloaded else part

    def gives_up(self, table: SourceTable, reason: str) -> bool:
        """Whether a table begins anew and is loaded before changes, because it cannot be read
        beside them: without ranges, that may be known only when its rows are read. reason: of its
        backfill. Not a table whose rows are not to be loaded, which is read for another reason."""
        is_mine = table.table in self.tables and self._is_corrected and not has_ranges(table)
        is_mine &= reason == _BESIDE
        if is_mine:
            self._records.note_load_first(str(table.table))
        return is_mine

    def completing(self, table: TableId) -> None:
        """The last rows of the table are landed next."""
        self.tables.discard(table)

    def complete(self, table: TableId) -> None:
        """All rows of the table are landed."""
        self._records.load_rows(str(table))


@dataclass(frozen=True, slots=True)
class _Without:
    """A snapshot in which some tables have no rows."""

    snapshot: Snapshot
    tables: Collection[TableId]

    @property
    def point(self) -> LogPoint:
        return self.snapshot.point

    @property
    def taken(self) -> datetime:
        return self.snapshot.taken

    @property
    def shared(self) -> str:
        return self.snapshot.shared

    @property
    def recognising(self) -> Recognising | None:
        return self.snapshot.recognising

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        return () if table.table in self.tables else self.snapshot.parts(table)

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        return self.snapshot.read(part)

    def ordered(
        self, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        return self.snapshot.ordered(table, keys)

    def estimated(self, table: SourceTable, keys: KeyRange) -> int | None:
        return self.snapshot.estimated(table, keys)

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        return self.snapshot.upto(part)

    def close(self) -> None:
        self.snapshot.close()
