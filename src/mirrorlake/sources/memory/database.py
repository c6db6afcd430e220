"""Tables in memory, the transactions that change them, and their log.

A transaction takes effect at commit. Its changes are in the log with the columns that the table had
then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import count
from typing import Any

from mirrorlake.errors import SourceGap
from mirrorlake.model.clock import Clock
from mirrorlake.model.position import LogNumber, LogPoint
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.sources.base import REPAIR
from mirrorlake.sources.memory.columns import KnownColumns
from mirrorlake.sources.table import SourceTable

Row = Mapping[str, Any]
Key = tuple[Any, ...]


class WriteKind(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    ALTER = "alter"


@dataclass(frozen=True, slots=True)
class Write:
    """One write in the log. table: its description after the write.

    old: the row before an update or a deletion.
    unsent: columns that an update does not change and whose values the log does not contain.
    """

    kind: WriteKind
    table: SourceTable
    number: int
    row: Row | None = None
    old: Row | None = None
    unsent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Logged:
    """A committed transaction in the log."""

    server: str
    after: LogPoint
    end: LogPoint
    time: datetime
    writes: tuple[Write, ...]


@dataclass
class MemoryTable:
    """A table and its rows by key; without a key, by a row number.

    written: by the same, the number of the write that made the row what it is. defaults: the values
    that the rows of then got in added columns, by the number of the column.
    """

    described: SourceTable
    rows: dict[Key, Row] = field(default_factory=dict)
    written: dict[Key, int] = field(default_factory=dict)
    defaults: dict[int, Any] = field(default_factory=dict)

    def put(self, row: Row, number: Key, write: int) -> None:
        key = tuple(row[name] for name in self.described.key) or number
        assert key not in self.rows
        self.rows[key], self.written[key] = row, write

    def pop(self, key: Key) -> Row:
        del self.written[key]
        return self.rows.pop(key)

    def clear(self) -> None:
        self.rows, self.written = {}, {}

    def alter(self, step: Step, write: int) -> None:
        before = KnownColumns.of(self.described.known)
        known = before.altered(step.columns, step.computed, step.key)
        schema = Schema.of([column for column, _former in step.columns])
        self.described = replace(
            self.described, schema=schema, key=known.key_names, known=known.plain()
        )
        added = {n: c.name for n, c in known.columns.items() if n not in before.columns}
        self.defaults |= {number: step.values.get(name) for number, name in added.items()}
        rows = {number: step.altered(row) for number, row in self.rows.items()}
        self.clear()
        for number, row in rows.items():
            self.put(row, number, write)


@dataclass
class Slot:
    """What the database keeps for a reader: the acknowledged point, and the tables that it is
    sent."""

    acknowledged: LogPoint
    tables: set[TableId]


class Numbers:
    """Gives each transaction its points from one sequence of numbers, like LSN and SCN.

    current: the end of the log.
    is_known_early: whether the end of a transaction is known while it is open.
    step: the distances before and after the commit record of a transaction.
    """

    is_known_early = False

    def __init__(self, step: Callable[[], tuple[int, int]] = lambda: (0, 1)) -> None:
        self.current: LogPoint = LogNumber(100)
        self._end, self._step = 100, step

    def next(self, _server: str) -> tuple[LogPoint, LogPoint]:
        """`after` and `end` of the next transaction, which a server commits."""
        before, size = self._step()
        after = LogNumber(self._end + before)
        self._end = after.value + size
        self.current = LogNumber(self._end)
        return after, self.current

    def parse(self, text: str) -> LogPoint:
        return LogNumber.parse(text)


class MemoryDatabase:
    """A database in memory. Thread-safe.

    log: the transactions that are still kept; forgotten: the point up to which they were discarded.
    slots: by name. servers: how many servers there have been, one after the other.
    """

    def __init__(self, clock: Clock, points: Numbers | None = None) -> None:
        self.clock, self.points = clock, points or Numbers()
        self.tables: dict[TableId, MemoryTable] = {}
        self.log: list[Logged] = []
        self.slots: dict[str, Slot] = {}
        self.forgotten = self.points.current
        self.servers = 1
        self.lock = threading.RLock()
        self._numbers = count(1)

    def create(
        self, table: str, schema: Schema, key: Sequence[str] = (), *, whole_rows: bool = False
    ) -> None:
        """Create a table. Without a key, its rows cannot be identified in the log, unless it is
        logged in `whole_rows`."""
        name, identity = TableId.parse(table), str(next(self._numbers))
        described = SourceTable(
            name,
            schema,
            tuple(key),
            identity,
            append_only="" if key or whole_rows else "it has no key",
            whole_rows=whole_rows,
            known=KnownColumns.first(schema, key).plain(),
        )
        with self.lock:
            assert name not in self.tables
            self.tables[name] = MemoryTable(described)

    def drop(self, table: str) -> None:
        with self.lock:
            del self.tables[TableId.parse(table)]

    def rows(self, table: str) -> list[Row]:
        """The current rows of a table, in no order."""
        with self.lock:
            return list(self.tables[TableId.parse(table)].rows.values())

    @property
    def current(self) -> LogPoint:
        with self.lock:
            return self.points.current

    @contextmanager
    def transaction(self, server: str = "a") -> Iterator[MemoryTransaction]:
        """Commits at the end of the block; rolls back when the block raises."""
        transaction = MemoryTransaction()
        yield transaction
        with self.lock:
            writes = tuple(write for step in transaction.steps for write in self._applied(step))
            after, end = self.points.next(server)
            self.log.append(Logged(server, after, end, self.clock.now(), writes))

    def forget(self, point: LogPoint) -> None:
        """Discard the log up to the point."""
        with self.lock:
            self.log = [entry for entry in self.log if not point.covers(entry.end)]
            self.forgotten = self.forgotten.join(point)

    def acknowledge(self, slot: str, point: LogPoint) -> None:
        """A reader no longer needs the log up to the point; discard what no reader needs."""
        with self.lock:
            if slot not in self.slots:
                return
            self.slots[slot].acknowledged = self.slots[slot].acknowledged.join(point)
            unneeded = self.points.current
            for other in self.slots.values():
                unneeded = unneeded.meet(other.acknowledged)
            self.forget(unneeded)

    def since(self, point: LogPoint) -> list[Logged]:
        """The transactions that end after the point, in log order. Raises SourceGap."""
        with self.lock:
            if not point.covers(self.forgotten):
                raise gap(f"the log was forgotten up to {self.forgotten}, {point} is wanted")
            return [entry for entry in self.log if not point.covers(entry.end)]

    def _applied(self, step: Step) -> Iterator[Write]:
        table = self.tables[TableId.parse(step.table)]
        number = next(self._numbers)
        match step.kind:
            case WriteKind.INSERT:
                row = {name: step.values.get(name) for name in table.described.schema.names}
                table.put(row, (number,), number)
                yield Write(step.kind, table.described, number, row)
            case WriteKind.UPDATE | WriteKind.DELETE:
                found = [(k, r) for k, r in table.rows.items() if step.where.items() <= r.items()]
                for key, old in found[: step.most]:
                    table.pop(key)
                    new = {**old, **step.values} if step.kind is WriteKind.UPDATE else None
                    if new is not None:
                        table.put(new, key, number)
                    yield Write(step.kind, table.described, number, new, old, step.unsent)
            case WriteKind.TRUNCATE:
                table.clear()
                yield Write(step.kind, table.described, number)
            case WriteKind.ALTER:
                table.alter(step, number)
                yield Write(step.kind, table.described, number)


@dataclass(frozen=True, slots=True)
class Step:
    """A write that a transaction will apply at commit.

    most: rows that are updated or deleted, None for all. columns, computed, key: of an altered
    table, as in `MemoryTransaction.alter`.
    """

    kind: WriteKind
    table: str
    values: Row = field(default_factory=dict)
    where: Row = field(default_factory=dict)
    unsent: frozenset[str] = frozenset()
    most: int | None = None
    columns: Sequence[tuple[Column, str | None]] = ()
    computed: Mapping[str, Callable[[Row], Any]] = field(default_factory=dict)
    key: Sequence[str] | None = None

    def altered(self, row: Row) -> Row:
        """A row as it is after the table is altered."""
        new = dict[str, Any]()
        for column, former in self.columns:
            if column.name in self.computed:
                new[column.name] = self.computed[column.name](row)
            elif former is None:
                new[column.name] = self.values.get(column.name)
            else:
                new[column.name] = row[former]
        return new


class MemoryTransaction:
    """An open transaction. Its writes become visible at commit."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def insert(self, table: str, **row: Any) -> None:
        self.steps.append(Step(WriteKind.INSERT, table, row))

    def update(self, table: str, where: Row, unsent: Sequence[str] = (), **values: Any) -> None:
        """Change rows that have these values. `unsent` columns keep theirs, and the log does not
        contain them."""
        self.steps.append(Step(WriteKind.UPDATE, table, values, where, frozenset(unsent)))

    def update_one(self, table: str, where: Row, **values: Any) -> None:
        """Change one of the rows that have these values."""
        self.steps.append(Step(WriteKind.UPDATE, table, values, where, most=1))

    def delete(self, table: str, **where: Any) -> None:
        """Delete the rows that have these values."""
        self.steps.append(Step(WriteKind.DELETE, table, where=where))

    def delete_one(self, table: str, **where: Any) -> None:
        """Delete one of the rows that have these values."""
        self.steps.append(Step(WriteKind.DELETE, table, where=where, most=1))

    def truncate(self, table: str) -> None:
        self.steps.append(Step(WriteKind.TRUNCATE, table))

    def alter(
        self,
        table: str,
        columns: Sequence[tuple[Column, str | None]],
        computed: Mapping[str, Callable[[Row], Any]] | None = None,
        key: Sequence[str] | None = None,
        **defaults: Any,
    ) -> None:
        """Replace the columns of a table. Each is the column named beside it; with None it is new.

        defaults: values that rows get in new columns, NULL in the others. computed: functions that
        compute the values of columns from the rows before; the log does not contain them. A column
        that gets another type has such a function. key: the columns that are the key from then on,
        by their names then; None if it stays the same.
        """
        computed = computed or {}
        step = Step(WriteKind.ALTER, table, defaults, columns=columns, computed=computed, key=key)
        self.steps.append(step)


def gap(what: str) -> SourceGap:
    return SourceGap(
        what,
        where="the database in memory",
        hint=REPAIR,
    )
