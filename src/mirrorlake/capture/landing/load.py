"""The initial load of tables: all files are staged, then published.

Order of effects for one table: write `_metadata.json`; stage files under names with an underscore,
and of a table with several parts a note for each part that is staged (`parts.py`); write the
metadata again if parts were read at different points; write the manifest, which marks the load as
complete; publish the files under their numbers; delete the other staged files, then the manifest.
After a crash before the manifest, the table is loaded again, and keeps what is noted; after a later
crash, it is only published. The last file of a load has no rows and marks the end of the load.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from functools import reduce

import pyarrow as pa
import structlog

from mirrorlake.capture.landing import table_positions
from mirrorlake.capture.landing.files.load_files import LoadFiles, groups
from mirrorlake.capture.landing.load_of import LAST, Loading, LoadOf, Order
from mirrorlake.capture.landing.load_tasks import (
    LoadTasks,
    PartAnswer,
    PartFailure,
    TableTasks,
    description_of,
)
from mirrorlake.capture.landing.remote_parts import RemoteParts
from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Loaded, LoadProgress
from mirrorlake.capture.staged.parts import (
    NOTE,
    PartNote,
    StillThere,
    VersionsFile,
    delete_others,
    facts_of,
    held,
    still_there,
)
from mirrorlake.capture.staged.staged_file import DamagedStagedFile, batches_of
from mirrorlake.capture.staging import as_staged, results
from mirrorlake.errors import RowsMoved, TableError
from mirrorlake.landing import publish
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import FORMAT
from mirrorlake.model.position import Position
from mirrorlake.model.table import TableId
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store, read_record

log = structlog.get_logger()

LOAD_BEGUN_ANEW = "load_begun_anew"
LOAD_RESUMED = "load_resumed"
LOAD_PART_DAMAGED = "load_part_damaged"

MANIFEST = "_load.json"


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
    _attempt: int = 0

    @property
    def store(self) -> Store:
        return self.records.store

    def unfinished(self, folder: str) -> bool:
        """Whether a complete load has not been published yet."""
        return any(f.name == MANIFEST for f in self.store.list(folder).files)

    def run(
        self,
        loading: Loading,
        tables: Sequence[tuple[SourceTable, str]],
        pool: Executor,
    ) -> Iterator[Loaded | TableError | None]:
        """Load tables (given with their folders), several parts at a time; yields each when it is
        loaded, and None meanwhile.

        A table that cannot be loaded yields its error, and the others continue. A table whose rows
        were moved between two of its parts is read anew, in the same snapshot.
        """
        remote = self._remote(loading, tables)
        try:
            left = list(tables)
            while left:
                loads = [self._begin(loading, table, folder) for table, folder in left]
                left = []
                for load in loads:
                    self.progress(LoadProgress(load.table.table, 0, load.table.rows))
                    load.pending += self._submit(load, pool, remote)
                for staged in as_staged(loads):
                    if staged is None and remote is not None:
                        remote.look()
                    if staged and staged.moved:
                        why = staged.moved
                        log.info(LOAD_BEGUN_ANEW, table=str(staged.table.table), reason=why)
                        loading.guard()
                        delete_others(self.store, staged.folder, STAGED, ())
                        left.append((staged.table, staged.folder))
                    else:
                        yield self._staged(staged) if staged else None
        finally:
            if remote is not None:
                remote.end()

    def _submit(
        self, load: LoadOf, pool: Executor, remote: RemoteParts | None
    ) -> Sequence[Future[int]]:
        """Let the parts of a table be read: those that were read before by this process."""
        locations = range(len(load.parts))
        if remote is None or len(load.parts) < 2:
            return [pool.submit(self._stage, load, location) for location in locations]
        missing = [location for location in locations if location not in load.notes]
        asked = self._ask(remote, load, missing) if missing else ()
        return [*asked, *(pool.submit(self._stage, load, location) for location in load.notes)]

    def _remote(
        self, loading: Loading, tables: Sequence[tuple[SourceTable, str]]
    ) -> RemoteParts | None:
        """What has parts read elsewhere, where that is set and possible."""
        snapshot = loading.snapshot
        if not (self.on_spark and tables and snapshot.shared):
            return None
        tasks = LoadTasks.begin(self.store, self.records.folder)
        return RemoteParts(tasks, lambda: snapshot.parts(tables[0][0]))

    def _ask(
        self, remote: RemoteParts, load: LoadOf, locations: Sequence[int]
    ) -> Sequence[Future[int]]:
        """Let parts of a table be read elsewhere, all at the point of the snapshot."""

        def note(location: int, answer: PartAnswer) -> None:
            if answer.failure is PartFailure.MOVED:
                load.moved = answer.what
                return
            for index, (name, _rows) in enumerate(answer.files):
                load.staged[load.attempt, location, index] = name
            self._count(load, answer.rows)
            if answer.versions:
                self._note(load, location, answer.files, answer.versions)
            self.reached(CrashPoint.LOAD_STAGED)

        asked = TableTasks(
            table=str(load.table.table),
            identity=load.table.identity,
            description=description_of(load.table),
            extremes=str((load.facts[locations[0]] or {}).get("extremes", "")),
            snapshot=load.loading.snapshot.shared,
            point=str(load.loading.point),
            folder=load.folder,
            stream=load.loading.record.stream,
            stream_id=self.records.stream_id,
            metadata=self.metadata,
            file_bytes=self.file_bytes,
            parts=[(n, asdict(load.parts[n].range), load.facts[n] is not None) for n in locations],
        )
        return remote.submit(asked, note)

    def _staged(self, load: LoadOf) -> Loaded | TableError:
        try:
            load.rows = sum(results(load))
        except TableError as error:
            return error
        return self._complete(load)

    def finish(self, folder: str, table: TableId) -> int:
        """Publish a complete load, continuing where an earlier run stopped. Returns its number of
        files. Raises RecordDamaged."""
        hint = f"Run `mirrorlake reset {table}` to load the table again."
        manifest = read_record(self.store, f"{folder}/{MANIFEST}", hint)
        names: list[str] = manifest["files"]
        left = {file.name for file in self.store.list(folder).files}
        for number, name in enumerate(names, start=1):
            if name in left:
                publish.publish(self.store, folder, f"{folder}/{name}", number, table=str(table))
                self.reached(CrashPoint.LOAD_PUBLISHED_ONE)
        delete_others(self.store, folder, STAGED, ())
        self.store.delete(f"{folder}/{MANIFEST}")
        self.reached(CrashPoint.LOAD_PUBLISHED)
        return len(names)

    def collect(self, folder: str) -> None:
        """Delete what attempts to read parts elsewhere left in the folder of a loaded table."""
        if self.on_spark:
            delete_others(self.store, folder, STAGED, ())

    def _begin(self, loading: Loading, table: SourceTable, folder: str) -> LoadOf:
        """Note that the table is loaded, and find what an earlier attempt has noted of it."""
        loading.guard()
        table_positions.describe(self.records, table, folder, loading.record.source)
        parts = loading.snapshot.parts(table)
        record = loading.record
        stream = [record.stream, self.records.stream_id]
        facts = facts_of(loading.snapshot, parts, record, stream=stream, metadata=self.metadata)
        before = held(self.store, folder, STAGED, facts, loading.guard)
        kept = len(before.notes)
        if kept:
            log.info(LOAD_RESUMED, table=str(table.table), parts=len(parts), kept=kept)
        elif before.why_none:
            log.info(LOAD_BEGUN_ANEW, table=str(table.table), reason=before.why_none)
        self._attempt = max(self._attempt + 1, before.attempt)
        return LoadOf(loading, table, folder, parts, facts, before.notes, self._attempt)

    def _stage(self, load: LoadOf, location: int) -> int:
        """Write the rows of a part to staged files. Returns the number of rows."""
        if load.moved:
            return 0
        try:
            rows = self._keep(load, location)
            if rows is None:
                rows = self._read(load, location)
        except RowsMoved as error:
            load.moved = error.what
            return 0
        load.uptos.append(load.loading.snapshot.upto(load.parts[location]))
        self.reached(CrashPoint.LOAD_STAGED)
        return rows

    def _read(self, load: LoadOf, location: int) -> int:
        """Stage a part as it is in the snapshot."""
        snapshot = load.loading.snapshot
        part, facts = load.parts[location], load.facts[location]
        if facts is None or snapshot.recognising is None:
            written = self._write_all(load, location, snapshot.read(part))
            return sum(rows for _name, rows in written)
        versions = load.name(location, "versions")
        with VersionsFile(self.store, f"{load.folder}/{versions}") as noting:
            rows = noting.noted(snapshot.recognising.versioned(part))
            written = self._write_all(load, location, rows)
        if written:
            self._note(load, location, written, versions)
        return sum(rows for _name, rows in written)

    def _note(
        self, load: LoadOf, location: int, files: Sequence[tuple[str, int]], versions: str
    ) -> None:
        """Note a part that is staged."""
        facts = load.facts[location]
        assert facts is not None
        load.loading.guard()
        name = load.name(location, "note", NOTE)
        note = PartNote(name, load.attempt, facts, tuple(files), versions)
        note.write(self.store, load.folder)
        self.reached(CrashPoint.LOAD_NOTED)

    def _keep(self, load: LoadOf, location: int) -> int | None:
        """Stage a part that was read before, as it is in the snapshot; None to read it anew."""
        note, part = load.notes.get(location), load.parts[location]
        recognising = load.loading.snapshot.recognising
        if note is None or recognising is None:
            return None
        found = still_there(self.store, load.folder, note, recognising, part)
        if found is None or not self._is_intact(load, note, found):
            return None
        new = (rows for rows, _version in recognising.only(part, found.new))
        read = self._write_all(load, location, new)
        files = zip(note.files, found.masks, strict=True)
        for number, ((name, rows), mask) in enumerate(files):
            if mask is None:
                load.staged[note.attempt, location, number] = name
                self._count(load, rows)
            elif mask.any():
                left = self._files(load).left(f"{load.folder}/{name}", mask)
                order = (load.attempt, location, len(read) + number)
                # Huge texts may follow others there, which a data file must not have.
                self._write(load, order, left, compact=True)
        return found.rows + sum(rows for _name, rows in read)

    def _is_intact(self, load: LoadOf, note: PartNote, found: StillThere) -> bool:
        """Whether the files of a part from which rows are taken have the bytes that were written.
        The others are verified when they are applied."""
        for (name, _rows), mask in zip(note.files, found.masks, strict=True):
            if mask is None or not mask.any():
                continue
            try:
                for _batch in batches_of(self.store, f"{load.folder}/{name}"):
                    pass
            except DamagedStagedFile:
                log.warning(LOAD_PART_DAMAGED, table=str(load.table.table), file=name)
                return False
        return True

    def _complete(self, load: LoadOf) -> Loaded:
        point, record = load.loading.point, load.loading.record
        self._write(load, LAST, (), complete=True)
        upto = reduce(lambda left, right: left.join(right), load.uptos, point)
        if upto != point:
            table_positions.describe(
                self.records, load.table, load.folder, record.source, upto=str(upto)
            )
        names = [load.staged[order] for order in sorted(load.staged)]
        manifest = {
            "format": FORMAT,
            "stream": record.stream,
            "position": str(point),
            "files": names,
        }
        load.loading.guard()
        self.store.replace(f"{load.folder}/{MANIFEST}", json.dumps(manifest).encode())
        self.reached(CrashPoint.LOAD_MANIFEST)
        files = self.finish(load.folder, load.table.table)
        self.collect(load.folder)
        self.progress(LoadProgress(load.table.table, load.rows, load.table.rows, done=True))
        return Loaded(load.table.table, load.rows, files, point)

    def _write_all(
        self, load: LoadOf, location: int, batches: Iterator[pa.RecordBatch]
    ) -> list[tuple[str, int]]:
        """Write rows to files of the usual size. Returns the name and the rows of each."""
        written = []
        for index, group in enumerate(groups(batches, self.file_bytes)):
            order = (load.attempt, location, index)
            rows = self._write(load, order, group)
            written.append((load.staged[order], rows))
        return written

    def _write(
        self,
        load: LoadOf,
        order: Order,
        batches: Iterable[pa.RecordBatch | pa.Table],
        *,
        complete: bool = False,
        compact: bool = False,
    ) -> int:
        """Write one staged file of this process. Returns the number of rows."""
        _attempt, location, index = order
        name = load.name(location, index)
        rows = self._files(load).write(
            f"{load.folder}/{name}",
            batches,
            complete=complete,
            compact=compact,
            written=lambda rows: self._count(load, rows),
        )
        load.staged[order] = name
        return rows

    def _count(self, load: LoadOf, rows: int) -> None:
        load.rows += rows  # not synchronized: accurate enough for progress
        self.progress(LoadProgress(load.table.table, load.rows, load.table.rows))

    def _files(self, load: LoadOf) -> LoadFiles:
        return LoadFiles(
            self.store,
            load.table.schema,
            Position(load.loading.point, 0),
            load.loading.record.stream,
            self.records.stream_id,
            self.metadata,
        )
