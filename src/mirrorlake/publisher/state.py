"""The state of a publisher for a table: a file next to its data, `_publisher.json`.

Its name begins with an underscore, so that readers of the landing zone ignore it (LZ-021), and it
is deleted with the folder when the table is dropped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from mirrorlake.errors import BadMetadata
from mirrorlake.model.types import DataType
from mirrorlake.publisher.describe import Description
from mirrorlake.storage.store import Store

FILE = "_publisher.json"
FORMAT = "1"

REMEMBERED = 1_000
"""Number of batches that are recognized by name if they are published again."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a batch, with a digest of its content."""

    number: int
    name: str
    size: int
    sha256: str
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch and the numbers assigned to it (LZ-121).

    batch: its name, None if it has none; files: None as long as not all of them are staged;
    columns, marked: the state of the table when the batch is published.
    """

    batch: str | None
    first: int
    files: tuple[DataFile, ...] | None = None
    columns: Mapping[str, DataType] = field(default_factory=dict)
    marked: bool = False

    @property
    def is_sealed(self) -> bool:
        return self.files is not None

    @property
    def after(self) -> int:
        """The number after its last file."""
        return self.first + len(self.files or ())


@dataclass(frozen=True, slots=True)
class State:
    """The state of a table.

    held: `_metadata.json` is not written until the table is released (LZ-056); columns: the
    published types, by name; marked: a file with markers was published (LZ-107); next: the number
    of the next file; pending: a batch that was started; done: the last batches, oldest first.
    """

    description: Description
    held: bool = False
    columns: Mapping[str, DataType] = field(default_factory=dict)
    marked: bool = False
    next: int = 1
    pending: Assignment | None = None
    done: tuple[Assignment, ...] = ()

    def known(self, batch: str | None) -> Assignment | None:
        """The finished batch of this name."""
        named = (done for done in self.done if batch is not None and done.batch == batch)
        return next(named, None)

    def finished(self, batch: Assignment) -> Self:
        """The state after a sealed batch is published."""
        others = tuple(done for done in self.done if done.first != batch.first)
        finished = replace(batch, columns={}, marked=False)
        return replace(
            self,
            pending=None,
            columns={**self.columns, **batch.columns},
            marked=self.marked or batch.marked,
            next=max(self.next, batch.after),
            done=(*others, finished)[-REMEMBERED:] if batch.files else self.done,
        )


def load(store: Store, folder: str, *, table: str) -> State | None:
    """The state of a table; None if there is none. Raises BadMetadata."""
    path = f"{folder}/{FILE}"
    try:
        content = store.read(path)
    except FileNotFoundError:
        return None
    try:
        return _state(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadMetadata(
            f"the file cannot be read: {error}",
            table=table,
            file=FILE,
            hint="Restore the file, or drop the table and load it again.",
        ) from error


def save(store: Store, folder: str, state: State) -> None:
    """Replace the state; durable on return."""
    record = {
        "format": FORMAT,
        "description": state.description.as_record(),
        "held": state.held,
        "columns": _names(state.columns),
        "marked": state.marked,
        "next": state.next,
        "pending": _record(state.pending) if state.pending else None,
        "done": [_record(batch) for batch in state.done],
    }
    content = json.dumps(record, indent=1, ensure_ascii=False)
    store.replace(f"{folder}/{FILE}", content.encode(errors="surrogatepass"))


def _record(batch: Assignment) -> dict[str, Any]:
    return {
        "batch": batch.batch,
        "first": batch.first,
        "files": None if batch.files is None else [asdict(file) for file in batch.files],
        "columns": _names(batch.columns),
        "marked": batch.marked,
    }


def _state(record: Mapping[str, Any]) -> State:
    if record["format"] != FORMAT:
        raise ValueError(
            f"it has format {record['format']!r}; this release reads format {FORMAT!r}"
        )
    return State(
        description=Description.parse(record["description"]),
        held=bool(record["held"]),
        columns=_types(record["columns"]),
        marked=bool(record["marked"]),
        next=int(record["next"]),
        pending=_assignment(record["pending"]) if record["pending"] else None,
        done=tuple(map(_assignment, record["done"])),
    )


def _assignment(record: Mapping[str, Any]) -> Assignment:
    files = record["files"]
    return Assignment(
        batch=record["batch"],
        first=int(record["first"]),
        files=None if files is None else tuple(DataFile(**file) for file in files),
        columns=_types(record["columns"]),
        marked=bool(record["marked"]),
    )


def _names(columns: Mapping[str, DataType]) -> dict[str, str]:
    return {name: str(kind) for name, kind in columns.items()}


def _types(record: Mapping[str, str]) -> dict[str, DataType]:
    return {name: DataType.parse(kind) for name, kind in record.items()}
