"""Parts of a load that are read by tasks elsewhere, and what becomes of them, as files.

Capture and the mirror share nothing but the landing zone, so they exchange small files below the
records of the stream, in one folder per load:

    load_tasks/<load>/<n>.json                 capture: a table and its parts
    load_tasks/<load>/answers/<n>-<part>.json  the mirror: the files of a part, or an error
    load_tasks/<load>/taken.json               the mirror, again and again while it works on them

A part may be answered twice; the first answer counts. Capture deletes the folder when it needs no
more answers. None of the files holds a secret or SQL: the mirror connects and selects by its own
settings.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any, Self

from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.model.landed import FORMAT
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store
from mirrorlake.version import VERSION

FOLDER = "load_tasks"
_ANSWERS, _TAKEN, _JSON = "answers", "taken", ".json"


def description_of(table: SourceTable) -> str:
    """What both sides have to agree on: the release, the columns with their types, and what is
    selected."""
    types = sorted(table.source_types.items())
    facts = (VERSION, table.identity, table.schema, types, table.selection)
    return sha256(repr(facts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TableTasks:
    """A table of a load, and its parts.

    identity, description: of the table; extremes: the settings for values that no type can hold,
    empty where unknown; snapshot: `Snapshot.shared`; point: that of the snapshot;
    folder: where the files belong, relative to the root; file_bytes: of rows in memory per file;
    parts: of each its number, its range as plain data, and whether the versions of its rows are
        written as well, so that a later load can go on behind it.
    """

    table: str
    identity: str
    description: str
    extremes: str
    snapshot: str
    point: str
    folder: str
    stream: str
    stream_id: str
    metadata: bool
    file_bytes: int
    parts: Sequence[tuple[int, Any, bool]]

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def decode(cls, content: bytes) -> Self | None:
        """None for what another release has written."""
        try:
            facts = json.loads(content)
            if facts.pop("format") != FORMAT:
                return None
            parts = [
                (int(number), bounds, bool(noted)) for number, bounds, noted in facts.pop("parts")
            ]
            return cls(**facts, parts=parts)
        except UNREADABLE:
            return None


class PartFailure(StrEnum):
    """Why a part was not read, every time it was tried."""

    TABLE = "table"  # the table stops
    UNREACHABLE = "unreachable"  # where tasks run, the server cannot be reached
    MOVED = "moved"  # the table has to be read anew
    READING = "reading"  # the server, or the snapshot, went away
    TASK = "task"  # something is wrong where tasks run


@dataclass(frozen=True, slots=True)
class PartAnswer:
    """The files of a part in order, with their numbers of rows, or why there are none.

    versions: the file with the versions of the rows, if it was asked for and there are rows;
    replaced: by column, how many values were replaced; code, what, hint: of the error.
    """

    rows: int = 0
    files: Sequence[tuple[str, int]] = ()
    versions: str = ""
    replaced: Mapping[str, int] = field(default_factory=dict)
    failure: PartFailure | None = None
    code: str = ""
    what: str = ""
    hint: str = ""

    def encode(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    @classmethod
    def decode(cls, content: bytes) -> Self:
        facts = json.loads(content)
        found = facts.pop("format")
        if found != FORMAT:
            what = f"the answer has format {found}; this release reads format {FORMAT}"
            return cls(failure=PartFailure.TASK, what=what, hint="Use one release everywhere.")
        failure = facts.pop("failure")
        files = [(str(name), int(rows)) for name, rows in facts.pop("files")]
        return cls(**facts, files=files, failure=PartFailure(failure) if failure else None)


@dataclass(frozen=True, slots=True)
class LoadTasks:
    """The files of one load. folder: that of the load."""

    store: Store
    folder: str

    # -- capture --------------------------------------------------------------------------------

    @classmethod
    def begin(cls, store: Store, records: str) -> Self:
        """A new load. What earlier ones left is deleted. records: the folder of the stream."""
        for earlier in cls.found(store, records):
            earlier.end()
        return cls(store, f"{records}/{FOLDER}/{uuid.uuid4().hex}")

    def ask(self, number: int, tasks: TableTasks) -> None:
        self.store.create(f"{self.folder}/{number}{_JSON}", tasks.encode())

    def withdraw(self, number: int) -> None:
        """No more answers on a table are needed."""
        self.store.delete(f"{self.folder}/{number}{_JSON}")

    def end(self) -> None:
        """No more answers are needed. What the mirror writes meanwhile is left for the next load to
        delete."""
        for number in self.asked():
            self.withdraw(number)
        with suppress(OSError):
            self.store.delete_folder(self.folder)

    def answered(self) -> Iterator[tuple[int, int]]:
        """The numbers of tables and parts of which there are answers."""
        for file in self.store.list(f"{self.folder}/{_ANSWERS}").files:
            table, _, part = file.name.removesuffix(_JSON).partition("-")
            if table.isdigit() and part.isdigit():
                yield int(table), int(part)

    def answer_of(self, number: int, part: int) -> PartAnswer:
        return PartAnswer.decode(self.store.read(self._answer(number, part)))

    def taken(self) -> str:
        """Changes as long as the mirror works on them; empty before it does."""
        listed = self.store.list(self.folder).files
        return next((file.etag for file in listed if file.name == _TAKEN + _JSON), "")

    # -- the mirror -----------------------------------------------------------------------------

    @classmethod
    def found(cls, store: Store, records: str) -> list[Self]:
        """The loads that wait for answers."""
        folder = f"{records}/{FOLDER}"
        return [cls(store, f"{folder}/{name}") for name in store.list(folder).folders]

    def asked(self) -> list[int]:
        """The numbers of the tables."""
        names = [file.name.removesuffix(_JSON) for file in self.store.list(self.folder).files]
        return [int(name) for name in names if name.isdigit()]

    def tasks_of(self, number: int) -> TableTasks | None:
        """None for what is not there any more, or cannot be read."""
        try:
            return TableTasks.decode(self.store.read(f"{self.folder}/{number}{_JSON}"))
        except FileNotFoundError:
            return None

    def take(self) -> None:
        content = {"format": FORMAT, "token": uuid.uuid4().hex}
        self.store.replace(f"{self.folder}/{_TAKEN}{_JSON}", json.dumps(content).encode())

    def answer(self, number: int, part: int, answer: PartAnswer) -> bool:
        """Returns whether it is the first answer, which counts."""
        try:
            self.store.create(self._answer(number, part), answer.encode())
        except FileExistsError:
            return False
        return True

    def _answer(self, number: int, part: int) -> str:
        return f"{self.folder}/{_ANSWERS}/{number}-{part}{_JSON}"
