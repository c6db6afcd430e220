"""The events of a file by table, and its dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.settings import EventInput, event_name
from mirrorlake.events.checks import CheckedEvents, check, key_names, source_of
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import (
    READ_TIMESTAMP,
    SORT_KEYS,
    SOURCE_TIMESTAMP,
    UUID,
    EventSource,
)
from mirrorlake.events.metadata import DATABASE, OBJECT_PARTS, is_in_database
from mirrorlake.events.reading import read_events
from mirrorlake.events.types import STRING, EventColumn, UnifiedType
from mirrorlake.mirror.event_order.rollbacks import TRANSACTION
from mirrorlake.mirror.event_order.rules import POSITION_FIELDS
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.table import TableId, of_table

WHOLE_FILE = -1
"""The row of a dead letter for a whole file."""

ROWID = "ROWID"
"""The key column of an Oracle table without key, if it is configured (ST-250)."""

MOST_ALIKE = 100
"""Maximum number of dead letters of one file that are kept one by one for one reason."""

LARGE = 32 << 20
"""Bytes of events that were read at once, after which the allocator returns what it keeps: blocks
of another size would not come out of it."""

Types = Mapping[str, UnifiedType]
"""Types of columns, by name in the events."""

KnownTypes = Mapping[TableId, Types]
"""The types of columns that are known, by table."""

_NONE: KnownTypes = MappingProxyType({})

_APPLIED = [UUID, READ_TIMESTAMP, SOURCE_TIMESTAMP, SORT_KEYS, *POSITION_FIELDS, *TRANSACTION]
"""The other columns of HEAD take more memory, and are checked while events are read."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that cannot be applied, with the reason (ST-253).

    row: its number in the file, from 0, or WHOLE_FILE. table: if known. count: how many events it
        stands for, this one and later ones with the same reason.
    """

    file: str
    row: int
    reason: str
    table: str = ""
    count: int = 1


@dataclass(frozen=True, slots=True)
class TableEvents:
    """n events of one table, of one file.

    name: of the table in the source.
    keys: the distinct sets of key columns of the events.
    head: the columns of HEAD of `events.decode.batch` that are needed to apply events.
    columns: the types of `payload`, by name.
    row: int64, n, the numbers of the events in the file.
    backfill, deletion: bool, n.
    change_type: strings from the list of ST-240, or TRUNCATE.
    database: that the events name beside the schema, "" for none.
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
    database: str = ""

    def __len__(self) -> int:
        return int(self.head.num_rows)

    def letters(self, reasons: Mapping[int, str]) -> list[DeadLetter]:
        """Dead letters for some of the events, given by index, with their reasons."""
        return [
            DeadLetter(self.file, int(self.row[at]), reason, str(self.table))
            for at, reason in sorted(reasons.items())
        ]

    def only(self, which: np.ndarray) -> TableEvents:
        """The events for which `which` (bool, n) is true."""
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
            _filtered(self.payload, which),
            self.row[which],
            self.backfill[which],
            self.deletion[which],
            self.change_type.filter(mask),
            self.database,
        )


@dataclass(frozen=True, slots=True)
class FileEvents:
    """The events of a file, or some of them. oldest_ms: the earliest source time, also of dead
    letters; None if no event tells one."""

    tables: Sequence[TableEvents] = ()
    letters: Sequence[DeadLetter] = ()
    oldest_ms: int | None = None

    @classmethod
    def together(cls, parts: Sequence[FileEvents]) -> FileEvents:
        """Several parts combined."""
        return cls(
            [one for part in parts for one in part.tables],
            [one for part in parts for one in part.letters],
            oldest(part.oldest_ms for part in parts),
        )

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return sum(table.head.nbytes + table.payload.nbytes for table in self.tables)

    def of(self, tables: Set[TableId]) -> FileEvents:
        """The events and the dead letters of some tables, and those of the whole file."""
        names = {str(table) for table in tables}
        return FileEvents(
            [one for one in self.tables if one.table in tables],
            [one for one in self.letters if one.row == WHOLE_FILE or one.table in names],
            self.oldest_ms,
        )

    def without_rows(self) -> FileEvents:
        """The tables and columns without events, and the dead letters."""
        return replace(
            self, tables=[table.only(np.zeros(len(table), bool)) for table in self.tables]
        )


