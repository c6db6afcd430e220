"""The initial load of tables: staged whole, then published whole.

Order of effects for one table: its `_metadata.json`; staged files under underscore names; the
metadata again, where parts were read at points of their own; the manifest, which says that the load
is complete; the files under their numbers; the manifest's removal. A crash before the manifest
loads the table again, a crash after it only publishes. The last file of a load has no rows and says
that it is the last.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from functools import reduce

import pyarrow as pa

from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.landing.staged import StagedFile
from mirrorlake.capture.record import Records, StreamRecord
from mirrorlake.capture.sink import Loaded, LoadProgress
from mirrorlake.errors import TableError
from mirrorlake.landing import publish
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FORMAT, FileKind, Footer
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.table import SnapshotPart, SourceTable
from mirrorlake.storage.store import Store

MANIFEST = "_load.json"
STAGED = "_load-"


@dataclass(slots=True)
class LoadOf:
    """The load of one table under way. `staged` maps the order of a file to its name."""

    record: StreamRecord
    table: SourceTable
    folder: str
    rows: int = 0
    staged: dict[tuple[int, int], str] = field(default_factory=dict)
    uptos: list[LogPoint] = field(default_factory=list)
    pending: list[Future[int]] = field(default_factory=list)


@dataclass(slots=True)
class Loader:
    """Loads tables into the zone."""

    records: Records
    file_bytes: int
    reached: CrashHook = no_crash
    progress: Callable[[LoadProgress], None] = lambda _progress: None

    @property
    def store(self) -> Store:
        return self.records.store

    def unfinished(self, folder: str) -> bool:
        """Whether a complete load still waits to be published."""
        return any(f.name == MANIFEST for f in self.store.list(folder).files)

    def run(
        self,
        record: StreamRecord,
        snapshot: Snapshot,
        tables: Sequence[tuple[SourceTable, str]],
        pool: Executor,
    ) -> Iterator[Loaded | TableError]:
        """Load tables (with their folders), several parts at a time; yields each as it ends.

        A table that cannot be loaded yields its error, and the others go on.
        """
        loads = [self._begin(record, table, folder) for table, folder in tables]
        for load in loads:
            for location, part in enumerate(snapshot.parts(load.table)):
                load.pending.append(pool.submit(self._stage, snapshot, load, location, part))
        for load in loads:
            try:
                load.rows = sum(future.result() for future in load.pending)
            except TableError as error:
                for future in load.pending:
                    future.cancel()
                yield error
                continue
            yield self._complete(load, snapshot.point)

    def finish(self, folder: str, table: TableId) -> int:
        """Publish a complete load, from wherever an earlier run stopped. Returns its files."""
        manifest = json.loads(self.store.read(f"{folder}/{MANIFEST}"))
        names: list[str] = manifest["files"]
        left = {file.name for file in self.store.list(folder).files}
        for number, name in enumerate(names, start=1):
            if name in left:
                publish.publish(self.store, folder, f"{folder}/{name}", number, table=str(table))
                self.reached(CrashPoint.LOAD_PUBLISHED_ONE)
        self.store.delete(f"{folder}/{MANIFEST}")
        self.reached(CrashPoint.LOAD_PUBLISHED)
        return len(names)

    def _begin(self, record: StreamRecord, table: SourceTable, folder: str) -> LoadOf:
        table_positions.describe(self.records, table, folder, record.source)
        for file in self.store.list(folder).files:
            if file.name.startswith(STAGED):
                self.store.delete(f"{folder}/{file.name}")
        return LoadOf(record, table, folder)

    def _stage(self, snapshot: Snapshot, load: LoadOf, location: int, part: SnapshotPart) -> int:
        """Write the rows of a part to staged files. Returns their number."""
        total = 0
        for index, batches in enumerate(_groups(snapshot.read(part), self.file_bytes)):
            total += self._write(load, (location, index), batches, snapshot.point, complete=False)
        load.uptos.append(snapshot.upto(part))
        self.reached(CrashPoint.LOAD_STAGED)
        return total

    def _complete(self, load: LoadOf, point: LogPoint) -> Loaded:
        self._write(load, (1 << 60, 0), iter(()), point, complete=True)
        upto = reduce(lambda one, other: one.join(other), load.uptos, point)
        if upto != point:
            table_positions.describe(
                self.records, load.table, load.folder, load.record.source, upto=str(upto)
            )
        names = [load.staged[order] for order in sorted(load.staged)]
        stream = load.record.stream
        manifest = {"format": FORMAT, "stream": stream, "position": str(point), "files": names}
        self.store.replace(f"{load.folder}/{MANIFEST}", json.dumps(manifest).encode())
        self.reached(CrashPoint.LOAD_MANIFEST)
        files = self.finish(load.folder, load.table.table)
        self.progress(LoadProgress(load.table.table, load.rows, load.table.rows, done=True))
        return Loaded(load.table.table, load.rows, files, point)

    def _write(
        self,
        load: LoadOf,
        order: tuple[int, int],
        batches: Iterator[pa.RecordBatch],
        point: LogPoint,
        *,
        complete: bool,
    ) -> int:
        """One staged file, without a marker (LZ-093): every row is an insert."""
        name = f"{STAGED}{order[0]}-{order[1]}.parquet"
        file = StagedFile(self.store, f"{load.folder}/{name}", arrow_schema(load.table.schema))
        rows = 0
        try:
            for batch in batches:
                file.write(batch)
                rows += batch.num_rows
                load.rows += batch.num_rows  # by several threads: near enough for a progress bar
                self.progress(LoadProgress(load.table.table, load.rows, load.table.rows))
        except BaseException:
            file.drop()
            raise
        position = str(Position(point, 0))
        file.finish(
            Footer(
                stream=load.record.stream,
                kind=FileKind.LOAD,
                first=position,
                last=position,
                complete=complete,
                rows={"0": rows} if rows else {},
                stream_id=self.records.stream_id,
            )
        )
        load.staged[order] = name
        return rows


def _groups(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[Iterator[pa.RecordBatch]]:
    """Batches for one file each, of about `size` bytes in memory; each must be used up."""

    def one_file(first: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        held = first.nbytes
        yield first
        while held < size:
            batch = next(batches, None)
            if batch is None:
                return
            held += batch.nbytes
            yield batch

    while (first := next(batches, None)) is not None:
        yield one_file(first)
