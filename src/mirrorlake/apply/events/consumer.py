"""Applies the event files of a bucket: finds new files, reads them, applies their events.

Order: list → read → apply table by table → record the files. After a crash at any point, files that
were not recorded are read again, and their events change nothing (ST-223).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

import numpy as np
import structlog

from mirrorlake.apply.events.batches.divided import batches_of, chosen
from mirrorlake.apply.events.batches.prepared import PreparedBatch
from mirrorlake.apply.events.batches.spread import EventSpread
from mirrorlake.apply.events.batches.tasks import TableOutcome
from mirrorlake.apply.events.file_reader import FileReader
from mirrorlake.apply.events.journal import (
    HELD,
    FileJournals,
    ReadFile,
    day_of,
    letters_of,
    replayable,
    unread,
    with_those_of,
)
from mirrorlake.apply.events.listing import INVALID, EventFiles, FoundFile, moment_of
from mirrorlake.apply.events.reading import (
    DeadLetter,
    FileEvents,
    TableEvents,
    Types,
    by_table,
    oldest,
)
from mirrorlake.apply.events.rebuild import StateRebuild
from mirrorlake.apply.events.remembered.retention import EPOCH
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.apply.events.table import EventTable
from mirrorlake.apply.events.table_report import EventTableReport
from mirrorlake.apply.task.errors import fault
from mirrorlake.delta.workspace import Unreachable
from mirrorlake.errors import EventKeyRefused, KeyColumnUnknown, MirrorlakeError, TableError
from mirrorlake.events.paths import is_schema_file
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store, UnsafePath

log = structlog.get_logger()

EVENTS_APPLIED, EVENTS_DEAD = "events_applied", "events_dead"
LOOK = timedelta(hours=1)
"""Interval between two looks whether files with dead letters are still there."""

_AGAIN = "It is tried again with the next files and at each start. If it recurs, report it."


class TableResults(Protocol):
    """Receives the results of tables."""

    def applied(
        self, table: TableId, done: EventTableReport, files: int, held: TableError | None
    ) -> None:
        """held: why other events of the table are not applied."""
        ...

    def stopped(self, table: TableId, error: TableError) -> None: ...


@dataclass(slots=True)
class _Held:
    """A file that is not recorded as applied because of tables of it that have stopped, with their
    errors."""

    etag: str
    stopped: dict[TableId, TableError]

    @property
    def waits(self) -> bool:
        """Whether it is read again together with later files."""
        errors = self.stopped.values()
        return all(isinstance(error, KeyColumnUnknown | TableFault) for error in errors)


class _AppliedFiles:
    """The files of a batch, and what became of their events.

    tables, oldest_ms: of each file, by its path.
    stopped: the stopped tables with their errors.
    waiting: events of tables that may continue when more events arrive.
    is_replay: whether the files are read for their dead letters.
    """

    def __init__(self, files: Sequence[FoundFile], *, is_replay: bool = False) -> None:
        self.files, self.is_replay = files, is_replay
        self.tables = {file.path: set[TableId]() for file in files}
        self.oldest_ms: dict[str, int | None] = {}
        self.letters: list[DeadLetter] = []
        self.stopped: dict[TableId, TableError] = {}
        self.waiting: dict[TableId, list[TableEvents]] = {}

    def read(
        self,
        file: FoundFile,
        tables: Set[TableId],
        letters: Iterable[DeadLetter],
        oldest_ms: int | None,
    ) -> None:
        self.tables[file.path] |= tables
        self.oldest_ms[file.path] = oldest([self.oldest_ms.get(file.path), oldest_ms])
        self.letters += letters


class _Ended(Exception):
    """The consumer has to stop. Files that are not recorded are read again."""


class EventConsumer:
    """The consumer of one root, the only writer of its tables (`storage.lease`).

    source: the store with the files.
    check: called before each table is written; raises to refuse the write.
    ended: returns whether to stop; called after each part of a file and before each table.
    spread: reads large batches, and prepares what they change, in other processes.
    """

    def __init__(
        self,
        store: Store,
        source: Store,
        settings: EventInput,
        clock: Clock,
        results: TableResults,
        *,
        reached: CrashHook,
        check: Callable[[], None],
        ended: Callable[[], bool] = lambda: False,
        spread: EventSpread | None = None,
    ) -> None:
        self._store, self._settings, self._clock, self._results = store, settings, clock, results
        self._reached, self._check, self._ended = reached, check, ended
        self._spread = spread
        self._source, self._files = source, EventFiles(source, settings)
        self._journals = FileJournals(store)
        self._journal = self._journals.read()
        self._tables: dict[TableId, EventTable] = {}
        self._held: dict[str, _Held] = {}
        self._changed = set[TableId]()
        self._looked, self._there = datetime.min.replace(tzinfo=UTC), dict[str, bool]()
        self._reader = FileReader(source, settings, self._known, self._go_on)

    def cycle(self) -> int:
        """Apply the new files. Returns how many were applied. Raises Unavailable, or OSError when
        the bucket cannot be read."""
        started = self._clock.now()
        # A look-back that was increased takes effect at once.
        first_day = min(self._journal.horizon, self._horizon((), started))
        new = [file for file in self._files.list(first_day) if self._is_new(file)]
        self._tell_invalid()
        if not new:
            return 0
        waiting = {path for path, held in self._held.items() if held.waits}
        waiting -= {file.path for file in new}
        if waiting:
            again = self._files.list(first_day)
            new += [file for file in again if file.path in waiting]
        done = 0
        batches = list(batches_of(new, by_folder=self._settings.keeps_changes))
        with suppress(_Ended):
            for number, batch in enumerate(batches):
                is_last = number == len(batches) - 1
                done += self._apply(batch, self._horizon(new, started) if is_last else "")
            if not self._held:  # their events are still to be applied
                self._prune()
        return done

    def replay(self) -> int:
        """Read the files with dead letters again and apply these (ST-254). Returns how many of
        these files still exist.

        The other events of the files were applied, perhaps so long ago that the state does not
        tell any more. All events of a file are applied where it is not known which were not.
        """
        dead = {file.path: file for file in self._journal.dead}
        files = [file for file in self._files.list("") if file.path in dead]
        rows = {
            file.path: np.asarray([row for letter in file.letters for row in letter.rows], np.int64)
            for file in dead.values()
            if all(letter.is_listed for letter in file.letters)
        }
        with suppress(_Ended):
            for batch in batches_of(files):
                known = [dead[file.path].etag == file.etag for file in batch]
                only = [
                    rows.get(file.path) if is_same else None
                    for file, is_same in zip(batch, known, strict=True)
                ]
                self._apply(batch, "", only)
        return len(files)

    def _tell_invalid(self) -> None:
        """Record keys that are no paths as dead letters, once for each folder."""
        dead = {file.path for file in self._journal.dead}
        if not (new := self._files.invalid.keys() - dead):
            return
        self._check()
        now = format_time(self._clock.now())
        found = [unread(path, self._files.invalid[path], now) for path in sorted(new)]
        self._add_files(found, self._journal.horizon)
        log.warning(EVENTS_DEAD, files=sorted(new))

    def drop_gone(self) -> list[str]:
        """Drop the dead letters of files that are gone. Returns their paths. Raises OSError.

        None while there is no file or folder at all: a place that is not there looks so. A file
        that comes back is read again, whatever its content.
        """
        there = self._files.listed(self._source, self._settings.path)
        if not there.files and not there.folders:
            return []
        gone = list[ReadFile]()
        for file in self._journal.dead:
            self._go_on()
            with suppress(UnsafePath):  # a link may stand in its place
                if self._is_gone(file.path):
                    gone.append(file)
        if invalid := [file for file in self._journal.dead if file.path.endswith(INVALID)]:
            self._files.invalid.clear()
            deque(self._files.list(""), maxlen=0)
            gone += [file for file in invalid if file.path not in self._files.invalid]
        if gone:
            self._check()
            now = format_time(self._clock.now())
            left = [ReadFile(one.path, f"{HELD}gone", one.minute, time=now) for one in gone]
            self._add_files(left, self._journal.horizon)
        return [file.path for file in gone]

    def rebuild(self, table: TableId) -> None:
        """Compute the state of a table anew, from the files of the retention (`rebuild`). Raises
        TableError, OSError."""
        first_day = self._first_day(self._waiting_ms(table))
        files = list(self._files.list(first_day if self._journal.files else ""))
        passed = self._journals.passed(files)
        known = {file.path for file in files if self._is_applied(file, passed)}
        applied = [file for file in files if file.path in known]
        others = [file for file in files if file.path not in known]
        # Not in one batch, whose large files are read after the others.
        batches = [*batches_of(others), *batches_of(applied)]

        def read(state: StateRebuild) -> None:
            reader = FileReader(
                self._source,
                self._settings,
                lambda other: state.known if other == table else {},
                self._go_on,
            )
            for batch in batches:
                for parts in reader.parts(batch):
                    for file, part in zip(batch, parts, strict=True):
                        is_applied = file.path in known
                        self._add(state, table, file, part, is_applied=is_applied)

        self._check()
        self._table(table).rebuild(read)

    def _add(
        self,
        state: StateRebuild,
        table: TableId,
        file: FoundFile,
        part: FileEvents,
        *,
        is_applied: bool,
    ) -> None:
        """Add the events of a file to the state that is computed, without its dead letters, which
        may be applied later (ST-254)."""
        known = self._journal.files.get(file.path)
        dead = [row for letter in (known.letters if known else ()) for row in letter.rows]
        for events in part.tables:
            # Types that only dead letters have are not those of the table.
            if events.table == table and len(some := events.only(~np.isin(events.row, dead))):
                state.add(some, is_applied=is_applied)

    def _is_applied(self, file: FoundFile, passed: Set[str]) -> bool:
        """Whether all events of a file are known to be applied, except the listed dead letters.
        passed: files that were, and are no longer in the journal. Others that are not in it were
        not found, also before the horizon, where they came too late."""
        known = self._journal.files.get(file.path)
        if known is None:
            return file.path in passed
        return known.etag == file.etag and all(letter.is_listed for letter in known.letters)

    def _go_on(self) -> None:
        if self._ended():
            raise _Ended

    def _is_new(self, file: FoundFile) -> bool:
        known = self._journal.files.get(file.path)
        held = self._held.get(file.path)
        return file.etag not in (known and known.etag, held and held.etag)

    def _horizon(
        self, new: Iterable[FoundFile | ReadFile], started: datetime, back: timedelta | None = None
    ) -> str:
        """The first day whose folders are listed from now on: the look-back, or another time,
        before the newest folder, or before now, whichever is earlier (ST-178)."""
        minutes = [file.minute for file in self._journal.files.values()]
        minutes += [file.minute for file in new]
        newest = moment_of(max(minutes, default=""))
        try:
            back = self._settings.look_back if back is None else back
            return day_of(min(started, newest or started) - back)
        except OverflowError:
            return ""

    def _apply(
        self, files: Sequence[FoundFile], horizon: str, only: Sequence[np.ndarray | None] = ()
    ) -> int:
        """Apply and record files. only: for each file the numbers of the events to apply, None for
        all."""
        done = _AppliedFiles(files, is_replay=bool(only))
        for file in files:
            self._held.pop(file.path, None)
        if self._spread and not only and self._spread.suits(files):
            self._apply_spread(self._spread, done)
        else:
            self._apply_files(done, files, only=only)
        return self._record(done, horizon)

    def _apply_files(
        self,
        done: _AppliedFiles,
        files: Sequence[FoundFile],
        tables: Set[TableId] | None = None,
        only: Sequence[np.ndarray | None] = (),
    ) -> None:
        """Apply some of the files of a batch. tables: of files that were read before, the tables
        that are left; None for all."""
        for parts in chosen(self._reader.parts(files), only):
            some = parts
            if tables is None:
                for file, part in zip(files, parts, strict=True):
                    own = {one.table for one in part.tables}
                    done.read(file, own, part.letters, part.oldest_ms)
            else:
                some = [part.of(tables) for part in parts]
                done.letters += [letter for part in some for letter in part.letters]
            done.letters += self._apply_parts(some, done.stopped, done.waiting)
            del parts, some  # before the next ones are read

    def _apply_spread(self, spread: EventSpread, done: _AppliedFiles) -> None:
        """Apply files by tasks that prepare what they change, and here what these leave: files
        that they could not read, and tables that take several commits, that several tasks have
        events of, or whose commit came too late."""
        try:
            found = spread.run(done.files)
        except Exception:
            self._go_on()  # the job was cancelled because of that
            raise
        if found is None:
            self._apply_files(done, done.files)
            return
        # A table of which several tasks have events is applied here at once: the types of its
        # columns, and whether it stops, depend on all of them.
        tasks = Counter(outcome.table for outcome in found.tables)
        left = {
            outcome.table
            for outcome in found.tables
            if tasks[outcome.table] > 1 or not self._finish(outcome, done)
        }
        again, names = list[FoundFile](), {str(table) for table in left}
        for file in done.files:
            if (report := found.files.get(file.path)) is None:
                continue
            letters = report.letters
            if report.tables & left:
                again.append(file)  # which finds those of these tables once more
                letters = [letter for letter in letters if letter.table not in names]
            done.read(file, report.tables, letters, report.oldest_ms)
        if left:
            self._apply_files(done, again, left)
        if others := [file for file in done.files if file.path not in found.files]:
            self._apply_files(done, others)

    def _finish(self, outcome: TableOutcome, done: _AppliedFiles) -> bool:
        """Commit what a task has prepared for a table. Returns whether nothing is left to do."""
        if outcome.letters:
            done.letters += outcome.letters
            return True
        self._go_on()
        self._check()
        table, report = self._table(outcome.table), outcome.batch
        try:
            if isinstance(report, PreparedBatch):
                report = table.commit_prepared(report)
            elif report is not None and not table.is_newest(report.version):
                return False
        except TableError as error:
            self._stop(done, outcome.table, error)
            return True
        if report is None:
            return False
        self._note(outcome.table, report, outcome.files, outcome.events)
        done.letters += report.letters
        return True

    def _stop(self, done: _AppliedFiles, table: TableId, error: TableError) -> None:
        done.stopped[table] = error
        self._results.stopped(table, error)

    def _apply_parts(
        self,
        parts: Sequence[FileEvents],
        stopped: dict[TableId, TableError],
        waiting: dict[TableId, list[TableEvents]],
    ) -> list[DeadLetter]:
        """Apply some events of each file.

        stopped: the stopped tables with their errors.
        waiting: events of tables that may continue when more events arrive.
        """
        letters: list[DeadLetter] = []
        for table, events in by_table(parts):
            if table in stopped and table not in waiting:
                continue
            self._go_on()
            self._check()
            together = [*waiting.pop(table, ()), *events]
            try:
                letters += self._apply_to(table, together)
                stopped.pop(table, None)
            except EventKeyRefused as error:
                for one in together:
                    letters += one.letters(dict.fromkeys(range(len(one)), error.what))
                stopped.pop(table, None)
            except TableError as error:
                if isinstance(error, KeyColumnUnknown):
                    waiting[table] = together  # the next part may contain the column
                stopped[table] = error
                self._results.stopped(table, error)
            except (MirrorlakeError, OSError, MemoryError, Unreachable, _Ended):
                raise  # no fault of this table
            except Exception as error:  # noqa: BLE001  (nothing stops the other tables)
                self._tables.pop(table, None)
                what = fault(str(table), error).what
                stopped[table] = TableFault(what, table=str(table), hint=_AGAIN)
                self._results.stopped(table, stopped[table])
        return letters

    def _apply_to(self, table: TableId, events: Sequence[TableEvents]) -> Sequence[DeadLetter]:
        done = self._table(table).apply(events)
        self._note(table, done, len({one.file for one in events}), sum(map(len, events)))
        return done.letters

    def _note(self, table: TableId, done: EventTableReport, files: int, events: int) -> None:
        """A batch is in its table."""
        if done.version < 0:
            return
        held = (one.stopped.get(table) for one in self._held.values())
        self._results.applied(table, done, files, next(filter(None, held), None))
        if done.commits:
            log.info(
                EVENTS_APPLIED,
                table=str(table),
                version=done.version,
                events=events,
                inserted=done.counts.insert,
                updated=done.counts.update,
                deleted=done.counts.delete,
            )
            self._table(table).compact()
            self._changed.add(table)

    def _prune(self) -> None:
        """Remove the state that the changed tables no longer need, when all files that were found
        are applied: any of them may have events of a key that no other event has for a long
        time."""
        for table in sorted(self._changed):
            self._go_on()
            self._check()
            try:
                waiting = partial(self._waiting_ms, table)
                self._table(table).prune(self._clock.now(), waiting)
            except TableError as error:
                self._results.stopped(table, error)
        self._changed.clear()

    def _waiting_ms(
        self, table: TableId | None = None, more: Sequence[ReadFile] = ()
    ) -> int | None:
        """The time of the oldest event that a replay may apply to a table, or to any, milliseconds:
        what is remembered from the retention before it on is needed (ST-254). None if there is
        none. more: files that are not in the journal yet."""
        times = (
            file.oldest_ms or 0
            for file in (*self._journal.dead, *more)
            if file.letters
            and (table is None or file.concerns(table))
            and self._can_be_replayed(file.path)
        )
        return min(times, default=None)

    def _can_be_replayed(self, path: str) -> bool:
        """Whether a file is there; looked up once in a while. Raises OSError."""
        if (now := self._clock.now()) - self._looked >= LOOK:
            self._looked, self._there = now, {}
        if path not in self._there:
            try:
                self._there[path] = not self._is_gone(path)
            except UnsafePath:
                self._there[path] = False
        return self._there[path]

    def _is_gone(self, path: str) -> bool:
        """Raises OSError, UnsafePath."""
        if is_schema_file(path):  # earlier releases took some for events
            return True
        try:
            with suppress(PermissionError):  # it is there
                self._source.open(path).close()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return True
        return False

    def _first_day(self, waiting_ms: int | None, new: Iterable[ReadFile] = ()) -> str:
        """The first day whose files tell what is remembered. waiting_ms: as in
        `retention.horizon`."""
        started = self._clock.now()
        if waiting_ms is not None:
            with suppress(OverflowError):  # later than any time
                started = min(started, EPOCH + timedelta(milliseconds=waiting_ms))
        return self._horizon(new, started, self._settings.retention)

    def _record(self, done: _AppliedFiles, horizon: str) -> int:
        """Record the files of which every event is in its table or a dead letter, and the dead
        letters of the others, which are held. Returns how many files were applied."""
        letters_of_file: dict[str, list[DeadLetter]] = {}
        for letter in done.letters:
            letters_of_file.setdefault(letter.file, []).append(letter)
        now, recorded, applied = format_time(self._clock.now()), list[ReadFile](), 0
        for file in done.files:
            known = self._journal.files.get(file.path)
            before = known.letters if known else ()
            dead, held = letters_of(letters_of_file.get(file.path, ())), HELD + file.etag
            is_same = known is not None and known.etag == held
            again = bool(before) and known is not None and (done.is_replay or not known.is_held)
            tables = done.tables[file.path]
            if stopped := {one: done.stopped[one] for one in tables if one in done.stopped}:
                self._held[file.path] = _Held(file.etag, stopped)
                if known is not None and known.etag == file.etag:
                    continue  # it was applied before, and stays so
                if is_same:
                    dead = with_those_of(stopped, before, dead)
            is_told = is_same and set(dead) == set(before)
            if stopped and not again and (is_told or not (dead or before)):
                continue  # there is nothing new to record
            applied += not stopped
            etag, retries = held if stopped else file.etag, (known.retries if known else 0) + again
            read = ReadFile(file.path, etag, file.minute, dead, retries, now)
            recorded.append(replayable(read, tables, done.oldest_ms.get(file.path), known))
            self._there.pop(file.path, None)
            if dead and not is_told:
                log.warning(EVENTS_DEAD, file=file.path, events=sum(one.count for one in dead))
        # While files are held, the horizon must not advance.
        wanted = self._journal.horizon if self._held or not horizon else horizon
        if recorded:
            self._add_files(recorded, wanted)
        return applied

    def _add_files(self, files: Sequence[ReadFile], horizon: str) -> None:
        self._journal = self._journals.add(
            self._journal,
            files,
            horizon,
            lambda: self._first_day(self._waiting_ms(more=files), files),
        )
        self._reached(CrashPoint.EVENT_FILES_RECORDED)

    def _known(self, table: TableId) -> Types:
        return self._table(table).known

    def _table(self, table: TableId) -> EventTable:
        known = self._tables.get(table)
        if known is None:
            known = EventTable(self._store, table, self._settings, self._reached)
            self._tables[table] = known
        return known
