"""The changes of a database in memory, in chunks that may end inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceUnavailable, TableRecreated
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import Marker
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Schema
from mirrorlake.sources import chunk as chunks
from mirrorlake.sources.chunk import Changes, Chunk, Part, TableLost, Transactions
from mirrorlake.sources.memory.database import Logged, Row, Write, WriteKind
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.table import SourceTable

_POLL_SECONDS = 0.01


class MemoryStream:
    """A `ChangeStream`."""

    def __init__(
        self,
        settings: MemorySettings,
        tables: Sequence[SourceTable],
        since: LogPoint,
        *,
        metadata: bool,
    ) -> None:
        self._settings, self._database = settings, settings.database
        self._metadata = metadata
        self._server = self._database.servers
        self._tables = {table.table: table for table in tables}
        self._at = since  # everything that it covers was sent
        self._is_open = False  # part of the next transaction was sent
        self._sent = 0  # writes of that transaction that were sent
        self._reported: LogPoint | None = None  # the last end of the log that was reported
        self._database.since(since)

    def read(self, wait: float) -> Chunk | None:
        self._settings.before_read()
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
            if self._reported is None or not self._reported.covers(current):
                self._reported = self._at = self._at.join(current)
                return Chunk(Transactions((), (), (), ()), (), False, self._at, 0)
            left = deadline - clock.monotonic()
            if left <= 0:
                return None
            clock.sleep(min(left, _POLL_SECONDS))

    def acknowledge(self, point: LogPoint) -> None:
        if self._settings.slot is not None:
            self._database.acknowledge(self._settings.slot, point)

    def close(self) -> None:
        """Nothing is held open."""

    def _chunk(self, pending: Sequence[Logged]) -> Chunk:
        opens, left = self._is_open, self._settings.messages()
        after: list[LogPoint] = []
        begun: list[Logged] = []
        decoded: list[_Row | Part] = []
        for transaction in pending:
            if left <= 0:
                break
            writes = transaction.writes[self._sent :][:left]
            after.append(self._at.join(transaction.after))
            begun.append(transaction)
            for ordinal, write in enumerate(writes, start=self._sent + 1):
                decoded += self._decoded(len(begun) - 1, ordinal, write)
            self._sent += len(writes)
            left -= len(writes) + 1
            self._is_open = left < 0 or self._sent < len(transaction.writes)
            if self._is_open:
                break
            self._at, self._sent = self._at.join(transaction.end), 0
        end: list[LogPoint | None] = [logged.end for logged in begun]
        if self._is_open and begun and not self._database.points.is_known_early:
            end[-1] = None
        times, names = [logged.time for logged in begun], [str(logged.end) for logged in begun]
        transactions = Transactions(after, end, times, names, self._is_open)
        return Chunk(transactions, list(self._parts(decoded)), opens, None, 1)

    def _decoded(self, transaction: int, ordinal: int, write: Write) -> Iterator[_Row | Part]:
        name = write.table.table
        known = self._tables.get(name)
        if known is None:
            return
        if known.identity != write.table.identity:
            del self._tables[name]
            what = "the table was dropped and created again in the source"
            hint = f"Load it anew with `mirrorlake reset {name}`."
            yield TableLost(name, TableRecreated(what, table=str(name), hint=hint))
            return
        if known.schema != write.table.schema:
            known = self._tables[name] = replace(known, schema=write.table.schema)
            before = ordinal if write.kind is WriteKind.ALTER else ordinal - 1
            yield chunks.SchemaChange(known, transaction, before)
        if write.kind is WriteKind.TRUNCATE:
            yield chunks.Truncation(known, transaction, ordinal)
        elif write.kind is WriteKind.INSERT or (write.old and not known.append_only):
            for marker, row in _rows_of(write):
                yield _Row(known, marker, row, transaction, ordinal, write.number)

    def _parts(self, decoded: list[_Row | Part]) -> Iterator[Part]:
        """The parts of each table in order, with consecutive rows combined into columns."""
        decoded.sort(
            key=lambda item: (
                item.table
                if isinstance(item, TableLost | chunks.TableDiffers)
                else item.table.table
            )
        )
        for _table, group in groupby(decoded, lambda item: isinstance(item, _Row) and item.table):
            members = list(group)
            if rows := [member for member in members if isinstance(member, _Row)]:
                changes, number = _changes(rows), [row.number for row in rows]
                metadata = pa.RecordBatch.from_pydict({"number": pa.array(number, pa.int64())})
                yield replace(changes, metadata=metadata if self._metadata else None)
            yield from (member for member in members if not isinstance(member, _Row))


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the stream, without the values that are not in the log, and the number of its
    write."""

    table: SourceTable
    marker: Marker
    row: Row
    transaction: int
    ordinal: int
    number: int


def batch_of(schema: Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as columns; missing values are NULL."""
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))


def _changes(rows: Sequence[_Row]) -> Changes:
    table = rows[0].table
    unsent = np.array(
        [
            [row.marker is not Marker.DELETE and name not in row.row for name in table.schema.names]
            for row in rows
        ]
    )
    return Changes(
        table=table,
        rows=batch_of(table.schema, [row.row for row in rows]),
        marker=np.array([row.marker for row in rows], np.int8),
        unchanged=unsent if unsent.any() else None,
        transaction=np.array([row.transaction for row in rows], np.int32),
        ordinal=np.array([row.ordinal for row in rows], np.int64),
    )


def _rows_of(write: Write) -> Iterator[tuple[Marker, Row]]:
    """The markers and rows that describe a write."""
    old = {name: write.old[name] for name in write.table.key} if write.old else {}
    row = {n: v for n, v in (write.row or {}).items() if n not in write.unsent}
    if write.row is None:
        yield Marker.DELETE, old
    elif not old:
        yield Marker.INSERT, row
    elif any(write.row[name] != value for name, value in old.items()):
        yield Marker.DELETE, old
        yield Marker.INSERT, row
    else:
        yield Marker.UPDATE, row
