"""Parts of a load that was interrupted, and which of their rows are still there.

What is read of a large table is noted part by part: its files, the version of each row, and the
facts on which its values depend. The next load has another snapshot. It looks at the versions of
the rows of a part there: rows with a version that is noted are equal to those that were read, and
are kept; rows whose version is gone are taken out of the files; rows with another version are read.
So the load has all rows as of its own snapshot, and nothing depends on what was changed meanwhile.

A note holds by itself. Names of files contain an id of the attempt that wrote them, so two
processes never write the same file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.capture.records.files import UNREADABLE
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.staged.staged_file import StagedFile, is_damage
from mirrorlake.errors import RowsMoved
from mirrorlake.model.landed import FORMAT
from mirrorlake.sources.base import Recognising, Snapshot
from mirrorlake.sources.table import SnapshotPart
from mirrorlake.storage.store import Store
from mirrorlake.version import VERSION

NOTE = ".json"

_REASONS = {
    "timeline": "another server has taken over",
    "stream": "the stream was begun anew",
    "source": "the source, or what is made for us in it, is another one",
    "release": "it was begun by another release of mirrorlake",
    "metadata": "mirror.metadata_columns has changed",
    "file": "the table was rewritten or emptied",
    "columns": "its columns have changed",
    "becomes": "its columns have changed",
    "selection": "the selected columns or rows have changed",
    "types": "an enum or composite type was changed",
    "extremes": "the settings for values that no type can hold have changed",
    "transactions": "too many transactions have ended since",
}


@dataclass(frozen=True, slots=True)
class PartNote:
    """A part that was read. name: of the note; attempt: the number of the load, counted from the
    first one that was interrupted; files: their names and numbers of rows; versions: the file with
    the versions of the rows, in the order of the files."""

    name: str
    attempt: int
    facts: Mapping[str, Any]
    files: tuple[tuple[str, int], ...]
    versions: str

    @property
    def names(self) -> set[str]:
        return {self.name, self.versions, *(name for name, _rows in self.files)}

    def write(self, store: Store, folder: str) -> None:
        record = {
            "format": FORMAT,
            "attempt": self.attempt,
            "facts": self.facts,
            "files": [list(file) for file in self.files],
            "versions": self.versions,
        }
        store.replace(f"{folder}/{self.name}", json.dumps(record).encode())

    @classmethod
    def read(cls, store: Store, folder: str, name: str) -> Self | None:
        """None for a note that cannot be read."""
        try:
            record = json.loads(store.read(f"{folder}/{name}"))
            if record["format"] != FORMAT:
                return None
            files = tuple((str(file), int(rows)) for file, rows in record["files"])
            facts = dict(record["facts"])
            return cls(name, int(record["attempt"]), facts, files, str(record["versions"]))
        except UNREADABLE:
            return None


def facts_of(
    snapshot: Snapshot, parts: Sequence[SnapshotPart], record: StreamRecord, **ours: Any
) -> list[dict[str, Any] | None]:
    """By part, on what the values of its rows depend, as a note has it; None for one that is not
    noted. record: of the stream; ours: what else it depends on that is no matter of the source."""
    if snapshot.recognising is None or len(parts) < 2:
        return [None] * len(parts)
    ours |= {"source": dict(record.source), "release": VERSION}
    found = map(snapshot.recognising.facts, parts)
    return [None if facts is None else _plain({**ours, **facts}) for facts in found]


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(facts))
    return found


def _matching(
    notes: Sequence[PartNote], parts: Sequence[Mapping[str, Any] | None]
) -> dict[int, PartNote]:
    """By the number of a part the newest note of it that holds. parts: the facts of each part."""
    found = {}
    for number, facts in enumerate(parts):
        for note in sorted(notes, key=lambda note: note.attempt):
            if facts is not None and note.facts == facts:
                found[number] = note
    return found


def _reason(notes: Sequence[PartNote], parts: Sequence[Mapping[str, Any] | None]) -> str:
    """Why none of the notes holds."""
    for facts in parts:
        for note in notes:
            if facts is None or note.facts.get("heap") != facts.get("heap"):
                continue
            for name, why in _REASONS.items():
                if note.facts.get(name) != facts.get(name):
                    return why
    return "its parts are other ones"


class VersionsFile:
    """The versions of rows while they are read; durable when its context ends."""

    def __init__(self, store: Store, path: str) -> None:
        self._store, self._path = store, path
        self._file: StagedFile | None = None

    def noted(
        self, rows: Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]
    ) -> Iterator[pa.RecordBatch]:
        """The rows, whose versions are written before each batch is handed on."""
        for batch, versions in rows:
            if self._file is None:
                self._file = StagedFile(self._store, self._path, versions.schema)
            self._file.write(versions)
            yield batch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._file is not None and kind is None:
            self._file.finish(None)
        elif self._file is not None:
            self._file.drop()


@dataclass(frozen=True, slots=True)
class StillThere:
    """Which rows of a part that was read are in a later snapshot. masks: by file, true for a row
    that is; None where all are. new: the versions of the other rows that are there."""

    masks: tuple[np.ndarray | None, ...]
    new: pa.Table
    rows: int

    @property
    def is_little(self) -> bool:
        """Whether more is to be read than is kept."""
        return bool(self.new.num_rows > self.rows)

    @classmethod
    def of(cls, note: PartNote, before: pa.Table, now: pa.Table) -> Self:
        """before: the versions in the order of the rows in the files; now: those that are there."""
        if before.equals(now):
            return cls((None,) * len(note.files), now.slice(0, 0), now.num_rows)
        found = _places(before, now)
        is_there = found >= 0
        is_new = np.ones(now.num_rows, bool)
        is_new[found[is_there]] = False
        new = now.filter(pa.array(is_new))
        ends = np.cumsum([rows for _name, rows in note.files])
        pieces = np.split(is_there, ends)[: len(ends)]
        masks = tuple(None if piece.all() else piece for piece in pieces)
        return cls(masks, new, int(is_there.sum()))


def _read_versions(store: Store, folder: str, note: PartNote) -> pa.Table | None:
    """The versions of the rows that were read; None when they do not fit the files, or their file
    is damaged."""
    try:
        with store.open(f"{folder}/{note.versions}") as handle:
            found = pq.ParquetFile(handle, page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        if is_damage(error):
            return None
        raise
    return found if found.num_rows == sum(rows for _name, rows in note.files) else None


def still_there(
    store: Store, folder: str, note: PartNote, recognising: Recognising, part: SnapshotPart
) -> StillThere | None:
    """Which rows of a noted part are in a snapshot; None where it is to be read anew."""
    before = _read_versions(store, folder, note)
    if before is None:
        return None
    try:
        found = StillThere.of(note, before, recognising.versions(part))
    except RowsMoved:  # since the parts were listed
        return None
    return None if found.is_little else found


@dataclass(frozen=True, slots=True)
class Held:
    """What holds of an earlier attempt. notes: by the number of a part; attempt: the number of the
    next one; why_none: why none of the notes holds, empty if some do, or there are none."""

    notes: Mapping[int, PartNote]
    attempt: int
    why_none: str = ""


def held(
    store: Store,
    folder: str,
    prefix: str,
    parts: Sequence[Mapping[str, Any] | None],
    guard: Callable[[], None],
) -> Held:
    """Find the notes in a folder that hold, and delete the other staged files there. parts: the
    facts of each part; guard: raises when this process may no longer write."""
    notes = _notes_in(store, folder, prefix)
    found = _matching(notes, parts)
    guard()
    delete_others(store, folder, prefix, found.values())
    # Threads of an attempt before that was interrupted may still note parts.
    attempt = max((note.attempt for note in notes), default=0) + 1
    return Held(found, attempt, _reason(notes, parts) if notes and not found else "")


def _notes_in(store: Store, folder: str, prefix: str) -> list[PartNote]:
    """The notes in a folder whose files are there."""
    names = {file.name for file in store.list(folder).files if file.name.startswith(prefix)}
    found = [PartNote.read(store, folder, name) for name in sorted(names) if name.endswith(NOTE)]
    return [note for note in found if note is not None and note.names <= names]


def delete_others(store: Store, folder: str, prefix: str, notes: Collection[PartNote]) -> None:
    """Delete the staged files that belong to none of these notes."""
    held = {name for note in notes for name in note.names}
    for file in store.list(folder).files:
        if file.name.startswith(prefix) and file.name not in held:
            store.delete(f"{folder}/{file.name}")


def _places(before: pa.Table, now: pa.Table) -> np.ndarray:
    """Where each version of `before` is in `now`; -1 for one that is not. The first column is
    unique in each."""
    first, *others = before.column_names
    found = pc.index_in(before[first], value_set=now[first]).combine_chunks()
    where = np.asarray(found.fill_null(-1))
    for name in others:
        same = pc.equal(before[name], now[name].take(found))
        where = np.where(np.asarray(same.fill_null(False)), where, -1)
    return where
