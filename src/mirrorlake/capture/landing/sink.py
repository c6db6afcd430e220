"""The landing zone as a sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor

from mirrorlake.capture.backfill.requests import refusal
from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.landing.load import Loader
from mirrorlake.capture.landing.load_of import Loading
from mirrorlake.capture.landing.strict import Strict
from mirrorlake.capture.landing.table_positions import TablePosition
from mirrorlake.capture.landing.writer import LandingWriter
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Loaded, LoadProgress, Lost
from mirrorlake.errors import SelectionChanged, TableError, UnsupportedTable
from mirrorlake.landing import layout, publish
from mirrorlake.landing.cuts import Cuts
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.sources.table import SourceTable


class LandingSink:
    """A `Sink`: numbered files per table, and cuts of all tables of the stream."""

    name = "landing"
    metadata = False
    is_corrected = True

    def __init__(
        self,
        source: Source,
        records: Records,
        settings: CaptureSettings,
        reached: CrashHook = no_crash,
        progress: Callable[[LoadProgress], None] = lambda _progress: None,
    ) -> None:
        self._source, self._records, self._settings = source, records, settings
        self._store = records.store
        self._reached = reached
        self._cuts = Cuts(records.store, records.zone, records.stream_id)
        self._loader = Loader(
            records,
            settings.load_bytes,
            reached,
            progress,
            metadata=settings.metadata_columns,
            on_spark=settings.parts_on_spark,
        )

    @property
    def unsupported(self) -> str:
        return refusal(strict=self._settings.strict)

    def recover(self) -> None:
        table_positions.flush_zone(self._records)

    def durable(self) -> LogPoint | None:
        newest = self._cuts.newest()
        return self._source.parse_point(newest.position) if newest else None

    def tables(self) -> Collection[TableId]:
        return table_positions.known(self._records).keys()

    def holds(self, table: TableId) -> bool:
        if str(table) in self._records.truncated():
            return True
        folder = table_positions.known(self._records).get(table)
        return folder is not None and not table_positions.is_new(table, folder, self._records)

    def ends(self) -> Collection[LogPoint]:
        return table_positions.ends(self._records, self._source)

    def identities(self) -> Mapping[TableId, str]:
        return table_positions.identities(self._records)

    def loaded_as(self, table: TableId) -> str:
        return self.identities().get(table, "")

    def drop(self, table: TableId) -> None:
        for folder in table_positions.folders(self._records, [table]).values():
            self._store.delete_folder(folder)

    def end(self, table: TableId) -> bool:
        for folder in table_positions.folders(self._records, [table]).values():
            self._records.note_deleted(str(table), folder)
            self._store.delete_folder(folder)
        return True

    def clear(self) -> None:
        self._store.delete_folder(f"{self._records.folder}/{layout.CUTS}")
        for folder in table_positions.known(self._records).values():
            self._store.delete_folder(folder)

    def missing(self, tables: Sequence[SourceTable]) -> list[SourceTable]:
        found = []
        for table, folder in self._folders(tables):
            publish.remove_staged(self._store, folder)
            if self._loader.unfinished(folder):
                self._loader.finish(folder, table.table)
            elif table_positions.is_new(table.table, folder, self._records):
                found.append(table)
            else:
                self._loader.collect(folder)
        return found

    def load(
        self,
        record: StreamRecord,
        snapshot: Snapshot,
        tables: Sequence[SourceTable],
        pool: Executor,
        guard: Callable[[], None],
    ) -> Iterator[Loaded | TableError | None]:
        refused = [table for table in tables if self._settings.strict and table.whole_rows]
        for table in refused:
            yield UnsupportedTable(
                "other engines would delete all rows that are equal to a deleted one, because the "
                "table has no key",
                table=str(table.table),
                hint="Give the table a key, or set landing.strict to false.",
            )
        left = [table for table in tables if table not in refused]
        self._cuts.begin_anew([str(table.table) for table in left])
        located = self._folders(left)
        self._records.note_filled([folder for _table, folder in located])
        loading = Loading(record, snapshot, guard)
        yield from self._loader.run(loading, located, pool)

    def open(
        self, record: StreamRecord, tables: Sequence[SourceTable], start: LogPoint, lost: Lost
    ) -> LandingWriter:
        strict = None
        if self._settings.strict:
            metadata = self._settings.metadata_columns
            strict = Strict(self._source, self._records, record, tables, metadata=metadata)
            strict.remove_staged()
        return LandingWriter(
            self._records,
            record,
            self._cuts,
            list(self._positions(tables, strict, lost)),
            (self.durable() or start).join(start),
            self._settings,
            lost,
            self._reached,
            strict,
        )

    def _positions(
        self, tables: Sequence[SourceTable], strict: Strict | None, lost: Lost
    ) -> Iterator[TablePosition]:
        located = self._folders(tables)
        for other in {table.table for table in tables} - {table.table for table, _ in located}:
            error = SelectionChanged(
                "another stream of this project captures the table already",
                table=str(other),
                hint="Remove it from source.tables of one of the two sources.",
            )
            lost(other, error)
        cut = self._cuts.newest()
        for table, folder in located:
            truncated = strict.complete(table, folder) if strict else None
            try:
                yield table_positions.find(
                    self._records, self._source, table, folder, truncated, cut
                )
            except TableError as error:
                lost(table.table, error)

    def _folders(self, tables: Sequence[SourceTable]) -> list[tuple[SourceTable, str]]:
        """The tables with their folders, without tables of other streams."""
        found = table_positions.folders(self._records, [table.table for table in tables])
        return [(table, found[table.table]) for table in tables if table.table in found]
