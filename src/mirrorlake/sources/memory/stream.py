"""The changes of a database in memory, in chunks that may end inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceUnavailable, TableRecreated
from mirrorlake.model.change import Marker
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.chunk import (
    Changes,
    Chunk,
    Part,
    SchemaChange,
    TableLost,
    Transactions,
    Truncation,
)
from mirrorlake.sources.memory.database import Logged, MemoryDatabase, Row, Write, WriteKind
from mirrorlake.sources.memory.snapshot import Delivery, batch_of
from mirrorlake.sources.table import SourceTable

_POLL_SECONDS = 0.01


class MemoryStream:
    """A `ChangeStream`. slot: whose place moves with what is acknowledged; None for nobody's."""

    def __init__(
        self,
        database: MemoryDatabase,
        delivery: Delivery,
        tables: Sequence[SourceTable],
        since: LogPoint,
        slot: str | None,
        *,
        metadata: bool,
    ) -> None:
        self._database, self._delivery, self._slot = database, delivery, slot
        self._metadata = metadata
        self._server = database.servers
        self._tables = {table.table: table for table in tables}
        self._lost: set[TableId] = set()
        self._at = since  # everything that it covers was sent
        self._is_open = False  # the next transaction was begun
        self._sent = 0  # writes of it that were sent
        self._told: LogPoint | None = None  # the last point of which was said that no more is there
        database.since(since)

    def read(self, wait: float) -> Chunk | None:
        self._delivery.before_read()
        if self._server != self._database.servers:
            raise SourceUnavailable(
                "another server has taken over", hint="The stream is taken up again."
            )
        clock = self._database.clock
        deadline = clock.monotonic() + wait
        while True:
            with self._database.lock:
                pending, current = self._database.since(self._at), self._database.current
            if pending:
                return self._chunk(pending)
            if self._told is None or not self._told.covers(current):
                self._told = self._at = self._at.join(current)
                return Chunk(Transactions((), (), (), ()), (), False, self._at, 0)
            left = deadline - clock.monotonic()
            if left <= 0:
                return None
            clock.sleep(min(left, _POLL_SECONDS))

    def acknowledge(self, point: LogPoint) -> None:
        if self._slot is not None:
            self._database.acknowledge(self._slot, point)

    def close(self) -> None:
        """Nothing is held open."""

    def _chunk(self, pending: Sequence[Logged]) -> Chunk:
        building, opens, left = _Building(), self._is_open, self._delivery.messages()
        for transaction in pending:
            if left <= 0:
                break
            writes = transaction.writes[self._sent :][:left]
            building.begin(self._at, transaction)
            for ordinal, write in enumerate(writes, start=self._sent + 1):
                self._take(building, ordinal, write)
            self._sent += len(writes)
            left -= len(writes) + 1
            self._is_open = left < 0 or self._sent < len(transaction.writes)
            if self._is_open:
                building.leave_open(is_end_known=self._database.points.is_known_early)
                break
            self._at, self._sent = self._at.join(transaction.end), 0
        return Chunk(
            building.transactions(), building.parts(metadata=self._metadata), opens, None, 1
        )

    def _take(self, building: _Building, ordinal: int, write: Write) -> None:
        name = write.table.table
        known = self._tables.get(name)
        if known is None or name in self._lost:
            return
        if known.identity != write.table.identity:
            self._lost.add(name)
            building.add(name, TableLost(name, _recreated(name)))
            return
        if known.schema != write.table.schema:
            known = self._tables[name] = replace(known, schema=write.table.schema)
            before = ordinal if write.kind is WriteKind.ALTER else ordinal - 1
            building.add(name, SchemaChange(known, building.last, before))
        if write.kind is WriteKind.TRUNCATE:
            building.add(name, Truncation(known, building.last, ordinal))
        elif write.kind is WriteKind.INSERT or (write.old and not known.append_only):
            building.write(known, ordinal, write)


@dataclass
class _Run:
    """Changes of one table with one set of columns: transaction, ordinal and write of each."""

    table: SourceTable
    writes: list[tuple[int, int, Write]] = field(default_factory=list)

    def changes(self, *, metadata: bool) -> Changes:
        rows: list[Row] = []
        markers, transactions, ordinals, numbers, unsent = [], [], [], [], []
        for transaction, ordinal, write in self.writes:
            for marker, row in _rows_of(write):
                left_out = frozenset() if marker is Marker.DELETE else write.unsent
                rows.append({name: row[name] for name in row.keys() - left_out})
                unsent.append([name in left_out for name in self.table.schema.names])
                markers.append(marker)
                transactions.append(transaction)
                ordinals.append(ordinal)
                numbers.append(write.number)
        told = pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int64())})
        return Changes(
            table=self.table,
            rows=batch_of(self.table.schema, rows),
            marker=np.array(markers, np.int8),
            unchanged=np.array(unsent, bool) if any(map(any, unsent)) else None,
            transaction=np.array(transactions, np.int32),
            ordinal=np.array(ordinals, np.int64),
            metadata=told if metadata else None,
        )


def _rows_of(write: Write) -> Iterator[tuple[Marker, Row]]:
    """The rows that tell a write."""
    old = {name: write.old[name] for name in write.table.key} if write.old else {}
    if write.row is None:
        yield Marker.DELETE, old
    elif not old:
        yield Marker.INSERT, write.row
    elif any(write.row[name] != value for name, value in old.items()):
        yield Marker.DELETE, old
        yield Marker.INSERT, write.row
    else:
        yield Marker.UPDATE, write.row


class _Building:
    """A chunk under construction."""

    def __init__(self) -> None:
        self._after: list[LogPoint] = []
        self._end: list[LogPoint | None] = []
        self._time: list[datetime | None] = []
        self._id: list[str] = []
        self._is_open = False
        self._parts: list[Part | _Run] = []
        self._runs: dict[TableId, _Run] = {}  # of each table, to which more may be added

    @property
    def last(self) -> int:
        """The index of the transaction that was begun last."""
        return len(self._id) - 1

    def begin(self, at: LogPoint, transaction: Logged) -> None:
        self._after.append(at.join(transaction.after))
        self._end.append(transaction.end)
        self._time.append(transaction.time)
        self._id.append(str(transaction.end))

    def leave_open(self, *, is_end_known: bool) -> None:
        self._is_open = True
        if not is_end_known:
            self._end[-1] = None

    def add(self, table: TableId, part: Part) -> None:
        self._runs.pop(table, None)
        self._parts.append(part)

    def write(self, table: SourceTable, ordinal: int, write: Write) -> None:
        if table.table not in self._runs:
            self._runs[table.table] = _Run(table)
            self._parts.append(self._runs[table.table])
        self._runs[table.table].writes.append((self.last, ordinal, write))

    def transactions(self) -> Transactions:
        return Transactions(self._after, self._end, self._time, self._id, self._is_open)

    def parts(self, *, metadata: bool) -> list[Part]:
        return [p.changes(metadata=metadata) if isinstance(p, _Run) else p for p in self._parts]


def _recreated(table: TableId) -> TableRecreated:
    return TableRecreated(
        "the table was dropped and created again in the source",
        table=str(table),
        hint=f"Load it anew with `mirrorlake reset {table}`.",
    )
