"""A modelled database with a log, and a source that reads it.

Delivery is as bad as the contract allows: chunks end anywhere, also inside transactions, and what
was not acknowledged comes again after a reconnect. What was acknowledged is gone for good, as a
server removes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceGap, SourceUnavailable
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import Marker
from mirrorlake.model.position import LogPoint, Lsn
from mirrorlake.model.seams import Clock
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import LONG, STRING
from mirrorlake.sources.base import Established, Finding, ManagedObjects, Severity
from mirrorlake.sources.chunk import Changes, Chunk, Transactions, Truncation
from mirrorlake.sources.table import SnapshotPart, SourceTable

Row = tuple[int, str | None, str | None]
"""id, note, and a text that updates may leave out."""

COLUMNS = Schema.of([Column("id", LONG), Column("note", STRING), Column("text", STRING)])


@dataclass(frozen=True)
class Write:
    """One change: `insert`, `update`, `rekey`, `delete` or `truncate` of a table."""

    kind: str
    table: TableId
    row: Row | None = None
    old: int | None = None
    sends_text: bool = True


@dataclass(frozen=True)
class Transaction:
    after: Lsn
    end: Lsn
    time: datetime
    writes: tuple[Write, ...]


@dataclass
class Database:
    """Tables by key, their log, and one slot. `states` has the rows after each transaction."""

    clock: Clock
    random: Random
    tables: dict[TableId, dict[int, Row]]
    log: list[Transaction] = field(default_factory=list)
    end: Lsn = field(default_factory=lambda: Lsn(100))
    confirmed: Lsn | None = None
    snapshots: int = 0
    states: dict[Lsn, dict[TableId, dict[int, Row]]] = field(default_factory=dict)

    def commit(self, writes: Sequence[Write]) -> None:
        """A transaction; its commit record may begin where the one before ended."""
        after = Lsn(self.end.value + self.random.choice([0, 0, 5]))
        end = Lsn(after.value + self.random.randint(1, 9))
        for write in writes:
            _apply(self.tables[write.table], write)
        self.log.append(Transaction(after, end, self.clock.now(), tuple(writes)))
        self.end = end
        self.states[end] = {name: dict(rows) for name, rows in self.tables.items()}

    def state_at(self, point: LogPoint) -> dict[TableId, dict[int, Row]]:
        """The rows as they were when everything up to `point` had happened."""
        ends = [end for end in self.states if point.covers(end)]
        return self.states[max(ends)] if ends else {name: {} for name in self.tables}


def _apply(rows: dict[int, Row], write: Write) -> None:
    match write.kind:
        case "truncate":
            rows.clear()
        case "delete":
            assert write.old is not None
            del rows[write.old]
        case "rekey":
            assert write.old is not None
            assert write.row is not None
            del rows[write.old]
            rows[write.row[0]] = write.row
        case _:
            assert write.row is not None
            rows[write.row[0]] = write.row


@dataclass
class ModelledSource:
    """A `Source` on a modelled database, as one process sees it."""

    database: Database
    random: Random
    failures: float = 0.0  # share of calls on which the database does not answer

    def check(self) -> list[Finding]:
        return []

    def discover(self) -> list[SourceTable]:
        return [
            SourceTable(table, COLUMNS, ("id",), identity=str(table), rows=len(rows))
            for table, rows in sorted(self.database.tables.items())
        ]

    def identity(self) -> Mapping[str, str]:
        return {"type": "modelled"}

    def parse_point(self, text: str) -> LogPoint:
        return Lsn.parse(text)

    @property
    def objects(self) -> ManagedObjects:
        return self

    def occupied(self) -> Finding | None:
        if self.database.confirmed is None:
            return None
        return Finding("slot", Severity.ERROR, "the slot exists already")

    def intended(self) -> Sequence[str]:
        return ("slot",)

    def establish(self, tables: Sequence[SourceTable]) -> Established:
        self.database.confirmed = self.database.end
        return Established(self.snapshot(), ("slot",))

    def resume(self, since: LogPoint) -> None:
        confirmed = self.database.confirmed
        if confirmed is None or not since.covers(confirmed):
            raise SourceGap("the slot is beyond the zone")

    def include(self, tables: Sequence[SourceTable]) -> None:
        pass

    def snapshot(self) -> ModelledSnapshot:
        rows = {name: dict(rows) for name, rows in self.database.tables.items()}
        return ModelledSnapshot(self.database.end, rows, self.random)

    def stream(
        self, tables: Sequence[SourceTable], since: LogPoint, *, metadata: bool = False
    ) -> ModelledStream:
        return ModelledStream(self, {table.table: table for table in tables})

    def current(self) -> LogPoint:
        return self.database.end

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        rows = self.database.tables[table.table]
        found = [rows[key] for key in keys["id"].to_pylist() if key in rows]
        return pa.Table.from_batches([batch_of(found)])

    def watch(self, tables: Sequence[SourceTable]) -> list[Finding]:
        return []

    def detach(self, made: Sequence[str]) -> list[str]:
        self.database.confirmed = None
        return list(made)

    def close(self) -> None:
        pass


@dataclass
class ModelledSnapshot:
    point: Lsn
    rows: dict[TableId, dict[int, Row]]
    random: Random

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        count = self.random.randint(1, 3)
        return [SnapshotPart(table, (index, count)) for index in range(count)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        ordered = sorted(self.rows[part.table.table].values())
        index, count = part.range
        rows = [row for row in ordered if row[0] % count == index]
        while rows:
            size = self.random.randint(1, len(rows))
            yield batch_of(rows[:size])
            rows = rows[size:]

    def upto(self, part: SnapshotPart) -> Lsn:
        return self.point

    def close(self) -> None:
        pass


@dataclass
class ModelledStream:
    """Messages from the confirmed point on, in chunks that end anywhere."""

    source: ModelledSource
    tables: Mapping[TableId, SourceTable]
    _sent: int = 0  # transactions of the log that were sent whole
    _inside: int = 0  # writes of the next one that were sent
    _begun: bool = False
    _ended: set[Lsn] = field(default_factory=set)

    def __post_init__(self) -> None:
        confirmed = self.source.database.confirmed
        assert confirmed is not None
        self._pending = [t for t in self.source.database.log if t.end > confirmed]
        self._last = self._pending[-1].end if self._pending else confirmed

    def read(self, wait: float) -> Chunk | None:
        database, random = self.source.database, self.source.random
        if random.random() < self.source.failures:
            raise SourceUnavailable("the modelled database does not answer")
        self._pending += [t for t in database.log if t.end > self._last]
        self._last = max([self._last, *(t.end for t in self._pending)])
        database.clock.sleep(min(wait, random.choice([0.01, 0.1, 0.4])))
        if not self._pending:
            return Chunk(Transactions((), (), (), ()), (), False, database.end, 0)
        return self._chunk(random.randint(1, 12))

    def acknowledge(self, point: LogPoint) -> None:
        assert isinstance(point, Lsn)
        database = self.source.database
        database.confirmed = max(database.confirmed or point, point)
        database.log = [t for t in database.log if t.end > database.confirmed]

    def close(self) -> None:
        pass

    def _chunk(self, messages: int) -> Chunk:
        after, ends, times = [], [], []
        parts: list[Changes | Truncation] = []
        opens = self._begun
        open_parts: dict[TableId, list[tuple[int, int, Write]]] = {}
        while messages > 0 and self._pending:
            transaction = self._pending[0]
            self._begun = True
            after.append(transaction.after)
            times.append(transaction.time)
            left = transaction.writes[self._inside :][:messages]
            for write in left:
                self._inside += 1
                index = (len(after) - 1, self._inside, write)
                if write.kind == "truncate":
                    parts += _flushed(self.tables, open_parts, write.table)
                    parts.append(Truncation(self.tables[write.table], *index[:2]))
                else:
                    open_parts.setdefault(write.table, []).append(index)
            messages -= len(left) + 1
            if messages < 0 or self._inside < len(transaction.writes):
                ends.append(None)
                break
            ends.append(transaction.end)
            self._pending.pop(0)
            self._inside, self._begun = 0, False
        for table in list(open_parts):
            parts += _flushed(self.tables, open_parts, table)
        ids = [str(point) for point in after]
        told = Transactions(after, ends, times, ids, ends[-1] is None)
        return Chunk(told, parts, opens, None, 1)


def _flushed(
    tables: Mapping[TableId, SourceTable],
    waiting: dict[TableId, list[tuple[int, int, Write]]],
    table: TableId,
) -> list[Changes]:
    """The writes of one table that wait, as columns."""
    rows: list[Row] = []
    markers, indexes, ordinals, unsent = [], [], [], []
    for transaction, ordinal, write in waiting.pop(table, []):
        for marker, row in _as_rows(write):
            rows.append(row)
            markers.append(int(marker))
            indexes.append(transaction)
            ordinals.append(ordinal)
            unsent.append(marker is not Marker.DELETE and not write.sends_text)
    if not rows:
        return []
    unchanged = np.zeros((len(rows), 3), bool)
    unchanged[:, 2] = unsent
    return [
        Changes(
            tables[table],
            batch_of(rows),
            np.array(markers, np.int8),
            unchanged if unchanged.any() else None,
            np.array(indexes, np.int32),
            np.array(ordinals, np.int64),
        )
    ]


def _as_rows(write: Write) -> list[tuple[Marker, Row]]:
    gone: Row = (write.old or 0, None, None)
    row = write.row
    if row is not None and not write.sends_text:
        row = (row[0], row[1], None)
    match write.kind:
        case "insert":
            assert row is not None
            return [(Marker.INSERT, row)]
        case "update":
            assert row is not None
            return [(Marker.UPDATE, row)]
        case "rekey":
            assert row is not None
            return [(Marker.DELETE, gone), (Marker.INSERT, row)]
        case _:
            return [(Marker.DELETE, gone)]


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    schema = arrow_schema(COLUMNS)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)],
        schema=schema,
    )
