"""Reading tables of a database in memory: as of one point, or part by part as of now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import pyarrow as pa

from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Schema, TableId
from mirrorlake.sources.memory.database import Key, MemoryDatabase, Row
from mirrorlake.sources.table import SnapshotPart, SourceTable


@dataclass(frozen=True)
class Delivery:
    """How a source in memory cuts what it delivers.

    messages: changes and commits in a chunk; parts: of a table in a snapshot; rows: in a batch of
    so many that are left; before_read: called before each read of the stream, which fails when that
    raises.
    """

    messages: Callable[[], int] = lambda: 1_000
    parts: Callable[[], int] = lambda: 1
    rows: Callable[[int], int] = lambda left: left
    before_read: Callable[[], None] = lambda: None


class MemorySnapshot:
    """A `Snapshot` of all tables.

    is_one: every part is read as of `point`; else each batch is read as of the moment when it is
    asked for, as from a server that gives no consistent view of a whole table.
    """

    def __init__(self, database: MemoryDatabase, delivery: Delivery, *, is_one: bool) -> None:
        self._database, self._delivery, self._is_one = database, delivery, is_one
        with database.lock:
            self.point = database.points.current
            self._rows = {name: dict(table.rows) for name, table in database.tables.items()}
        self._read: dict[tuple[TableId, int], LogPoint] = {}

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        count = self._delivery.parts()
        return [SnapshotPart(table, (index, count)) for index in range(count)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        index, count = part.range
        keys = [key for key in self._rows_of(part) if crc32(repr(key).encode()) % count == index]
        while keys:
            size = self._delivery.rows(len(keys))
            rows = self._rows_of(part)
            yield batch_of(part.table.schema, [rows[key] for key in keys[:size] if key in rows])
            keys = keys[size:]
        self._read[part.table.table, index] = self._now()

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        return self._read[part.table.table, part.range[0]]

    def close(self) -> None:
        self._rows = {}

    def _now(self) -> LogPoint:
        return self.point if self._is_one else self._database.current

    def _rows_of(self, part: SnapshotPart) -> Mapping[Key, Row]:
        if self._is_one:
            return self._rows[part.table.table]
        with self._database.lock:
            return dict(self._database.tables[part.table.table].rows)


def batch_of(schema: Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows in columns; what a row does not have is NULL."""
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))
