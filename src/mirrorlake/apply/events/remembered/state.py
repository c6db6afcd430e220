"""The state of a table of events: for each key its last events, or the identities of all events;
the columns; the counts.

Each batch writes a record under a new number before its rows are committed. The commit contains the
number, and thereby makes the record current. After a crash in between, the table and its current
record are unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.apply.events.remembered.keyed_files import Adds
from mirrorlake.apply.events.remembered.stored_changes import StoredChanges
from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.workspace import TableWorkspace, open_workspace
from mirrorlake.mirror.engine import Counts
from mirrorlake.mirror.event_order import ORDER, RULES, last_truncations
from mirrorlake.mirror.table.progress import MALFORMED
from mirrorlake.model.table import TableId
from mirrorlake.root import STATE, escaped
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.store import Store

FOLDER = f"{STATE}/events"
FORMAT = 1
MOST_NAME = 255
"""Maximum bytes of the name of a folder."""
_TABLE = "table.json"


@dataclass(frozen=True, slots=True)
class WidenedColumn:
    """A column of a table that got a wider type because of its events. version: of the table, in
    which it has that first; before, after: unified types."""

    column: str
    before: str
    after: str
    version: int


@dataclass(frozen=True, slots=True)
class EventTableState:
    """The state after a batch.

    number: of the batch.
    table_id: of Delta.
    name: of the table in the source.
    rule: by which its events are ordered.
    key: with the names in the events, in order; empty for a table without a key.
    keys, changes: files of `keyed_files`.
    counts: rows since the beginning.
    source_ms: the latest time of an event.
    pruned_ms: the time up to which the state was pruned.
    truncations: rows of ORDER, the last truncation of each log.
    database: that the table is in, where that is no part of its name (`is_in_database`); "" until
        an event tells it, also in a record of a release that did not remember it.
    is_by_value: whether keys are equal where the source has them equal (`key_values`), and not only
        where they are written alike, as in tables of earlier releases.
    waiting: number of deletions that wait for the event with their key (ST-230); None in a record
        of a release that did not count them.
    content_by_value: whether equal numbers count as one content whatever type their column has
        (`content`), not so in tables of earlier releases.
    widened: the columns that got wider types, in order.
    """

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
    pruned_ms: int = 0
    truncations: tuple[Mapping[str, Any], ...] = ()
    database: str = ""
    waiting: int | None = 0
    is_by_value: bool = False
    content_by_value: bool = False
    widened: tuple[WidenedColumn, ...] = ()

    @property
    def merges(self) -> bool:
        """Whether the table keeps the last row of each key, rather than every event (ST-236,
        ST-251)."""
        return bool(self.key) and not self.is_append

    def truncated(self, more: pa.Table) -> pa.Table:
        """The last truncation of each log, with some more; ORDER."""
        known = pa.Table.from_pylist(list(self.truncations), ORDER)
        both = pa.concat_tables([known, more]).combine_chunks()
        return last_truncations(RULES[self.rule], both) if both.num_rows else both

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
                "pruned_ms": self.pruned_ms,
                "truncations": self.truncations,
                "database": self.database,
                "waiting": self.waiting,
                "is_by_value": self.is_by_value,
                "content_by_value": self.content_by_value,
                "widened": [asdict(column) for column in self.widened],
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
            int(said.get("pruned_ms", 0)),
            tuple(said.get("truncations", ())),
            str(said.get("database", "")),
            None if said.get("waiting") is None else int(said["waiting"]),
            said.get("is_by_value") is True,
            said.get("content_by_value") is True,
            tuple(WidenedColumn(**column) for column in said.get("widened", ())),
        )


class StateFolder:
    """The records of one table, and their files. files: access to these while it is open."""

    files: TableWorkspace

    def __init__(self, store: Store, table: TableId) -> None:
        self._store = store
        self.path = f"{FOLDER}/tables/{_folder_of(table)}"
        self._files = f"{self.path}/files"
        self.stored_changes = StoredChanges(store, f"{self.path}/changes")

    @contextmanager
    def open(self) -> Iterator[None]:
        """Keep local copies of the files while this is open."""
        where = self._store.location(self._files), self._store.options(self._files)
        with open_workspace(*where) as self.files:
            yield

    def read(self, number: int) -> EventTableState | None:
        """The record with a number. Raises one of MALFORMED."""
        try:
            return EventTableState.parse(self._store.read(self._record(number)))
        except FileNotFoundError:
            return None

    def numbers(self) -> list[int]:
        """The numbers of the existing records, ascending."""
        return numbers_in(self._store, self.path)

    def add(self, state: EventTableState, before: EventTableState) -> EventTableState:
        """Make a record and the files that it names durable, under the next number. before: a state
        whose files are."""
        self.upload(state, before)
        return self.record(state)

    def upload(self, state: EventTableState, before: EventTableState) -> None:
        """Make the files of a state durable that one before did not have."""
        if self.files.folder.exists():
            flush_folder(self.files.folder)
        self.files.upload(_new_files(state, before))

    def record(self, state: EventTableState) -> EventTableState:
        """Make a record of durable files durable, under the next number."""
        number = max([state.number, *self.numbers()])
        while True:
            number += 1
            numbered = replace(state, number=number)
            try:
                self._store.create(self._record(number), numbered.as_text().encode())
            except FileExistsError:
                continue
            return numbered

    def missing(self, state: EventTableState) -> str:
        """The name of a file of a state that is not there; "" if all are."""
        there = {file.name for file in self._store.list(self._files).files}
        return min(self._named(state) - there, default="")

    def discard(self, current: EventTableState) -> None:
        """Delete the records before `current`, and the files that only they use."""
        named = self._named(current)
        for number in self.numbers():
            if number < current.number:
                with suppress(*MALFORMED):
                    old = self.read(number)
                    for name in self._named(old) - named if old else ():
                        self._store.delete(f"{self._files}/{name}")
                self._store.delete(self._record(number))

    def sweep(self) -> None:
        """Delete the files that no record uses. Nobody else may be writing a record. If a record is
        unreadable, for example of a later release, nothing is deleted."""
        used: set[str] = set()
        for number in self.numbers():
            try:
                found = self.read(number)
                used |= self._named(found) if found else set()
            except MALFORMED:
                return
        for file in self._store.list(self._files).files:
            if file.name not in used:
                self._store.delete(f"{self._files}/{file.name}")

    def is_described(self) -> bool:
        """Whether the table was created."""
        return any(one.name == _TABLE for one in self._store.list(self.path).files)

    def describe(self, table: TableId) -> None:
        """Record that the table was created, and which table these records belong to.
        Idempotent; what is damaged is written again."""
        path = f"{self.path}/{_TABLE}"
        described = json.dumps({"schema": table.schema, "name": table.name}).encode()
        with suppress(FileNotFoundError):
            if self._store.read(path) == described:
                return
        self._store.replace(path, described)

    def _named(self, state: EventTableState) -> set[str]:
        return _names([*state.keys, *state.changes])

    def delete(self) -> None:
        self._store.delete_folder(self.path)

    def _record(self, number: int) -> str:
        return f"{self.path}/{number:020d}.json"


def numbers_in(store: Store, folder: str) -> list[int]:
    """The numbers of the records in a folder, ascending."""
    names = (one.name.partition(".") for one in store.list(folder).files)
    return sorted(int(name) for name, _dot, end in names if end == "json" and name.isdigit())


def created(store: Store) -> list[TableId]:
    """The tables that were created, also those whose records are lost or unreadable."""
    found = []
    for folder in store.list(f"{FOLDER}/tables").folders:
        with suppress(*MALFORMED, FileNotFoundError):
            stored = json.loads(store.read(f"{FOLDER}/tables/{folder}/{_TABLE}"))
            found.append(TableId(str(stored["schema"]), str(stored["name"])))
    return found


def states(store: Store) -> dict[TableId, EventTableState]:
    """The newest records of all tables, for `status`; unreadable ones are skipped."""
    found = {table: newest_state(store, table) for table in created(store)}
    return {table: state for table, state in found.items() if state is not None}


def newest_state(store: Store, table: TableId) -> EventTableState | None:
    """The newest record of a table; None if it is missing or unreadable."""
    try:
        records = StateFolder(store, table)
        return records.read(records.numbers()[-1])
    except (*MALFORMED, FileNotFoundError, IndexError):
        return None


def _folder_of(table: TableId) -> str:
    """A distinct folder name for each table; long names are replaced by a hash with a prefix that
    no escaped name has."""
    name = "~2E".join(escaped(one) for one in (table.schema, table.name) if one)
    if len(name.encode()) <= MOST_NAME:
        return name
    return f"~x{hashlib.sha256(name.encode()).hexdigest()}"


def _names(adds: Sequence[Mapping[str, Any]]) -> set[str]:
    names = {path_of(Path(), add).name for add in adds}
    vectors = (add["deletionVector"] for add in adds if add.get("deletionVector"))
    return names | {deletion_vectors.path_of(Path(), vector).name for vector in vectors}


def _new_files(state: EventTableState, before: EventTableState) -> list[Mapping[str, Any]]:
    """The files of a state that one before did not have, as actions; of those that it had with
    another deletion vector only the vector is new."""
    known = {add["path"]: add for add in (*before.keys, *before.changes)}
    new = [add for add in (*state.keys, *state.changes) if known.get(add["path"]) != add]
    removed = [{"remove": {"path": add["path"]}} for add in new if add["path"] in known]
    return [*removed, *({"add": add} for add in new)]