def event_parts(
    file: BinaryIO,
    name: str,
    settings: EventInput,
    columns: Sequence[EventColumn] | None = None,
    known: KnownTypes = _NONE,
) -> Iterator[FileEvents]:
    """The events of a file in order, in parts.

    name: the path of the file. columns: as for `read_events`. Raises OSError, and UnreadableEvents
        also after parts: use none of them before the last one has been read.
    """

    def types(head: pa.Table) -> Types:
        named = _object_of(head, settings) if known or settings.types else None
        if named is None:
            return {}
        wanted = of_table(settings.types, TableId(*named)) or {}
        return {**known.get(settings.table(*named), {}), **wanted}

    for batch in read_events(file, columns=columns, known=types):
        is_large = batch.payload.nbytes > LARGE
        found = [_sorted(batch, name, settings, is_inferred=columns is None)]
        del batch  # which may be large, as may the next one
        yield found.pop()  # so that it is freed when the caller does not need it any more
        if is_large:
            pa.default_memory_pool().release_unused()


def _object_of(head: pa.Table, settings: EventInput) -> tuple[str, str] | None:
    """The schema and the table of some events of one object."""
    source = source_of(head, settings.source)
    if source is None:
        return None
    namespace, table = (
        pc.max(pc.fill_null(contiguous(head.column(name)), "")).as_py()
        for name in OBJECT_PARTS[source]
    )
    return (namespace, table) if table else None


def _sorted(batch: EventBatch, name: str, settings: EventInput, *, is_inferred: bool) -> FileEvents:
    """Distribute the events of a batch to their tables and the dead letters.

    is_inferred: whether the columns are those of all events, so that a table has only those of
        which its events have values.
    """
    numbers, times = batch.row.tolist(), contiguous(batch.head.column(SOURCE_TIMESTAMP))
    oldest_ms = pc.min(times).as_py()
    unfit = {row for rows in batch.unfit.values() for row in rows.tolist()}
    read = {row: why for row, why in batch.rejected.items() if row not in unfit}
    try:
        checked = check(replace(batch, rejected=read), settings.source)
    except ValueError as error:
        why = str(error)
        unread = (
            DeadLetter(name, numbers[row], batch.rejected.get(row, why))
            for row in range(len(batch))
        )
        return FileEvents((), _counted(unread), oldest_ms)
    tables = list[TableEvents]()
    parts = [
        pc.fill_null(contiguous(batch.head.column(column)), "")
        for column in OBJECT_PARTS[checked.source]
    ]
    rejected = dict(checked.rejected)
    for row in unfit - _spared(batch, unfit, checked, settings, parts):
        rejected.setdefault(row, batch.rejected[row])
    nameless = pc.equal(parts[1], "").to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(nameless).tolist():
        rejected.setdefault(row, "the event names no table")
    good = np.ones(len(batch), bool)
    good[list(rejected)] = False
    databases = _databases(batch.head, checked.source)
    grouped = dict(zip(("namespace", "table"), parts, strict=True))
    if not isinstance(databases, str):
        grouped[DATABASE] = databases
    groups = codes.encode(pa.table(grouped))
    own: dict[int, TableId] = {}
    for group, first in enumerate(groups.first.tolist()):
        namespace, table = (part[first].as_py() for part in parts)
        own[group] = settings.table(namespace, table)
        which = good & (groups.code == group)
        if which.any():
            found, payload = _filtered(batch.head, which), _filtered(batch.payload, which)
            if is_inferred and len(groups.first) > 1:
                payload = _with_values(payload)
            configured = of_table(settings.keys, TableId(namespace, table)) or ()
            some = EventBatch(0, found, (), found.select([]), np.zeros(0, bool))
            named = key_names(some, configured)
            kinds = {
                column.name: column.type
                for column in batch.columns
                if column.name in payload.schema.names
            }
            if checked.source is EventSource.ORACLE and any(ROWID in one for one in named):
                payload, kinds = _with_row_id(payload, found, kinds)
            tables.append(
                TableEvents(
                    own[group],
                    # Quoted where a dot in a name could be mistaken for the separator.
                    event_name(f'"{namespace}"' if "." in namespace else namespace, table),
                    name,
                    checked.source,
                    named,
                    found.select(_APPLIED),
                    kinds,
                    payload,
                    batch.row[which],
                    checked.backfill[which],
                    checked.deletion[which],
                    checked.change_type.filter(pa.array(which)),
                    databases if isinstance(databases, str) else databases[first].as_py(),
                )
            )
    letters = (
        DeadLetter(
            name,
            numbers[row],
            reason,
            str(own[int(groups.code[row])]) if not nameless[row] else "",
        )
        for row, reason in sorted(rejected.items())
    )
    return FileEvents(tables, _counted(letters), oldest_ms)


