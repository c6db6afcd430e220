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
        self._is_open = False  # the next transaction was begun
        self._sent = 0  # writes of it that were sent
        self._told: LogPoint | None = None  # the last point of which was said that no more is there
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
            if self._told is None or not self._told.covers(current):
                self._told = self._at = self._at.join(current)
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
        told: list[_Row | Part] = []
        for transaction in pending:
            if left <= 0:
                break
            writes = transaction.writes[self._sent :][:left]
            after.append(self._at.join(transaction.after))
            begun.append(transaction)
            for ordinal, write in enumerate(writes, start=self._sent + 1):
                told += self._told_of(len(begun) - 1, ordinal, write)
            self._sent += len(writes)
            left -= len(writes) + 1
            self._is_open = left < 0 or self._sent < len(transaction.writes)
            if self._is_open:
                break
            self._at, self._sent = self._at.join(transaction.end), 0
        end: list[LogPoint | None] = [one.end for one in begun]
        if self._is_open and begun and not self._database.points.is_known_early:
            end[-1] = None
        times, names = [one.time for one in begun], [str(one.end) for one in begun]
        transactions = Transactions(after, end, times, names, self._is_open)
        return Chunk(transactions, list(self._parts(told)), opens, None, 1)

    def _told_of(self, transaction: int, ordinal: int, write: Write) -> Iterator[_Row | Part]:
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

    def _parts(self, told: list[_Row | Part]) -> Iterator[Part]:
        """What is told of each table in its order, with neighbouring rows in columns."""
        told.sort(
            key=lambda one: (
                one.table if isinstance(one, TableLost | chunks.TableDiffers) else one.table.table
            )
        )
        for _table, group in groupby(told, lambda one: isinstance(one, _Row) and one.table):
            members = list(group)
            if rows := [one for one in members if isinstance(one, _Row)]:
                changes, number = _changes(rows), [one.number for one in rows]
                metadata = pa.RecordBatch.from_pydict({"number": pa.array(number, pa.int64())})
                yield replace(changes, metadata=metadata if self._metadata else None)
            yield from (one for one in members if not isinstance(one, _Row))


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of the stream, without what the log does not have, and the number of its write."""

    table: SourceTable
    marker: Marker
    row: Row
    transaction: int
    ordinal: int
    number: int


def batch_of(schema: Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows in columns; what a row does not have is NULL."""
    return pa.RecordBatch.from_pylist(list(rows), schema=arrow_schema(schema))


def _changes(rows: Sequence[_Row]) -> Changes:
    table = rows[0].table
    unsent = np.array(
        [
            [one.marker is not Marker.DELETE and name not in one.row for name in table.schema.names]
            for one in rows
        ]
    )
    return Changes(
        table=table,
        rows=batch_of(table.schema, [one.row for one in rows]),
        marker=np.array([one.marker for one in rows], np.int8),
        unchanged=unsent if unsent.any() else None,
        transaction=np.array([one.transaction for one in rows], np.int32),
        ordinal=np.array([one.ordinal for one in rows], np.int64),
    )


def _rows_of(write: Write) -> Iterator[tuple[Marker, Row]]:
    """The rows that tell a write."""
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
