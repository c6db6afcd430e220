"""The tasks that read event files and prepare what they change, in other processes.

Two stages: read files and send the events of each table to its task → prepare the batch of each
table (`writer`). Nothing is committed, so that a task may run several times, or late.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mirrorlake.apply.events.batches.prepared import PreparedBatch
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import DeadLetter, FileEvents, TableEvents, by_table
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.apply.runner import StageResult
from mirrorlake.errors import EventKeyRefused, KeyColumnUnknown, TableError
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store


@dataclass(frozen=True, slots=True)
class EventPlaces:
    """How a task reaches the files and the tables; pickled. source: opens the store with the files,
    root: that of the tables."""

    source: Callable[[], Store]
    root: Callable[[], Store]
    settings: EventInput


@dataclass(slots=True)
class ReadReport:
    """What a task has read of a file. is_read: false for a file that has to be read together with
    others, because it does not contain its types, and one that could not be read."""

    is_read: bool = False
    tables: set[TableId] = field(default_factory=set)
    letters: list[DeadLetter] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What the events of a table come to.

    batch: None if they have to be applied where they can be committed.
    failed: why that is so, if the task failed.
    letters: events that cannot be applied, none of which is in the batch.
    error: the table stops.
    """

    table: TableId
    files: int
    events: int
    batch: PreparedBatch | EventTableReport | None = None
    letters: Sequence[DeadLetter] = ()
    error: TableError | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True)
class ReadFilesTask:
    """Reads files. tasks: number of tasks of the next stage."""

    places: EventPlaces
    files: tuple[FoundFile, ...]
    tasks: int


def read_files(task: ReadFilesTask) -> StageResult:
    """The reports of the files, and the events for each task of the next stage."""
    blocks: list[list[TableEvents]] = [[] for _ in range(task.tasks)]
    reports = [ReadReport() for _file in task.files]
    settings = task.places.settings
    try:
        reader = FileReader(
            task.places.source(), settings, lambda _table: {}, lambda: None, typed_only=True
        )
        for parts in reader.parts(task.files):
            for report, part in zip(reports, parts, strict=True):
                _take(report, part, blocks)
            del parts  # before the next ones are read
    except OSError:
        return [ReadReport() for _file in task.files], [[] for _ in blocks]
    for report, file in zip(reports, task.files, strict=True):
        report.is_read = file.path not in reader.untyped
    return reports, blocks


def _take(report: ReadReport, part: FileEvents, blocks: Sequence[list[TableEvents]]) -> None:
    report.letters += part.letters
    for events in part.tables:
        report.tables.add(events.table)
        blocks[_task_of(events.table, len(blocks))].append(events)


def _task_of(table: TableId, tasks: int) -> int:
    return zlib.crc32(f"{table.schema}\0{table.name}".encode()) % tasks


def prepare_tables(
    places: EventPlaces, _number: int, received: Sequence[Sequence[TableEvents]]
) -> StageResult:
    """What the events of each table that a task has received come to."""
    parts = [FileEvents(events) for events in received]
    return [_prepared(places, table, events) for table, events in by_table(parts)], []


def _prepared(places: EventPlaces, table: TableId, events: Sequence[TableEvents]) -> TableOutcome:
    outcome = TableOutcome(table, len({one.file for one in events}), sum(map(len, events)))
    try:
        found = EventTable(places.root(), table, places.settings).prepare(events)
    except EventKeyRefused as error:
        letters = [
            letter
            for one in events
            for letter in one.letters(dict.fromkeys(range(len(one)), error.what))
        ]
        return replace(outcome, letters=letters)
    except KeyColumnUnknown:
        return outcome  # other files may have the column
    except TableError as error:
        return replace(outcome, error=error)
    except Exception as error:  # noqa: BLE001  (it is raised again where it can be handled)
        return replace(outcome, failed=f"{type(error).__name__}: {error}")
    if isinstance(found, PreparedBatch | EventTableReport):
        return replace(outcome, batch=found)
    return outcome
