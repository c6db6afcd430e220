"""Tables whose rows are not loaded: only changes are landed, until a backfill has read all rows.

A row appears with its first change. Until then the mirror may lack it, so values that the source
did not send are taken from the row as it is now; if it has changed since, that change follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from mirrorlake.capture.filled import filled
from mirrorlake.capture.record import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Lost
from mirrorlake.errors import TableError
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.sources.chunk import Changes, Part
from mirrorlake.sources.selection import matches
from mirrorlake.sources.table import SnapshotPart, SourceTable


class Unloaded:
    """Those of one stream. `tables`: what is known of them since `begin`."""

    def __init__(
        self, source: Source, records: Records, settings: CaptureSettings, lost: Lost
    ) -> None:
        """lost: called for a table of which values cannot be read."""
        self._source, self._records, self._settings = source, records, settings
        self._lost = lost
        self.tables: set[TableId] = set()

    def begin(self, missing: Sequence[SourceTable] = ()) -> None:
        """Decide, once for each table that is to be loaded, whether its rows are. Tables that are
        not there when the stream begins have joined it later. A table whose deletions name whole
        rows is always loaded: each of them must find its row."""
        known = self._records.loads()
        if known is None and self._settings.loads_all:
            return
        is_joining = known is not None
        loads = {
            name: table.whole_rows
            or (
                matches(name, self._settings.load)
                and (self._settings.load_joining or not is_joining)
            )
            for table in missing
            for name in [str(table.table)]
            if name not in (known or {})
        }
        if loads or not is_joining:
            self._records.write_loads((known or {}) | loads)
        self.tables = {TableId.parse(name) for name in self._records.unloaded()}

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """A snapshot in which the tables have no rows."""
        return _Without(snapshot, self.tables) if self.tables else snapshot

    def landed(self, part: Part) -> Part | None:
        """A part of the stream as it is landed, None for nothing."""
        if not isinstance(part, Changes) or part.table.table not in self.tables:
            return part
        if part.unchanged is not None and part.unchanged.any():
            try:
                rows, _gone = filled(self._source, part.table, part.rows, part.unchanged)
            except TableError as error:
                self._lost(part.table.table, error)
                return None
            part = replace(part, rows=rows, unchanged=None)
        return part.replacing() if part.table.key else part

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
    def shared(self) -> str:
        return self.snapshot.shared

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
