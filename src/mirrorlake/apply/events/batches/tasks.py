"""The tasks that read event files and prepare what they change, in other processes.

A task has all files of some objects, so that it has all events of their tables; what it reports is
of one attempt. Nothing is committed, so that it may run several times, or late. What a task cannot
do for sure is left to the process that commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mirrorlake.apply.events.batches.prepared import PreparedBatch
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import DeadLetter, TableEvents, by_table
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.errors import EventKeyRefused, TableError
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

TOO_LARGE = "their events do not fit in memory together"


@dataclass(frozen=True, slots=True)
class EventPlaces:
    """How a task reaches the files and the tables; pickled. source: opens the store with the files,
    root: that of the tables."""

    source: Callable[[], Store]
    root: Callable[[], Store]
    settings: EventInput


@dataclass(frozen=True, slots=True)
class FilesTask:
    """Files to read, and to prepare what they change. Pickled."""

    places: EventPlaces
    files: tuple[FoundFile, ...]


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What a file has: the tables of its events, dead letters, and as in `FileEvents`."""

    tables: frozenset[TableId] = frozenset()
    letters: Sequence[DeadLetter] = ()
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What the events of a table come to.

    batch: None if they have to be applied where they can be committed.
    letters: events that cannot be applied, if these are all.
    """

    table: TableId
    files: int
    events: int
    batch: PreparedBatch | EventTableReport | None = None
    letters: Sequence[DeadLetter] = ()


@dataclass(frozen=True, slots=True)
class FilesOutcome:
    """What the files of a task come to.

    files: a report for each.
    left: why they have to be read where they can be applied; "" if they were read here.
    """

    files: Sequence[ReadReport] = ()
    tables: Sequence[TableOutcome] = field(default_factory=list)
    left: str = ""


def prepare_files(task: FilesTask) -> FilesOutcome:
    """Read files, and prepare what they change in each table."""
    try:
        return _prepared_files(task)
    except Exception as error:  # noqa: BLE001  (it is met again where it can be handled)
        # Other texts may contain values.
        text = error.strerror if isinstance(error, OSError) else None
        return FilesOutcome(left=": ".join(filter(None, [type(error).__name__, text])))


def _prepared_files(task: FilesTask) -> FilesOutcome:
    places, root = task.places, task.places.root()

    def table(name: TableId) -> EventTable:
        return EventTable(root, name, places.settings)

    reader = FileReader(
        places.source(),
        places.settings,
        lambda name: table(name).known,
        lambda: None,
        must_exist=True,
    )
    found = reader.together(task.files)
    if found is None:
        return FilesOutcome(left=TOO_LARGE)
    reports = [
        ReadReport(frozenset(one.table for one in file.tables), file.letters, file.oldest_ms)
        for file in found
    ]
    together = list(by_table(found))
    del found  # so that the events of a table are freed when they are applied
    outcomes = []
    while together:
        name, events = together.pop(0)
        outcomes.append(_prepared(table(name), events))
    return FilesOutcome(reports, outcomes)


def _prepared(table: EventTable, events: Sequence[TableEvents]) -> TableOutcome:
    outcome = TableOutcome(table.table, len({one.file for one in events}), sum(map(len, events)))
    try:
        found = table.prepare(events)
    except EventKeyRefused as error:
        letters = [
            letter
            for one in events
            for letter in one.letters(dict.fromkeys(range(len(one)), error.what))
        ]
        return replace(outcome, letters=letters)
    except TableError:
        return outcome  # this process may see less than the one that can tell that
    if isinstance(found, PreparedBatch | EventTableReport):
        return replace(outcome, batch=found)
    return outcome
