"""The initial load of tables: all files are staged, then published.

Order of effects for one table: write `_metadata.json`; stage files under names with an underscore;
write the metadata again if parts were read at different points; write the manifest, which marks the
load as complete; publish the files under their numbers; delete the manifest. After a crash before
the manifest, the table is loaded again; after a later crash, it is only published. The last file of
a load has no rows and marks the end of the load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, field
from functools import reduce

import pyarrow as pa
import structlog

from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.landing.load_files import LoadFiles, groups
from mirrorlake.capture.landing.load_tasks import (
    LoadTasks,
    PartAnswer,
    PartFailure,
    TableTasks,
    description_of,
)
from mirrorlake.capture.landing.remote_parts import RemoteParts
from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.record import Records, StreamRecord
from mirrorlake.capture.sink import Loaded, LoadProgress
from mirrorlake.capture.staging import as_staged, results
from mirrorlake.errors import RowsMoved, TableError
from mirrorlake.landing import publish
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FORMAT
from mirrorlake.model.position import LogPoint, Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.table import SnapshotPart, SourceTable
from mirrorlake.storage.store import Store

log = structlog.get_logger()

LOAD_BEGUN_ANEW = "load_begun_anew"

MANIFEST = "_load.json"


@dataclass(slots=True)
class LoadOf:
    """The load of one table in progress. `staged` maps the order of a file to its name. moved: why
    the table has to be read anew, because its rows were moved meanwhile; empty as long as not."""

    record: StreamRecord
    table: SourceTable
    folder: str
    rows: int = 0
    staged: dict[tuple[int, int], str] = field(default_factory=dict)
    uptos: list[LogPoint] = field(default_factory=list)
    pending: list[Future[int]] = field(default_factory=list)
    moved: str = ""


@dataclass(slots=True)
class Loader:
    """Loads tables into the zone. metadata: whether rows have metadata columns; on_spark: whether
    tables of several parts are read by tasks of the mirror."""

    records: Records
    file_bytes: int
    reached: CrashHook = no_crash
    progress: Callable[[LoadProgress], None] = lambda _progress: None
    metadata: bool = False
    on_spark: bool = False

    @property
    def store(self) -> Store:
        return self.records.store

    def unfinished(self, folder: str) -> bool:
        """Whether a complete load has not been published yet."""
        return any(f.name == MANIFEST for f in self.store.list(folder).files)

    def run(
        self,
        record: StreamRecord,
        snapshot: Snapshot,
        tables: Sequence[tuple[SourceTable, str]],
        pool: Executor,
    ) -> Iterator[Loaded | TableError | None]:
        """Load tables (given with their folders), several parts at a time; yields each when it is
        loaded, and None meanwhile.

        A table that cannot be loaded yields its error, and the others continue. A table whose rows
        were moved between two of its parts is read anew, in the same snapshot.
        """
        remote = self._remote(snapshot, tables)
        try:
            left = list(tables)
            while left:
                loads = [self._begin(record, table, folder) for table, folder in left]
                left = []
                for load in loads:
                    self.progress(LoadProgress(load.table.table, 0, load.table.rows))
                    load.pending += self._submit(snapshot, load, pool, remote)
                for staged in as_staged(loads):
                    if staged is None and remote is not None:
                        remote.look()
                    if staged and staged.moved:
                        reason = staged.moved
                        log.info(LOAD_BEGUN_ANEW, table=str(staged.table.table), reason=reason)
                        left.append((staged.table, staged.folder))
                    else:
                        yield self._staged(staged, snapshot.point) if staged else None
        finally:
            if remote is not None:
                remote.end()

    def _submit(
        self, snapshot: Snapshot, load: LoadOf, pool: Executor, remote: RemoteParts | None
    ) -> Sequence[Future[int]]:
        """Let the parts of a table be read."""
        parts = snapshot.parts(load.table)
        if remote is not None and len(parts) > 1:
            return self._ask(remote, snapshot, load, parts)
        return [
            pool.submit(self._stage, snapshot, load, location, part)
            for location, part in enumerate(parts)
        ]

    def _remote(
        self, snapshot: Snapshot, tables: Sequence[tuple[SourceTable, str]]
    ) -> RemoteParts | None:
        """What has parts read elsewhere, where that is set and possible."""
        if not (self.on_spark and tables and snapshot.shared):
            return None
        tasks = LoadTasks.begin(self.store, self.records.folder)
        return RemoteParts(tasks, lambda: snapshot.parts(tables[0][0]))

    def _ask(
        self, remote: RemoteParts, snapshot: Snapshot, load: LoadOf, parts: Sequence[SnapshotPart]
    ) -> Sequence[Future[int]]:
        """Let the parts of a table be read elsewhere, all at the point of the snapshot."""

        def note(location: int, answer: PartAnswer) -> None:
            if answer.failure is PartFailure.MOVED:
                load.moved = answer.what
                return
            for index, name in enumerate(answer.files):
                load.staged[location, index] = name
            load.rows += answer.rows
            self.progress(LoadProgress(load.table.table, load.rows, load.table.rows))
            self.reached(CrashPoint.LOAD_STAGED)

        asked = TableTasks(
            table=str(load.table.table),
            identity=load.table.identity,
            description=description_of(load.table),
            snapshot=snapshot.shared,
            point=str(snapshot.point),
            folder=load.folder,
            stream=load.record.stream,
            stream_id=self.records.stream_id,
            metadata=self.metadata,
            file_bytes=self.file_bytes,
            parts=[(location, asdict(part.range)) for location, part in enumerate(parts)],
        )
        return remote.submit(asked, note)

    def _staged(self, load: LoadOf, point: LogPoint) -> Loaded | TableError:
        try:
            load.rows = sum(results(load))
        except TableError as error:
            return error
        return self._complete(load, point)

    def finish(self, folder: str, table: TableId) -> int:
        """Publish a complete load, continuing where an earlier run stopped. Returns its number of
        files."""
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

    def collect(self, folder: str) -> None:
        """Delete what attempts to read parts elsewhere left in the folder of a loaded table."""
        if self.on_spark:
            self._delete_staged(folder)

    def _begin(self, record: StreamRecord, table: SourceTable, folder: str) -> LoadOf:
        table_positions.describe(self.records, table, folder, record.source)
        self._delete_staged(folder)
        return LoadOf(record, table, folder)

    def _delete_staged(self, folder: str) -> None:
        for file in self.store.list(folder).files:
            if file.name.startswith(STAGED):
                self.store.delete(f"{folder}/{file.name}")

    def _stage(self, snapshot: Snapshot, load: LoadOf, location: int, part: SnapshotPart) -> int:
        """Write the rows of a part to staged files. Returns the number of rows."""
        total = 0
        if load.moved:
            return 0
        try:
            for index, batches in enumerate(groups(snapshot.read(part), self.file_bytes)):
                total += self._write(
                    load, (location, index), batches, snapshot.point, complete=False
                )
        except RowsMoved as error:
            load.moved = error.what
            return 0
        load.uptos.append(snapshot.upto(part))
        self.reached(CrashPoint.LOAD_STAGED)
        return total

    def _complete(self, load: LoadOf, point: LogPoint) -> Loaded:
        self._write(load, (1 << 60, 0), iter(()), point, complete=True)
        upto = reduce(lambda left, right: left.join(right), load.uptos, point)
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
        self.collect(load.folder)
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
        """Write one staged file of this process."""

        def written(rows: int) -> None:
            load.rows += rows  # not synchronized: accurate enough for progress
            self.progress(LoadProgress(load.table.table, load.rows, load.table.rows))

        files = LoadFiles(
            self.store,
            load.table.schema,
            Position(point, 0),
            load.record.stream,
            self.records.stream_id,
            self.metadata,
        )
        name = f"{STAGED}{order[0]}-{order[1]}.parquet"
        rows = files.write(f"{load.folder}/{name}", batches, complete=complete, written=written)
        load.staged[order] = name
        return rows
