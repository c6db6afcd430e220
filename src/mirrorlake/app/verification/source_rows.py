"""The rows of a source as they were at a later position than that of its snapshot.

A mirror shows only the positions of its cuts, and a snapshot is at a position of its own. So the
changes between a snapshot and the cut are read from the log, apart from the stream of the mirror,
and applied to the rows of the snapshot: what is compared is exact while changes flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.capture.backfill.reading import ChunkLimits, ReadChunk, chunks
from mirrorlake.capture.backfill.window import ChangeWindow, Spoiled
from mirrorlake.errors import TableAltered, TableError
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import contiguous, nullable_schema
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.keys import KeyRange
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.sources.chunk import Chunk, TableDiffers, TableLost
from mirrorlake.sources.table import SourceTable

_READ_SECONDS = 0.5


class RowsAtCut:
    """The rows of some tables at `until`, from a snapshot and the changes behind it."""

    def __init__(self, snapshot: Snapshot, tables: Sequence[SourceTable], until: LogPoint) -> None:
        self._snapshot, self._until = snapshot, until
        self._windows = {table.table: ChangeWindow(table, snapshot.point) for table in tables}
        self._faults: dict[TableId, TableError] = {}

    def read_changes(self, source: Source, waited: Callable[[], None]) -> None:
        """Read the changes up to `until`. waited: called now and then; it may raise."""
        tables = [window.table for window in self._windows.values()]
        reached = self._snapshot.point
        with closing(source.beyond(self._snapshot, tables)) as stream:
            while not reached.covers(self._until):
                waited()
                if (chunk := stream.read(_READ_SECONDS)) is not None:
                    self._take(chunk)
                    for point in chunk.reached():
                        reached = reached.join(point)

    def _take(self, chunk: Chunk) -> None:
        for part in chunk.parts:
            if isinstance(part, TableLost | TableDiffers):
                self._faults.setdefault(part.table, part.error)
        for window in self._windows.values():
            window.take(chunk)

    def of(
        self, table: SourceTable, keys: KeyRange, limits: ChunkLimits
    ) -> Iterator[tuple[KeyRange, pa.Table]]:
        """The rows of a table by ranges of its key, which together are `keys`. Raises TableError
        when it cannot be read so, or was altered meanwhile; SourceUnavailable."""
        if fault := self._faults.get(table.table):
            raise fault
        for chunk in chunks(self._snapshot, table, keys, limits):
            yield chunk.keys, self._at_cut(table, chunk)

    def _at_cut(self, table: SourceTable, chunk: ReadChunk) -> pa.Table:
        window = self._windows[table.table]
        try:
            if self._until.covers(chunk.upto):
                return folded(table, window.behind(chunk, self._until))
            what = f"it was read after {self._until}"
        except Spoiled as reason:
            what = str(reason)
        raise TableAltered(
            f"the table could not be compared: {what}",
            table=str(table.table),
            hint=f"Run `mirrorlake verify {table.table}` again.",
        )


def folded(table: SourceTable, landed: pa.Table) -> pa.Table:
    """The rows that landed changes leave."""
    unchanged = (
        contiguous(landed[UNCHANGED_COLUMN]) if UNCHANGED_COLUMN in landed.column_names else None
    )
    schema = nullable_schema(table.schema)
    data = landed.select(schema.names).cast(schema)
    rows = Rows(data, contiguous(landed[MARKER_COLUMN]), unchanged, tuple(schema.names))
    batch = LandedBatch(str(table.table), table.schema, table.key, [("the source", rows)])
    if table.whole_rows:
        batch = replace(batch, key=table.schema.names, whole_rows=True)
    return fold(batch).rows
