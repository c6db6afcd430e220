"""The changes of a database in memory, in chunks that may end inside a transaction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.errors import SourceUnavailable, TableAltered, TableError, TableRecreated
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.change import Alteration, Marker
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Schema, TableId
from mirrorlake.sources import chunk as chunks
from mirrorlake.sources.chunk import Changes, Chunk, Part, TableLost, Transactions
from mirrorlake.sources.memory.columns import Altered, KnownColumns
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
        self._noted: dict[TableId, Mapping[str, Any]] = {}  # known since, and not reported
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
        known: dict[TableId, Mapping[str, Any]] = {}
        for transaction in pending:
            if left <= 0:
                break
            writes = transaction.writes[self._sent :][:left]
            after.append(self._at.join(transaction.after))
            begun.append(transaction)
            for ordinal, write in enumerate(writes, start=self._sent + 1):
                decoded += self._decoded(len(begun) - 1, ordinal, write, transaction.end)
            self._sent += len(writes)
            left -= len(writes) + 1
            self._is_open = left < 0 or self._sent < len(transaction.writes)
            if self._is_open:
                break
            self._at, self._sent = self._at.join(transaction.end), 0
            known, self._noted = known | self._noted, {}
        end: list[LogPoint | None] = [logged.end for logged in begun]
        if self._is_open and begun and not self._database.points.is_known_early:
            end[-1] = None
        times, names = [logged.time for logged in begun], [str(logged.end) for logged in begun]
        transactions = Transactions(after, end, times, names, self._is_open)
        return Chunk(transactions, list(self._parts(decoded)), opens, None, 1, known)

    def _decoded(
        self, transaction: int, ordinal: int, write: Write, end: LogPoint
    ) -> Iterator[_Row | Part]:
        """What is said of a write. end: of its transaction."""
        name = write.table.table
        known = self._tables.get(name)
        is_sent = write.old is None or not (known and known.append_only)
        if known is None or write.kind is WriteKind.ALTER or not is_sent:
            return
        if known.identity != write.table.identity:
            if self._is_loaded(known, end):
                return  # of the table that had the name before this one was loaded
            what = "the table was dropped and created again in the source"
            yield self._lost(known, TableRecreated, what)
            return
        yield from self._described(known, write.table, transaction, ordinal - 1, end)
        if (known := self._tables.get(name)) is None:
            return
        if write.kind is WriteKind.TRUNCATE:
            yield chunks.Truncation(known, transaction, ordinal)
            return
        for marker, row in _rows_of(write):
            yield _Row(known, marker, row, transaction, ordinal, write.number)

    def _described(
        self, known: SourceTable, now: SourceTable, transaction: int, before: int, end: LogPoint
    ) -> Iterator[Part]:
        """What is said before a row or a truncation of a table that may have been altered. before:
        the ordinal of the change before it; end: of the transaction."""
        described = replace(known, schema=now.schema, key=now.key)
        altered = self._altered(known, now)
        if altered is None:
            if described != known:
                self._tables[known.table] = described
                yield chunks.SchemaChange(described, transaction, before)
        elif altered.is_older:
            # The table is known by what it was when it was loaded, which was later.
            if not self._is_loaded(known, end):
                yield self._lost(known, TableAltered, "the table was altered while it was loaded")
            elif described != known:
                self._tables[known.table] = described
                yield chunks.SchemaChange(described, transaction, before)
        else:
            facts = self._noted[known.table] = {**known.known, **now.known}
            described = self._tables[known.table] = replace(described, known=facts)
            alteration = altered.alteration(now.schema)
            if altered.differs:
                yield _differs(known, altered, alteration)
            yield chunks.SchemaChange(described, transaction, before, alteration)

    def _altered(self, known: SourceTable, now: SourceTable) -> Altered | None:
        """What became of the columns of a table since it was known; None for nothing, or where it
        is known by its names only."""
        if known.known.get("version") in {None, now.known["version"]}:
            return None
        with self._database.lock:
            table = self._database.tables.get(known.table)
            is_one = table is not None and table.described.identity == known.identity
            defaults = dict(table.defaults) if table and is_one else {}
        altered = Altered.between(
            KnownColumns.of(known.known), KnownColumns.of(now.known), defaults
        )
        return altered if altered.is_change else None

    def _is_loaded(self, table: SourceTable, end: LogPoint) -> bool:
        """Whether a transaction is part of what was loaded of a table."""
        loaded = table.known.get("loaded")
        return loaded is not None and self._database.points.parse(loaded).covers(end)

    def _lost(self, table: SourceTable, error: type[TableError], what: str) -> TableLost:
        del self._tables[table.table]
        return TableLost(table.table, _error(table, error, what))

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


def _differs(table: SourceTable, altered: Altered, alteration: Alteration) -> chunks.TableDiffers:
    kinds, reasons = zip(*altered.differs, strict=True)
    error = _error(table, TableAltered, " and ".join(reasons))
    saved = tuple(alteration.saved.values())
    return chunks.TableDiffers(table.table, frozenset(kinds), error, saved)


def _error(table: SourceTable, error: type[TableError], what: str) -> TableError:
    hint = f"Load it anew with `mirrorlake reset {table.table}`."
    return error(what, table=str(table.table), hint=hint)


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
    whole, names = write.table.whole_rows, write.table.key
    names = tuple(write.table.schema.names) if whole else names
    old = {name: write.old[name] for name in names} if write.old else {}
    row = {n: v for n, v in (write.row or {}).items() if n not in write.unsent}
    if write.row is None:
        yield Marker.DELETE, old
    elif not old:
        yield Marker.INSERT, row
    elif whole or any(write.row[name] != value for name, value in old.items()):
        yield Marker.DELETE, old
        yield Marker.INSERT, row
    else:
        yield Marker.UPDATE, row
