"""Applies the event files of a bucket: finds new ones, reads them, applies their events.

Order: list → read → apply table by table → record the files. A process that ends at any point reads
files again that it had not recorded, and their events change nothing (ST-223).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.journal import (
    FileJournals,
    ReadFile,
    day_of,
    letters_of,
)
from mirrorlake.apply.events.listing import EventFiles, FoundFile
from mirrorlake.apply.events.reading import DeadLetter, FileEvents, by_table
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table import EventTable, EventTableReport
from mirrorlake.errors import KeyColumnUnknown, TableError
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

log = structlog.get_logger()

EVENTS_APPLIED, EVENTS_DEAD = "events_applied", "events_dead"
BATCH_BYTES, BATCH_FILES = 64 << 20, 1_000
"""Of files that are applied together: their events are in memory."""

_NUMBERS = 12
"""Digits of a minute: `yyyymmddhhmm`."""


class Told(Protocol):
    """Who is told of tables."""

    def applied(self, table: TableId, done: EventTableReport, files: int) -> None: ...

    def stopped(self, table: TableId, error: TableError) -> None: ...


@dataclass(slots=True)
class _Held:
    """Files that are not recorded, because a table of theirs has stopped. waits: whether they are
    read again when more files come."""

    etag: str
    waits: bool


@dataclass(frozen=True, slots=True)
class _Batch:
    """Files that are applied together, with what they hold."""

    found: Sequence[FoundFile]
    events: Sequence[FileEvents]


class EventConsumer:
    """The consumer of one root, which alone may write its tables (`storage.lease`).

    source: where the files are; check: called before each table is written, refuses by raising;
    ended: whether to stop between two batches.
    """

    def __init__(
        self,
        store: Store,
        source: Store,
        settings: EventInput,
        clock: Clock,
        told: Told,
        *,
        reached: CrashHook,
        check: Callable[[], None],
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store, self._settings, self._clock, self._told = store, settings, clock, told
        self._reached, self._check, self._ended = reached, check, ended
        self._files = EventFiles(source, settings)
        self._journals = FileJournals(store)
        self._journal = self._journals.read()
        self._tables: dict[TableId, EventTable] = {}
        self._held: dict[str, _Held] = {}
        self._reader = FileReader(source, settings, lambda table: self._table(table).known)

    def cycle(self) -> int:
        """Apply the files that are new. Returns how many were applied. Raises Unavailable, OSError
        where the bucket cannot be read."""
        started = self._clock.now()
        new = [file for file in self._files.list(self._journal.horizon) if self._is_new(file)]
        if not new:
            return 0
        waiting = {path for path, held in self._held.items() if held.waits}
        if waiting:
            again = self._files.list(self._journal.horizon)
            new += [file for file in again if file.path in waiting]
        done = 0
        batches = list(_batches(new))
        for number, batch in enumerate(batches):
            if self._ended():
                return done
            is_last = number == len(batches) - 1
            done += self._apply(batch, self._horizon(new, started) if is_last else "")
        return done

    def replay(self) -> int:
        """Read the files with dead letters again, and apply all of their events (ST-254). Returns
        how many of the files are there."""
        dead = {file.path: file for file in self._journal.dead}
        files = [file for file in self._files.list("") if file.path in dead]
        for batch in _batches(files):
            self._apply(batch, "")
        return len(files)

    def _is_new(self, file: FoundFile) -> bool:
        known = self._journal.files.get(file.path)
        held = self._held.get(file.path)
        return file.etag not in (known and known.etag, held and held.etag)

    def _horizon(self, new: Iterable[FoundFile], started: datetime) -> str:
        """The first day that is looked into from now on: the look-back before the newest folder,
        or before now, whichever is earlier (ST-178)."""
        minutes = [file.minute for file in self._journal.files.values()]
        newest = max([*minutes, *(file.minute for file in new)])
        moment = started
        if len(newest) == _NUMBERS:
            try:
                told = datetime.strptime(newest + "+0000", "%Y%m%d%H%M%z")
                moment = min(moment, told)
            except ValueError:
                return self._journal.horizon  # digits that are no date
        try:
            return day_of(moment - self._settings.look_back)
        except OverflowError:
            return ""

    def _apply(self, files: Sequence[FoundFile], horizon: str) -> int:
        batch = _Batch(files, self._reader.read(files))
        stopped: dict[TableId, TableError] = {}
        letters: list[DeadLetter] = [one for file in batch.events for one in file.letters]
        for table, events in by_table(batch.events):
            self._check()
            try:
                done = self._table(table).apply(events)
                letters += done.letters
                self._told.applied(table, done, len({one.file for one in events}))
                if done.commits:
                    log.info(
                        EVENTS_APPLIED,
                        table=str(table),
                        version=done.version,
                        events=sum(map(len, events)),
                        inserted=done.counts.insert,
                        updated=done.counts.update,
                        deleted=done.counts.delete,
                    )
                    self._table(table).compact()
            except TableError as error:
                stopped[table] = error
                self._told.stopped(table, error)
        return self._record(batch, stopped, letters, horizon)

    def _record(
        self,
        batch: _Batch,
        stopped: Mapping[TableId, TableError],
        letters: Iterable[DeadLetter],
        horizon: str,
    ) -> int:
        """Record the files of which every event is in its table, or a dead letter."""
        told: dict[str, list[DeadLetter]] = {}
        for one in letters:
            told.setdefault(one.file, []).append(one)
        now, recorded = format_time(self._clock.now()), []
        for file, events in zip(batch.found, batch.events, strict=True):
            errors = [stopped[one.table] for one in events.tables if one.table in stopped]
            if errors:
                waits = all(isinstance(error, KeyColumnUnknown) for error in errors)
                self._held[file.path] = _Held(file.etag, waits)
                continue
            self._held.pop(file.path, None)
            known = self._journal.files.get(file.path)
            again = known is not None and bool(known.letters)
            retries = known.retries + 1 if again and known else 0
            dead = letters_of(told.get(file.path, ()))
            recorded.append(ReadFile(file.path, file.etag, file.minute, dead, retries, now))
            if dead:
                log.warning(EVENTS_DEAD, file=file.path, events=sum(one.count for one in dead))
        # With files that are held nothing may be taken as looked at for the last time.
        kept = self._journal.horizon
        wanted = kept if self._held or not horizon else max(kept, horizon)
        if recorded:
            self._journal = self._journals.add(self._journal, recorded, wanted)
            self._reached(CrashPoint.EVENT_FILES_RECORDED)
        return len(recorded)

    def _table(self, table: TableId) -> EventTable:
        known = self._tables.get(table)
        if known is None:
            known = EventTable(self._store, table, self._settings, self._reached)
            self._tables[table] = known
        return known


def _batches(files: Iterable[FoundFile]) -> Iterator[list[FoundFile]]:
    batch: list[FoundFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size > BATCH_BYTES or len(batch) == BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