def _databases(head: pa.Table, source: EventSource) -> pa.Array | str:
    """The database of all events, "" for none; or that of each, where they name several. Only where
    tables of two databases may have one name. One that names none is of the only one of others."""
    if not is_in_database(source):
        return ""
    found = pc.fill_null(contiguous(head.column(DATABASE)), "")
    named = [one for one in pc.unique(found).to_pylist() if one]
    return found if len(named) > 1 else next(iter(named), "")


def _with_row_id(
    payload: pa.Table, head: pa.Table, kinds: Mapping[str, UnifiedType]
) -> tuple[pa.Table, dict[str, UnifiedType]]:
    """The payload with the id of the row, which is no column of the source."""
    kinds = {**kinds, ROWID: STRING}
    if ROWID in payload.column_names:
        at = payload.column_names.index(ROWID)
        return payload.set_column(at, ROWID, head.column("row_id")), kinds
    return payload.append_column(ROWID, head.column("row_id")), kinds


def _spared(
    batch: EventBatch,
    unfit: Collection[int],
    checked: CheckedEvents,
    settings: EventInput,
    parts: Sequence[pa.Array],
) -> set[int]:
    """The events whose values that do not fit are not needed: for a deletion only the key matters
    (ST-108), unless every event is kept. unfit: those with such values."""
    if settings.is_append:
        return set()
    of_key: dict[frozenset[str], list[int]] = {}
    for row in unfit:
        if checked.deletion[row]:
            table = TableId(*(part[row].as_py() for part in parts))
            one = replace(batch, head=batch.head.slice(row, 1))
            (key,) = key_names(one, of_table(settings.keys, table) or ())
            of_key.setdefault(key, []).append(row)
    spared = set[int]()
    for key, rows in of_key.items():
        needed = (batch.unfit[name].tolist() for name in key & batch.unfit.keys())
        spared |= set(rows).difference(*needed) if key else set()
    return spared


def _counted(letters: Iterable[DeadLetter]) -> list[DeadLetter]:
    """The same dead letters of a batch, of which there may be as many as a file has bytes: those of
    one reason behind the first MOST_ALIKE as one."""
    found: dict[tuple[str, str], list[DeadLetter]] = {}
    for letter in letters:
        alike = found.setdefault((letter.table, letter.reason), [])
        if len(alike) <= MOST_ALIKE:
            alike.append(letter)
        else:
            alike[-1] = replace(alike[-1], count=alike[-1].count + 1)
    return sorted((one for alike in found.values() for one in alike), key=lambda one: one.row)


def _with_values(rows: pa.Table) -> pa.Table:
    """The columns that are not NULL in all rows."""
    columns = zip(rows.column_names, rows.columns, strict=True)
    return rows.select([name for name, one in columns if one.null_count < rows.num_rows])


def _filtered(rows: pa.Table, which: np.ndarray) -> pa.Table:
    """The rows for which `which` (bool, n) is true, with the right count also without columns."""
    if which.all():
        return rows
    mask = pa.array(which)
    if rows.num_columns:
        return rows.filter(mask)
    return pa.table({"_": mask}).filter(mask).select([])


def oldest(times: Iterable[int | None]) -> int | None:
    """The earliest of the times that are known; None if none is."""
    return min((time for time in times if time is not None), default=None)


def by_table(files: Sequence[FileEvents]) -> Iterator[tuple[TableId, list[TableEvents]]]:
    """The events of some files, grouped by table."""
    found: dict[TableId, list[TableEvents]] = {}
    for file in files:
        for events in file.tables:
            found.setdefault(events.table, []).append(events)
    yield from found.items()
