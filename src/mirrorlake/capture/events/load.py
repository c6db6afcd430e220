"""The initial load of tables into event files: made aside whole, then written whole.

Order of effects for one table: its files below the root of the mirror; the list of them, which says
that the load is complete; the files at the destination; the note that the table is loaded. A crash
before the list loads the table again, a crash after it only writes the files again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, field, replace

import pyarrow as pa
import structlog

from mirrorlake import root
from mirrorlake.capture.events import build
from mirrorlake.capture.events.files import FileMaker
from mirrorlake.capture.events.infinities import Infinities
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.state import EventState, WrittenEvents, milliseconds
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Loaded, LoadProgress
from mirrorlake.capture.staging import as_staged, results
from mirrorlake.errors import TableError
from mirrorlake.events.paths import is_schema_file, object_folder
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.sources.base import Snapshot
from mirrorlake.sources.replaced import ReplacedValues
from mirrorlake.sources.table import SnapshotPart, SourceTable
from mirrorlake.storage.store import Store

log = structlog.get_logger()

LOAD_BEGUN_ANEW = "load_begun_anew"


@dataclass(slots=True)
class EventLoad:
    """The load of one table under way. staged: where each file of the destination waits."""

    table: SourceTable
    batch: int
    taken: int
    folder: str
    rows: int = 0
    staged: dict[str, str] = field(default_factory=dict)
    pending: list[Future[WrittenEvents]] = field(default_factory=list)


@dataclass(slots=True)
class EventLoader:
    """Loads tables. store: the destination."""

    records: Records
    settings: EventsSettings
    store: Store
    file_bytes: int
    clock: Clock
    reached: CrashHook
    progress: Callable[[LoadProgress], None]

    def run(
        self, snapshot: Snapshot, tables: Sequence[SourceTable], pool: Executor
    ) -> Iterator[Loaded | TableError | None]:
        """Load tables; yields each as it is durable, and None meanwhile."""
        state = self._state()
        infinities = Infinities(self.settings.infinite, ReplacedValues().note)
        loads = []
        for table in tables:
            state, taken = state.read_at(str(table.table), snapshot.taken)
            loads.append(EventLoad(table, state.batch, taken, self._folder(table)))
            state = replace(state, batch=state.batch + 1)
        state.write(self.records)
        for load in loads:
            self.records.store.delete_folder(load.folder)
            self.progress(LoadProgress(load.table.table, 0, load.table.rows))
            for worker, part in enumerate(snapshot.parts(load.table)):
                load.pending.append(
                    pool.submit(self._stage, snapshot, load, worker, part, infinities)
                )
        for staged in as_staged(loads):
            yield self._staged(staged, snapshot) if staged else None

    def _staged(self, load: EventLoad, snapshot: Snapshot) -> Loaded | TableError:
        try:
            done = sum(results(load), WrittenEvents())
        except TableError as error:
            return error
        return self._complete(load, snapshot, done)

    def finish(self, name: str) -> None:
        """Write the files of a complete load, from wherever an earlier run stopped."""
        state = self._state()
        load = state.loads[name]
        for path, staged in sorted(load["files"].items(), key=lambda file: published(file[0])):
            try:
                content = self.records.store.read(staged)
            except FileNotFoundError as error:
                # Two tables with one printed name shared a folder in an earlier release.
                log.warning(LOAD_BEGUN_ANEW, table=name, reason=str(error))
                state.without(name).write(self.records)
                return
            self.store.replace(path, content)
            self.reached(CrashPoint.LOAD_PUBLISHED_ONE)
        done = replace(state.without(name), tables={**state.tables, name: load["table"]})
        done.wrote(name, WrittenEvents.parse(load.get("written", {}))).write(self.records)
        self.reached(CrashPoint.LOAD_PUBLISHED)
        self.records.store.delete_folder(load["folder"])

    def _complete(self, load: EventLoad, snapshot: Snapshot, done: WrittenEvents) -> Loaded:
        state, name = self._state(), str(load.table.table)
        waiting = {
            "files": load.staged,
            "folder": load.folder,
            "table": described(load.table, str(snapshot.point)),
            "written": asdict(done),
        }
        replace(state, loads={**state.loads, name: waiting}).write(self.records)
        self.reached(CrashPoint.LOAD_MANIFEST)
        self.finish(name)
        self.progress(LoadProgress(load.table.table, load.rows, load.table.rows, done=True))
        return Loaded(load.table.table, load.rows, len(load.staged), snapshot.point)

    def _stage(
        self,
        snapshot: Snapshot,
        load: EventLoad,
        worker: int,
        part: SnapshotPart,
        infinities: Infinities,
    ) -> WrittenEvents:
        event_object = build.described(load.table, self.settings)
        batch = build.batch_id(self.settings.stream, load.table, load.batch, worker)
        maker, first, size, made = FileMaker(self.settings, load.batch, worker), 0, 0, 0
        for rows in _runs(snapshot.read(part), self.file_bytes):
            read = milliseconds(self.clock.now())
            taken = load.taken
            events = build.loaded(
                event_object, load.table, rows, batch, first, taken, read, infinities
            )
            for file in maker.files(event_object, events, first):
                staged, made = f"{load.folder}/{worker}-{made}", made + 1
                self.records.store.replace(staged, file.content)
                load.staged[file.path] = staged
                size += len(file.content)
            first += len(events)
            load.rows += len(events)  # by several threads: near enough for a progress bar
            self.progress(LoadProgress(load.table.table, load.rows, load.table.rows))
        self.reached(CrashPoint.LOAD_STAGED)
        return WrittenEvents(first - maker.too_large, size, maker.too_large)

    def _folder(self, table: SourceTable) -> str:
        name = object_folder(str(table.table)).replace('"', "%22")
        return f"{root.STATE}/events/{self.records.stream_id}/{name}"

    def _state(self) -> EventState:
        return EventState.read(self.records, self.settings.described)


def published(path: str) -> tuple[bool, str]:
    """The order in which the files of a load are written: schema files before all events, so that
    no consumer finds events without their schema (see `FileMaker.files`)."""
    return not is_schema_file(path), path


def described(table: SourceTable, point: str) -> dict[str, object]:
    """What a table is loaded as."""
    return {
        "schema": table.table.schema,
        "name": table.table.name,
        "point": point,
        "identity": table.identity,
        "key": list(table.key),
        "selection": dict(table.selection),
    }


def _runs(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    """Batches together, of about `size` bytes."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.nbytes for part in held) >= size:
            yield pa.Table.from_batches(held).combine_chunks()
            held = []
    if held and sum(part.num_rows for part in held):
        yield pa.Table.from_batches(held).combine_chunks()
