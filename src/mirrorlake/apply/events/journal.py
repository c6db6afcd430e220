"""Records which event files were applied, and which of their events are dead letters (ST-178,
ST-253).

A record is written for each batch of files, after their events are in their tables. Events of files
that are not recorded are read again and then change nothing. So are those of files that are held
because a table of them has stopped: only their dead letters are recorded. Records are merged from
time to time, without the files of minute folders that are no longer listed, and at once when most
of the files are such, as after the first pass over a bucket. The work of a cycle is therefore
proportional to the new files and those of the look-back.

That those files were applied is recorded by day, for as long as what was seen is computed from them
again. Only that reads it: it tells them from files that came too late to be found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from mirrorlake.apply.events.listing import FoundFile
from mirrorlake.apply.events.reading import MOST_ALIKE, WHOLE_FILE, DeadLetter, oldest
from mirrorlake.apply.events.remembered.state import FOLDER, numbers_in
from mirrorlake.errors import EventRecordsUnreadable
from mirrorlake.mirror.table.progress import MALFORMED
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

FORMAT = 1
MOST_RECORDS = 64
"""Number of records that are merged into one."""
MOST_PAST = 1_000
"""Number of files in folders that are no longer listed above which records are merged, if most
files are such."""

HELD = "held:"
"""Begins the etag of a file of which some events are not applied because their tables have stopped.
It is the etag of no content, so that such a file is read again."""

MOST_ROWS = MOST_ALIKE
"""Maximum number of rows that are listed for one reason; `count` is always exact."""

_FILES = f"{FOLDER}/files"
_PASSED = f"{_FILES}/passed"
"""Files that the journal no longer has, in a folder for each day (`yyyymmdd`)."""
_DAY = 8


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Events of a file that are not applied for the same reason.

    rows: the first MOST_ROWS of them, from 0, or only WHOLE_FILE. count: the number of all.
    """

    table: str
    reason: str
    rows: tuple[int, ...]
    count: int

    @property
    def is_file(self) -> bool:
        return self.rows == (WHOLE_FILE,)

    @property
    def is_listed(self) -> bool:
        """Whether `rows` has all of them."""
        return not self.is_file and self.count == len(self.rows)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was applied, or the dead letters of one that is held.

    etag: of its content, after HELD if it is held.
    minute: of its folder, `yyyymmddhhmm`, "" for any other folder.
    retries: how often it was read again for its dead letters.
    time: when it was recorded.
    oldest_ms, tables: of a file with dead letters, the earliest source time of its events, and the
        tables whose events it has; None and empty where it is not known, as of an unreadable file.
    """

    path: str
    etag: str
    minute: str = ""
    letters: tuple[DeadLetters, ...] = ()
    retries: int = 0
    time: str = ""
    oldest_ms: int | None = None
    tables: tuple[str, ...] = ()

    def concerns(self, table: TableId) -> bool:
        """Whether a replay may apply events to a table."""
        return bool(self.letters) and (not self.tables or str(table) in self.tables)

    @property
    def is_held(self) -> bool:
        return self.etag.startswith(HELD)

    def as_record(self) -> list[Any]:
        letters = [
            [letter.table, letter.reason, list(letter.rows), letter.count]
            for letter in self.letters
        ]
        record = [self.path, self.etag, self.minute, letters, self.retries, self.time]
        return [*record, self.oldest_ms, list(self.tables)] if letters else record

    @classmethod
    def parse(cls, record: Sequence[Any]) -> Self:
        path, etag, minute, records, retries, time, *more = record
        # An earlier release put no part of a name in quotes. These names have no dots.
        letters = (
            DeadLetters(str(TableId.parse(table)), reason, tuple(rows), count)
            for table, reason, rows, count in records
        )
        oldest_ms, tables = more or (None, ())  # an earlier release did not record them
        names = tuple(str(TableId.parse(table)) for table in tables)
        return cls(path, etag, minute, tuple(letters), int(retries), time, oldest_ms, names)


@dataclass(frozen=True, slots=True)
class FileJournal:
    """The recorded files: those that were applied, and those that are held and have dead letters.

    files: by path.
    horizon: `yyyymmdd`, the first day whose minute folders are listed, "" until all of them were.
    numbers: of the records.
    """

    files: Mapping[str, ReadFile] = field(default_factory=dict)
    horizon: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def dead(self) -> list[ReadFile]:
        """The files with dead letters, sorted by path."""
        found = (file for file in self.files.values() if file.letters)
        return sorted(found, key=lambda file: file.path)


class FileJournals:
    """Stores the journal of one root, on local disk."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self) -> FileJournal:
        """The current journal. Raises EventRecordsUnreadable."""
        numbers = numbers_in(self._store, _FILES)
        files: dict[str, ReadFile] = {}
        horizon = ""
        for number in numbers:
            hint = (
                "Use the release that wrote it, or remove the folder that it is in: all "
                "event files are read again then, and what was applied changes nothing, as "
                "far back as source.retention_days."
            )
            with self._reading(_path(number), hint) as record:
                files |= {file.path: file for file in map(ReadFile.parse, record["files"])}
                horizon = str(record["horizon"])
        return FileJournal(files, horizon, tuple(numbers))

    def passed(self, files: Iterable[FoundFile]) -> set[str]:
        """The paths of those of the files that were applied with this content before they left the
        journal. Raises EventRecordsUnreadable."""
        found, days = set[str](), dict[str, dict[str, str]]()
        for file in files:
            if file.minute:
                days.setdefault(file.minute[:_DAY], {})[file.path] = file.etag
        for day in sorted(days.keys() & {*self._store.list(_PASSED).folders}):
            folder = f"{_PASSED}/{day}"
            for number in numbers_in(self._store, folder):
                hint = (
                    "Use the release that wrote it, or remove it: of the files that it names, only "
                    "the events of rows count as applied then."
                )
                with self._reading(_path(number, folder), hint) as record:
                    applied = {str(path): str(etag) for path, etag in record["files"]}
                found |= {path for path, etag in days[day].items() if applied.get(path) == etag}
        return found

    def add(
        self,
        journal: FileJournal,
        files: Iterable[ReadFile],
        horizon: str,
        first_day: Callable[[], str],
    ) -> FileJournal:
        """Record files, replacing their earlier entries. horizon: from now on; first_day: returns
        the first day of which is remembered which files were applied."""
        new = {file.path: file for file in files}
        number = journal.numbers[-1] + 1 if journal.numbers else 1
        known = {**journal.files, **new}
        is_due = len(journal.numbers) >= MOST_RECORDS
        if horizon != journal.horizon and len(known) > MOST_PAST:
            past = sum(not is_looked_at(file, horizon) for file in known.values())
            is_due |= past > max(MOST_PAST, len(known) // 2)
        if not is_due:
            self._write(number, new.values(), horizon)
            return replace(
                journal, files=known, horizon=horizon, numbers=(*journal.numbers, number)
            )
        left = {path: file for path, file in known.items() if is_looked_at(file, horizon)}
        self._pass(number, [known[path] for path in known.keys() - left.keys()], first_day())
        # The newest record contains everything; the others are no longer needed.
        self._write(number, left.values(), horizon)
        for old in journal.numbers:
            self._store.delete(_path(old))
        return FileJournal(left, horizon, (number,))

    def delete(self) -> None:
        """Delete the journal: every file is read again."""
        self._store.delete_folder(_FILES)

    def _pass(self, number: int, files: Iterable[ReadFile], first_day: str) -> None:
        """Remember that these files were applied, and forget those of days before `first_day`."""
        days: dict[str, list[list[str]]] = {}
        for file in sorted(files, key=lambda one: one.path):
            days.setdefault(file.minute[:_DAY], []).append([file.path, file.etag])
        for day, named in days.items():
            if day >= first_day:
                content = json.dumps({"format": FORMAT, "files": named}, ensure_ascii=False)
                self._store.replace(_path(number, f"{_PASSED}/{day}"), content.encode())
        for day in self._store.list(_PASSED).folders:
            if day < first_day:
                self._store.delete_folder(f"{_PASSED}/{day}")

    @contextmanager
    def _reading(self, path: str, hint: str) -> Iterator[Mapping[str, Any]]:
        """A record, for a block that reads it. Raises EventRecordsUnreadable."""
        try:
            record = json.loads(self._store.read(path))
            if record["format"] != FORMAT:
                raise ValueError(f"its format is {record['format']}, not {FORMAT}")
            yield record
        except MALFORMED as error:
            raise EventRecordsUnreadable(
                f"it cannot be read which event files were applied: {error}",
                where=self._store.location(path),
                hint=hint,
            ) from error

    def _write(self, number: int, files: Iterable[ReadFile], horizon: str) -> None:
        record = {
            "format": FORMAT,
            "horizon": horizon,
            "files": [file.as_record() for file in files],
        }
        content = json.dumps(record, ensure_ascii=False).encode()
        self._store.replace(_path(number), content)


def is_looked_at(file: ReadFile, horizon: str) -> bool:
    """Whether the file has to be kept: it can be listed again, or has dead letters."""
    return bool(file.letters) or not file.minute or file.minute >= horizon


def letters_of(letters: Iterable[DeadLetter]) -> tuple[DeadLetters, ...]:
    """Dead letters of one file, grouped by table and reason."""
    found: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in letters:
        found.setdefault((letter.table, letter.reason), []).append(letter)
    return tuple(
        DeadLetters(
            table,
            reason,
            tuple(one.row for one in alike[:MOST_ROWS]),
            sum(one.count for one in alike),
        )
        for (table, reason), alike in found.items()
    )


def unread(path: str, reason: str, time: str) -> ReadFile:
    """What cannot even be opened."""
    letters = (DeadLetters("", reason, (WHOLE_FILE,), 1),)
    return ReadFile(path, f"{HELD}unread", letters=letters, time=time)


def day_of(moment: datetime) -> str:
    return f"{moment.year:04}{moment:%m%d}"


def _path(number: int, folder: str = _FILES) -> str:
    return f"{folder}/{number:020d}.json"


def with_those_of(
    stopped: Collection[TableId], before: Iterable[DeadLetters], dead: tuple[DeadLetters, ...]
) -> tuple[DeadLetters, ...]:
    """Dead letters of a file, with those from before of tables that have stopped since then, which
    are not found again."""
    names = {str(table) for table in stopped}
    found = {(one.table, one.reason) for one in dead}
    kept = (one for one in before if one.table in names)
    return (*dead, *(one for one in kept if (one.table, one.reason) not in found))


def replayable(
    file: ReadFile, tables: Set[TableId], oldest_ms: int | None, known: ReadFile | None
) -> ReadFile:
    """A file with what a replay of its dead letters may need. tables: that it has events of, apart
    from some of the dead letters. known: the file as it was recorded before."""
    if not file.letters:
        return file
    names = {*map(str, tables), *(letter.table for letter in file.letters)}
    if known is not None and known.letters:
        oldest_ms = oldest([oldest_ms, known.oldest_ms])
        names |= {*(known.tables or [""])}
    is_whole = any(letter.is_file for letter in file.letters)
    return replace(
        file,
        oldest_ms=None if is_whole or oldest_ms is None else max(oldest_ms, 0),
        tables=() if is_whole or "" in names else tuple(sorted(names)),
    )
