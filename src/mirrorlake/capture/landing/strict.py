"""Strict zones, which any other engine can read: they contain nothing that only we understand.

Values that the source did not send are read again from the current row. If the row has changed
since, that change follows in the stream and overwrites the value; if the row is gone, its deletion
follows. A truncation recreates the table's folder (LZ-216).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirrorlake.capture.filled import filled
from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.origins import METADATA, with_metadata
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.segments import RowSegment
from mirrorlake.capture.staged.staged_file import StagedFile
from mirrorlake.landing import publish
from mirrorlake.landing.parquet.unchanged import unpacked
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.position import Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable

STAGING = "staged"


class Strict:
    """Rewrites changes so that every engine can apply them."""

    def __init__(
        self,
        source: Source,
        records: Records,
        stream: StreamRecord,
        tables: Sequence[SourceTable],
        *,
        metadata: bool = False,
    ) -> None:
        """metadata: whether rows have metadata columns."""
        self._metadata = metadata
        self._source, self._store, self._records = source, records.store, records
        self._staging = f"{records.folder}/{STAGING}"
        self._stream, self._identity = stream.stream, stream.source
        self._tables = {table.table: table for table in tables}

    def staging(self, folder: str) -> str:
        """The folder for staged files of a table; the table's own folder may be deleted at any
        time."""
        return f"{self._staging}/{folder.removeprefix(f'{self._records.zone}/')}"

    def remove_staged(self) -> None:
        """Remove what an interrupted run left unpublished."""
        self._store.delete_folder(self._staging)

    def fill(self, rows: RowSegment) -> RowSegment:
        """The rows with all values."""
        if rows.unchanged is None:
            return rows
        missing = unpacked(rows.unchanged, rows.rows.num_columns)
        whole, _gone = filled(self._source, rows.table, rows.rows, missing)
        return replace(rows, rows=whole, unchanged=None)

    def recreate(self, table: TableId, folder: str, position: Position) -> int:
        """Empty a table: recreate its folder with a first file that has no rows.

        The position is recorded first: from then on nothing before it is published again, and after
        a crash in between, `complete` finishes the work.
        """
        generation = table_positions.new_generation()
        own = self._tables[table]
        self._records.truncate(table, str(position), generation, own.identity)
        self._rebuild(own, folder, generation, position)
        return 1

    def complete(self, table: SourceTable, folder: str) -> Position | None:
        """Finish a truncation that a crash interrupted. Returns the position of the last
        truncation."""
        entry = self._records.truncated().get(str(table.table))
        if entry is None:
            return None
        position = Position.parse(entry["position"], self._source.parse_point)
        found = table_positions.generation_of(self._store, table.table, folder)
        if found != entry["generation"] or publish.newest_file(self._store, folder) is None:
            self._rebuild(table, folder, entry["generation"], position)
        return position

    def _rebuild(
        self, table: SourceTable, folder: str, generation: str, position: Position
    ) -> None:
        self._store.delete_folder(folder)
        table_positions.describe(self._records, table, folder, self._identity, generation)
        staged = publish.staged_path(self.staging(folder), "empty")
        rows = arrow_schema(table.schema).empty_table()
        if self._metadata:
            rows = with_metadata(rows, METADATA.empty_table())
        file = StagedFile(self._store, staged, rows.schema)
        file.finish(
            Footer(
                stream=self._stream,
                kind=FileKind.CHANGES,
                first=str(position),
                last=str(position),
                complete=True,
                stream_id=self._records.stream_id,
            )
        )
        publish.publish(self._store, folder, staged, 1, table=str(table.table))
