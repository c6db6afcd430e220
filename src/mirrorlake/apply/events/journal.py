"""Which event files were applied, and which of their events could not be (ST-178, ST-253).

A record is written for each batch of files, after their events are in their tables; the events of
files that are not recorded come again, and change nothing then. Records are joined from time to
time, without the files of minute folders that are not looked into any more. So the work of a cycle
follows the files that are new, and those of the look-back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from mirrorlake.apply.events.reading import WHOLE_FILE, DeadLetter
from mirrorlake.apply.events.state import FOLDER, numbers_in
from mirrorlake.storage.store import Store

MOST_RECORDS = 64
"""Records that are joined to one."""

MOST_ROWS = 100
"""Rows that are named of a reason; how many there are is told in any case."""

_FILES = f"{FOLDER}/files"


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Events of a file that are not applied for one reason. rows: the first of them, from 0 on, or
    WHOLE_FILE alone; count: how many they are."""

    table: str
    reason: str
    rows: tuple[int, ...]
    count: int

    @property
    def is_file(self) -> bool:
        return self.rows == (WHOLE_FILE,)


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that was applied. etag: of its content; minute: of its folder, `yyyymmddhhmm`, "" for
    one elsewhere; retries: how often it was read again for its dead letters; time: when."""

    path: str
    etag: str
    minute: str = ""
    letters: tuple[DeadLetters, ...] = ()
    retries: int = 0
    time: str = ""

    def as_record(self) -> list[Any]:
        told = [[one.table, one.reason, list(one.rows), one.count] for one in self.letters]
        return [self.path, self.etag, self.minute, told, self.retries, self.time]

    @classmethod
    def parse(cls, record: Sequence[Any]) -> Self:
        path, etag, minute, told, retries, time = record
        letters = (DeadLetters(t, reason, tuple(rows), count) for t, reason, rows, count in told)
        return cls(path, etag, minute, tuple(letters), int(retries), time)


@dataclass(frozen=True, slots=True)
class FileJournal:
    """What is recorded. files: by path; horizon: `yyyymmdd`, before which no minute folder is
    looked into, "" as long as not all of them were; numbers: of the records."""

    files: Mapping[str, ReadFile] = field(default_factory=dict)
    horizon: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def dead(self) -> list[ReadFile]:
        """The files with dead letters, by path."""
        return [file for _path, file in sorted(self.files.items()) if file.letters]


class FileJournals:
    """Keeps the journal of one root, on its own disk."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self) -> FileJournal:
        """What is recorded now. Raises ValueError for a damaged record."""
        numbers = numbers_in(self._store, _FILES)
        files: dict[str, ReadFile] = {}
        horizon = ""
        for number in numbers:
            said = json.loads(self._store.read(_path(number)))
            horizon = max(horizon, str(said["horizon"]))
            files |= {one.path: one for one in map(ReadFile.parse, said["files"])}
        return FileJournal(files, horizon, tuple(numbers))

    def add(self, journal: FileJournal, files: Iterable[ReadFile], horizon: str) -> FileJournal:
        """Record files, in the place of what was told of them before. horizon: from now on."""
        new = {one.path: one for one in files}
        number = journal.numbers[-1] + 1 if journal.numbers else 1
        known = {**journal.files, **new}
        if len(journal.numbers) < MOST_RECORDS:
            self._write(number, new.values(), horizon)
            return replace(
                journal, files=known, horizon=horizon, numbers=(*journal.numbers, number)
            )
        left = {path: one for path, one in known.items() if is_looked_at(one, horizon)}
        # The newest record says all; what the others say is no longer asked for.
        self._write(number, left.values(), horizon)
        for old in journal.numbers:
            self._store.delete(_path(old))
        return FileJournal(left, horizon, (number,))

    def delete(self) -> None:
        """Forget all: every file is read again."""
        self._store.delete_folder(_FILES)

    def _write(self, number: int, files: Iterable[ReadFile], horizon: str) -> None:
        said = {"format": 1, "horizon": horizon, "files": [one.as_record() for one in files]}
        content = json.dumps(said, ensure_ascii=False).encode()
        self._store.replace(_path(number), content)


def is_looked_at(file: ReadFile, horizon: str) -> bool:
    """Whether it has to be remembered: it can be listed again, or has dead letters."""
    return bool(file.letters) or not file.minute or file.minute >= horizon


def letters_of(letters: Iterable[DeadLetter]) -> tuple[DeadLetters, ...]:
    """Dead letters of one file, by table and reason."""
    found: dict[tuple[str, str], list[int]] = {}
    for one in letters:
        found.setdefault((one.table, one.reason), []).append(one.row)
    return tuple(
        DeadLetters(table, reason, tuple(rows[:MOST_ROWS]), len(rows))
        for (table, reason), rows in found.items()
    )


def day_of(moment: datetime) -> str:
    return f"{moment:%Y%m%d}"


def _path(number: int) -> str:
    return f"{_FILES}/{number:020d}.json"
