"""Tables in memory, the transactions that change them, and the log of these.

A transaction takes effect whole, when it is committed. Its changes are in the log with the columns
that their table had then.
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
from mirrorlake.sources.table import SourceTable

Row = Mapping[str, Any]
Key = tuple[Any, ...]


class WriteKind(StrEnum):
    """What a write does."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    ALTER = "alter"


@dataclass(frozen=True, slots=True)
class Write:
    """One write in the log. table: as it was described from then on.

    old: the row before an update or a deletion; unsent: columns that an update leaves as they were,
    and whose values the log does not have.
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
    """A table and its rows: by their key, or by a number of their own without one."""

    described: SourceTable
    rows: dict[Key, Row] = field(default_factory=dict)

    def put(self, row: Row, number: Key) -> None:
        key = tuple(row[name] for name in self.described.key) or number
        assert key not in self.rows
        self.rows[key] = row


@dataclass
class Slot:
    """What the database remembers of a reader: up to where it needs nothing any more, and the
    tables whose changes it is sent."""

    acknowledged: LogPoint
    tables: set[TableId]


class Numbers:
    """Gives each transaction its points: one sequence of numbers, as LSN and SCN are.

    current: the end of the log; is_known_early: whether the end of a transaction is known while it
    is open; step: before and after the commit record of a transaction, how far the log goes on.
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
    """May be used by several threads.

    log: what is not forgotten yet; forgotten: the point of what is. slots: by name. servers: how
    many there were, one after the other.
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

    def create(self, table: str, schema: Schema, key: Sequence[str] = ()) -> None:
        """Make a table. Without a key its rows cannot be told apart by the log."""
        name, identity = TableId.parse(table), str(next(self._numbers))
        append_only = "" if key else "it has no key"
        described = SourceTable(name, schema, tuple(key), identity, append_only=append_only)
        with self.lock:
            assert name not in self.tables
            self.tables[name] = MemoryTable(described)

    def drop(self, table: str) -> None:
        with self.lock:
            del self.tables[TableId.parse(table)]

    def rows(self, table: str) -> list[Row]:
        """The rows of a table now, in no order."""
        with self.lock:
            return list(self.tables[TableId.parse(table)].rows.values())

    @property
    def current(self) -> LogPoint:
        """The end of the log."""
        with self.lock:
            return self.points.current

    @contextmanager
    def transaction(self, server: str = "a") -> Iterator[MemoryTransaction]:
        """Committed at the end of the block; given up when the block raises."""
        transaction = MemoryTransaction()
        yield transaction
        with self.lock:
            writes = tuple(write for step in transaction.steps for write in self._applied(step))
            after, end = self.points.next(server)
            self.log.append(Logged(server, after, end, self.clock.now(), writes))

    def forget(self, point: LogPoint) -> None:
        """Let what ends at or before the point be gone from the log."""
        with self.lock:
            self.log = [entry for entry in self.log if not point.covers(entry.end)]
            self.forgotten = self.forgotten.join(point)

    def acknowledge(self, slot: str, point: LogPoint) -> None:
        """A reader needs nothing up to the point; what no reader needs is gone for good."""
        with self.lock:
            if slot not in self.slots:
                return
            self.slots[slot].acknowledged = self.slots[slot].acknowledged.join(point)
            unneeded = self.points.current
            for other in self.slots.values():
                unneeded = unneeded.meet(other.acknowledged)
            self.forget(unneeded)

    def since(self, point: LogPoint) -> list[Logged]:
        """What ends after the point, in the order of the log. Raises SourceGap."""
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
                table.put(row, (number,))
                yield Write(step.kind, table.described, number, row)
            case WriteKind.UPDATE | WriteKind.DELETE:
                found = [(k, r) for k, r in table.rows.items() if step.where.items() <= r.items()]
                for key, old in found:
                    del table.rows[key]
                    new = {**old, **step.values} if step.kind is WriteKind.UPDATE else None
                    if new is not None:
                        table.put(new, key)
                    yield Write(step.kind, table.described, number, new, old, step.unsent)
            case WriteKind.TRUNCATE:
                table.rows.clear()
                yield Write(step.kind, table.described, number)
            case WriteKind.ALTER:
                schema = Schema.of([column for column, _former in step.columns])
                table.described = replace(table.described, schema=schema)
                for key, old in table.rows.items():
                    table.rows[key] = {c.name: old.get(was or "") for c, was in step.columns}
                yield Write(step.kind, table.described, number)


@dataclass(frozen=True, slots=True)
class Step:
    """What a transaction wants done, once it is committed.

    columns: of an altered table, each with the name that it had, None for a new one.
    """

    kind: WriteKind
    table: str
    values: Row = field(default_factory=dict)
    where: Row = field(default_factory=dict)
    unsent: frozenset[str] = frozenset()
    columns: Sequence[tuple[Column, str | None]] = ()


class MemoryTransaction:
    """An open transaction. Nothing of it is seen before it is committed."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def insert(self, table: str, **row: Any) -> None:
        self.steps.append(Step(WriteKind.INSERT, table, row))

    def update(self, table: str, where: Row, unsent: Sequence[str] = (), **values: Any) -> None:
        """Change rows that have these values; `unsent` columns are left as they are, and the log
        does not have them."""
        self.steps.append(Step(WriteKind.UPDATE, table, values, where, frozenset(unsent)))

    def delete(self, table: str, **where: Any) -> None:
        """Remove the rows that have these values."""
        self.steps.append(Step(WriteKind.DELETE, table, where=where))

    def truncate(self, table: str) -> None:
        self.steps.append(Step(WriteKind.TRUNCATE, table))

    def alter(self, table: str, columns: Sequence[tuple[Column, str | None]]) -> None:
        """Give a table these columns, each with the values of the one that it was before."""
        self.steps.append(Step(WriteKind.ALTER, table, columns=columns))


def gap(what: str) -> SourceGap:
    return SourceGap(
        what,
        where="the database in memory",
        hint="Load the tables anew with `mirrorlake reset --all`.",
    )
