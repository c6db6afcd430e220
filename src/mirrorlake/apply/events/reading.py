"""The events of a file, by table, and those that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.settings import EventInput, event_name
from mirrorlake.events.checks import check, key_names
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.metadata import OBJECT_PARTS
from mirrorlake.events.reading import read_events
from mirrorlake.events.types import EventColumn, UnifiedType
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.table import TableId

WHOLE_FILE = -1
"""The row of a dead letter that is a file."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that cannot be applied, and why (ST-253). row: its number in the file, from 0 on, or
    WHOLE_FILE; table: where it is known."""

    file: str
    row: int
    reason: str
    table: str = ""


@dataclass(frozen=True, slots=True)
class TableEvents:
    """n events of one table, of one file.

    name: of the table in the source; keys: the sets of columns that they name as key; head: HEAD of
    `events.decode.batch`; columns: the types of `payload`, by name; row: int64, n, their numbers in
    the file; backfill, deletion: bool, n; change_type: texts of ST-240.
    """

    table: TableId
    name: str
    file: str
    source: EventSource
    keys: Sequence[frozenset[str]]
    head: pa.Table
    columns: Mapping[str, UnifiedType]
    payload: pa.Table
    row: np.ndarray
    backfill: np.ndarray
    deletion: np.ndarray
    change_type: pa.Array

    def __len__(self) -> int:
        return int(self.head.num_rows)

    def letters(self, reasons: Mapping[int, str]) -> list[DeadLetter]:
        """Some of the events, by their number here, as dead letters."""
        return [
            DeadLetter(self.file, int(self.row[at]), reason, str(self.table))
            for at, reason in sorted(reasons.items())
        ]

    def only(self, which: np.ndarray) -> TableEvents:
        """Some of them: bool, n."""
        if which.all():
            return self
        mask = pa.array(which)
        return TableEvents(
            self.table,
            self.name,
            self.file,
            self.source,
            self.keys,
            self.head.filter(mask),
            self.columns,
            _filtered(self.payload, mask),
            self.row[which],
            self.backfill[which],
            self.deletion[which],
            self.change_type.filter(mask),
        )


@dataclass(frozen=True, slots=True)
class FileEvents:
    """All that a file holds."""

    tables: Sequence[TableEvents] = ()
    letters: Sequence[DeadLetter] = field(default_factory=list)


def events_of(
    file: BinaryIO,
    name: str,
    settings: EventInput,
    columns: Sequence[EventColumn] | None = None,
    known: Mapping[str, UnifiedType] | None = None,
) -> FileEvents:
    """Read a file. name: its path; columns, known: as for `read_events`. Raises OSError.

    Memory: the events of the file. A file that cannot be read to its end is a dead letter as a
    whole, and nothing of it is applied.
    """
    tables: list[TableEvents] = []
    letters: list[DeadLetter] = []
    try:
        for batch in read_events(file, columns=columns, known=known):
            _sort(batch, name, settings, tables, letters)
    except UnreadableEvents as error:
        return FileEvents((), [DeadLetter(name, WHOLE_FILE, str(error))])
    return FileEvents(tables, letters)


def _sort(
    batch: EventBatch,
    name: str,
    settings: EventInput,
    tables: list[TableEvents],
    letters: list[DeadLetter],
) -> None:
    """Put the events of a batch with their tables, or among the dead letters."""
    try:
        checked = check(batch, settings.source)
    except ValueError as error:
        letters += [DeadLetter(name, batch.first + row, str(error)) for row in range(len(batch))]
        return
    rejected = dict(batch.rejected) | dict(checked.rejected)
    parts = [
        pc.fill_null(contiguous(batch.head.column(one)), "") for one in OBJECT_PARTS[checked.source]
    ]
    nameless = pc.equal(parts[1], "").to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(nameless).tolist():
        rejected.setdefault(row, "the event names no table")
    good = np.ones(len(batch), bool)
    good[list(rejected)] = False
    groups = codes.encode(pa.table(parts, names=["namespace", "table"]))
    named: dict[int, str] = {}
    for group, first in enumerate(groups.first.tolist()):
        namespace, table = (part[first].as_py() for part in parts)
        named[group] = event_name(namespace, table)
        which = good & (groups.code == group)
        if which.any():
            found = batch.head.filter(pa.array(which))
            configured = settings.keys.get(named[group], ())
            some = EventBatch(0, found, (), found.select([]), np.zeros(0, bool))
            tables.append(
                TableEvents(
                    settings.table(namespace, table),
                    named[group],
                    name,
                    checked.source,
                    key_names(some, configured),
                    found,
                    {one.name: one.type for one in batch.columns},
                    _filtered(batch.payload, pa.array(which)),
                    batch.first + np.flatnonzero(which),
                    checked.backfill[which],
                    checked.deletion[which],
                    checked.change_type.filter(pa.array(which)),
                )
            )
    for row, reason in sorted(rejected.items()):
        table = named[int(groups.code[row])] if not nameless[row] else ""
        letters.append(DeadLetter(name, batch.first + row, reason, table))


def _filtered(rows: pa.Table, which: pa.Array) -> pa.Table:
    """Rows without a column, too, are as many as are wanted."""
    if rows.num_columns:
        return rows.filter(which)
    return pa.table({"_": which}).filter(which).select([])


def by_table(files: Sequence[FileEvents]) -> Iterator[tuple[TableId, list[TableEvents]]]:
    """The events of some files, each table once."""
    found: dict[TableId, list[TableEvents]] = {}
    for file in files:
        for events in file.tables:
            found.setdefault(events.table, []).append(events)
    yield from found.items()
