"""What is remembered beside a table of events: of each key its last events, or of each event that
it was seen; the columns; what was done.

Each batch makes a record, under a number that no other had, before its rows are committed. The
commit names the number: then it counts, and not before. So a process that ends in between leaves
the table as it was, with the record of before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.keyed_files import Adds, sweep
from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.mirror.engine import Counts
from mirrorlake.model.table import TableId
from mirrorlake.root import STATE, escaped
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.store import Store

FOLDER = f"{STATE}/events"
FORMAT = 1
_TABLE = "table.json"
MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class EventTableState:
    """number: of the batch after which it is so; table_id: of Delta; name: of the table in the
    source; rule: by which its events are ordered; key: as the events name it, in order, none for a
    table without one; keys, changes: files of `keyed_files`; counts: rows since the beginning;
    source_ms: the latest time of an event."""

    number: int = 0
    table_id: str = ""
    name: str = ""
    rule: str = ""
    key: tuple[str, ...] = ()
    is_append: bool = False
    columns: EventTableColumns = field(default_factory=EventTableColumns)
    keys: Adds = ()
    changes: Adds = ()
    counts: Counts = field(default_factory=Counts)
    source_ms: int = 0

    @property
    def merges(self) -> bool:
        """Whether the table has the last row of each key, and not every event (ST-236, ST-251)."""
        return bool(self.key) and not self.is_append

    def as_text(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "number": self.number,
                "table_id": self.table_id,
                "name": self.name,
                "rule": self.rule,
                "key": self.key,
                "is_append": self.is_append,
                "columns": self.columns.as_record(),
                "keys": self.keys,
                "changes": self.changes,
                "rows": [self.counts.insert, self.counts.update, self.counts.delete],
                "source_ms": self.source_ms,
            },
            ensure_ascii=False,
        )

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Raises one of MALFORMED."""
        said = json.loads(text)
        if said["format"] != FORMAT:
            raise ValueError(f"its format is {said['format']}, and this release reads {FORMAT}")
        return cls(
            int(said["number"]),
            str(said["table_id"]),
            str(said["name"]),
            str(said["rule"]),
            tuple(map(str, said["key"])),
            said["is_append"] is True,
            EventTableColumns.parse(said["columns"]),
            tuple(said["keys"]),
            tuple(said["changes"]),
            Counts(*map(int, said["rows"])),
            int(said["source_ms"]),
        )


class StateFolder:
    """The records of one table, and the folder of their files, which is local."""

    def __init__(self, store: Store, table: TableId) -> None:
        self._store = store
        self.path = f"{FOLDER}/tables/{_folder_of(table)}"
        self.files = Path(store.location(f"{self.path}/files"))

    def read(self, number: int) -> EventTableState | None:
        """The record of a number. Raises one of MALFORMED."""
        try:
            return EventTableState.parse(self._store.read(self._record(number)))
        except FileNotFoundError:
            return None

    def numbers(self) -> list[int]:
        """Of the records that there are, ascending."""
        return numbers_in(self._store, self.path)

    def add(self, state: EventTableState) -> EventTableState:
        """Make a record, and the files that it names, durable, under the next number."""
        if self.files.exists():
            flush_folder(self.files)
        number = max([state.number, *self.numbers()])
        while True:
            number += 1
            numbered = replace(state, number=number)
            try:
                self._store.create(self._record(number), numbered.as_text().encode())
            except FileExistsError:
                continue
            return numbered

    def discard(self, current: EventTableState) -> None:
        """Remove the records before one, and the files that they name and it does not."""
        named = self._named(current)
        for number in self.numbers():
            if number < current.number:
                with suppress(*MALFORMED):
                    old = self.read(number)
                    for name in self._named(old) - named if old else ():
                        (self.files / name).unlink(missing_ok=True)
                self._store.delete(self._record(number))

    def sweep(self) -> None:
        """Remove the files that no record names. Nobody else may be about to write a record."""
        used: set[str] = set()
        for number in self.numbers():
            with suppress(*MALFORMED):
                found = self.read(number)
                used |= self._named(found) if found else set()
        sweep(self.files, used)

    @property
    def is_described(self) -> bool:
        """Whether the table has been made."""
        return any(one.name == _TABLE for one in self._store.list(self.path).files)

    def describe(self, table: TableId) -> None:
        """Note that the table has been made, and whose records these are."""
        told: Mapping[str, str] = {"schema": table.schema, "name": table.name}
        self._store.replace(f"{self.path}/{_TABLE}", json.dumps(told).encode())

    def _named(self, state: EventTableState) -> set[str]:
        return _names(self.files, [*state.keys, *state.changes])

    def delete(self) -> None:
        """Forget all."""
        self._store.delete_folder(self.path)

    def _record(self, number: int) -> str:
        return f"{self.path}/{number:020d}.json"


def numbers_in(store: Store, folder: str) -> list[int]:
    """Of the numbered records in a folder, ascending."""
    names = (one.name.partition(".") for one in store.list(folder).files)
    return sorted(int(name) for name, _dot, end in names if end == "json" and name.isdigit())


def states(store: Store) -> dict[TableId, EventTableState]:
    """The newest records of all tables, for `status`; what cannot be read is left out."""
    found = {}
    for folder in store.list(f"{FOLDER}/tables").folders:
        try:
            told = json.loads(store.read(f"{FOLDER}/tables/{folder}/{_TABLE}"))
            table = TableId(str(told["schema"]), str(told["name"]))
            records = StateFolder(store, table)
            state = records.read(records.numbers()[-1])
        except (*MALFORMED, FileNotFoundError, IndexError):
            continue
        if state is not None:
            found[table] = state
    return found


def _folder_of(table: TableId) -> str:
    return (
        f"{escaped(table.schema)}~2E{escaped(table.name)}" if table.schema else escaped(table.name)
    )


def _names(folder: Path, adds: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {path_of(folder, add).name for add in adds}
    vectors = (add["deletionVector"] for add in adds if add.get("deletionVector"))
    return names | {deletion_vectors.path_of(folder, vector).name for vector in vectors}
