"""Consistent reads of whole tables, several pieces at a time, all in one exported snapshot.

A piece is a range of pages of one heap (of a leaf partition, for a partitioned table), and rows
come by COPY.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import conninfo, sql
from psycopg.pq import TransactionStatus

from mirrorlake.errors import (
    LOADED_LATER,
    AlteredWhileLoaded,
    SourceUnavailable,
    TableError,
)
from mirrorlake.model.keys import KeyRange, bound_of
from mirrorlake.model.position import Lsn
from mirrorlake.sources.base import Recognising
from mirrorlake.sources.ordered import check_readable
from mirrorlake.sources.postgresql.changed_rows import NotedIn, decoders_of
from mirrorlake.sources.postgresql.connect import (
    NAMES_ALIKE,
    Connection,
    OpenConnections,
    Result,
    any_text,
    connect,
    connect_replication,
    patiently,
)
from mirrorlake.sources.postgresql.decoder import Decoder
from mirrorlake.sources.postgresql.reading import heaps, key_ranges, lock_waits
from mirrorlake.sources.postgresql.reading.copied_rows import (
    VERSION,
    VERSION_COLUMNS,
    CopiedColumn,
    columns_of,
    rows_of,
    versioned,
)
from mirrorlake.sources.postgresql.reading.copy import cancel, copied
from mirrorlake.sources.postgresql.reading.named_columns import named_columns, relation_of
from mirrorlake.sources.postgresql.recognition import locked
from mirrorlake.sources.postgresql.recognition.known import Known
from mirrorlake.sources.postgresql.recognition.recognition import Recognition
from mirrorlake.sources.postgresql.refusals import translated
from mirrorlake.sources.postgresql.replication.slot import create_slot, current_time
from mirrorlake.sources.postgresql.replication.stream import PostgresStream
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.table import SnapshotPart, SourceTable

_ENTERED, _UNLOCK = "savepoint entered", "rollback to savepoint entered"
"""Before anything is locked; and back to that, within the snapshot."""
_LOCKED, _CANCELLED = "savepoint locked", "rollback to savepoint locked"
"""Before a table that is locked is read; and back to that, with the lock, from within a COPY."""
_PLACES = 10_000  # rows that are read by one query by their places
_IN_TRANSACTION = {TransactionStatus.INTRANS, TransactionStatus.INERROR}


class PostgresSnapshot:
    """A `Snapshot` at the consistent point of a slot.

    `keeper` is the replication connection whose next command would end the exported snapshot; a
    temporary slot ends with it. The connection that has entered it meanwhile keeps it. None where
    another process has that connection.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        keeper: Connection | None,
        point: Lsn,
        taken: datetime,
        name: str,
        noted: NotedIn,
        slot: str,
        opened: OpenConnections,
        recognition: Recognition | None = None,
    ) -> None:
        """opened: takes up the connections, beside others."""
        self._opened, self._mine = opened, OpenConnections()
        self.point, self.taken = point, taken
        self._slot, self._recognition = slot, recognition
        self._settings, self._keeper, self._name, self._noted = settings, keeper, name, noted
        self._moment: dict[str, Any] | None = None
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._idle.put(self._enter())

    @property
    def shared(self) -> str:
        return self._name

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        connection = self._borrow()
        with translated():
            listed = partial(heaps.parts, connection, table, self._settings.part_bytes)
            parts = self._patiently(connection, listed)
        self._idle.put(connection)
        return parts

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        if part.range is None or not part.table.schema.columns:
            return
        yield from self._copied(part)

    @property
    def recognising(self) -> Recognising:
        return self

    def facts(self, part: SnapshotPart) -> Mapping[str, Any] | None:
        if part.range is None or not part.range.heap.is_recognised or not part.table.schema.columns:
            return None
        if self._moment is None:
            connection = self._borrow()
            with translated():
                self._moment = heaps.moment(connection)
            self._idle.put(connection)
        extremes = str(self._settings.extremes)
        return {**heaps.facts(part), **self._moment, "extremes": extremes}

    def versioned(self, part: SnapshotPart) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        with closing(self._copied(part, VERSION_COLUMNS)) as batches:
            yield from map(versioned, batches)

    def versions(self, part: SnapshotPart) -> pa.Table:
        found = [*self._copied(part, VERSION_COLUMNS, rows=False, by_ctid=True)]
        return pa.Table.from_batches(found, schema=VERSION)

    def only(
        self, part: SnapshotPart, versions: pa.Table
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        for some in versions.to_batches(max_chunksize=_PLACES):
            places = some["ctid"].to_pylist()
            found = self._copied(part, VERSION_COLUMNS, places=places, by_ctid=True)
            with closing(found) as batches:
                yield from map(versioned, batches)

    def _copied(
        self,
        part: SnapshotPart,
        before: Sequence[CopiedColumn] = (),
        *,
        rows: bool = True,
        places: Sequence[int] | None = None,
        by_ctid: bool = False,
    ) -> Generator[pa.RecordBatch, None, None]:
        """The output of a COPY from a part that stays where it is meanwhile: columns `before` those
        of the table, which come with `rows`."""
        with self._reading(part.table) as connection:
            if part.is_described:
                self._lock(connection, part.table)
            outside = partial(connect, self._settings.url)
            lock = partial(heaps.lock, connection, part, outside, by_ctid=by_ctid)
            types = self._patiently(connection, lock)
            decoders = decoders_of(part.table, self._settings.extremes, self._noted)
            columns = [*before, *(columns_of(types, decoders) if rows else ())]
            query = heaps.copy(part, columns, places).as_bytes(connection)
            with any_text(connection):
                for block in copied(connection, query, self._opened.hear):
                    yield rows_of(block, part.table, columns)
            self._take(connection)  # without a lock on the table

    @contextmanager
    def _reading(self, table: SourceTable) -> Iterator[Connection]:
        """A connection in the snapshot. Raises TableError, SourceUnavailable."""
        connection = self._borrow()
        try:
            yield connection
        except psycopg.errors.InsufficientPrivilege as error:
            self._restore(connection)
            raise TableError(
                f"the table cannot be read: {_first_line(error)}",
                table=str(table.table),
                hint="`mirrorlake check` names the missing privilege.",
            ) from error
        except psycopg.ProgrammingError as error:  # a column is gone, or has another type
            self._restore(connection)
            raise AlteredWhileLoaded(
                f"reading the table failed: {_first_line(error)}",
                where=str(table.table),
                hint=LOADED_LATER,
            ) from error
        except psycopg.Error as error:
            self._restore(connection)
            raise SourceUnavailable(
                f"reading {table.table} failed: {_first_line(error)}",
                hint="The load is restarted.",
            ) from error
        except (TableError, SourceUnavailable):
            self._restore(connection)
            raise
        except GeneratorExit:  # it may be the last one that is in the snapshot
            with suppress(psycopg.Error):
                cancel(connection)
            self._restore(connection)
            raise
        except BaseException:
            connection.close()  # in the middle of a COPY it is of no further use
            raise
        self._idle.put(connection)

    def _restore(self, connection: Connection) -> None:
        """Let a connection in which something failed go on with the snapshot, where it can."""
        if connection.info.transaction_status not in _IN_TRANSACTION:
            connection.close()  # lost, or in the middle of a COPY
            return
        with suppress(psycopg.Error):
            connection.execute(_UNLOCK)
            self._idle.put(connection)

    def ordered(self, table: SourceTable, keys: KeyRange) -> Iterator[tuple[pa.RecordBatch, Lsn]]:
        """By one COPY, in the order of an index where there is one, else by one sort; of a key that
        begins with days or moments by up to three. The table cannot be altered until all of it is
        read, or the snapshot is closed."""
        check_readable(table)
        with self._reading(table) as connection:
            relation = self._lock(connection, table)
            columns = named_columns(
                connection, table, relation, self._settings.extremes, self._noted
            )
            with closing(self._in_order(connection, table, relation, keys, columns)) as found:
                for batch in found:
                    yield batch, self.point
            connection.execute(_UNLOCK)

    def _lock(self, connection: Connection, table: SourceTable) -> sql.Composed:
        """Keep a table, with its partitions, as it is until the transaction ends, if the stream has
        described it as it is. Returns it by the name that it has."""
        relation = relation_of(connection, table)
        lock_waits.lock(connection, table, relation)
        with closing(connect(self._settings.url)) as now:
            locked.check(connection, now, table, self._known(table))
        return relation

    def _in_order(
        self,
        connection: Connection,
        table: SourceTable,
        relation: sql.Composed,
        keys: KeyRange,
        columns: Sequence[CopiedColumn],
    ) -> Generator[pa.RecordBatch, None, None]:
        """The rows in a range, as an index has them as long as that is the order of the mirror."""
        query = partial(key_ranges.copy, connection, table, relation)
        for stretch in key_ranges.stretches(table, keys):
            left: KeyRange | None = keys
            if unsure := key_ranges.unsure(table, stretch):
                sent = query(keys, columns, stretch, by_index=True)
                left = yield from self._up_to(unsure, connection, table, keys, sent, columns)
            if left is None:
                continue
            sent = query(left, columns, stretch)
            with any_text(connection):
                for block in copied(connection, sent, self._opened.hear):
                    yield rows_of(block, table, columns)

    def _up_to(
        self,
        unsure: Sequence[str],
        connection: Connection,
        table: SourceTable,
        keys: KeyRange,
        query: bytes,
        columns: Sequence[CopiedColumn],
    ) -> Generator[pa.RecordBatch, None, KeyRange | None]:
        """The rows before the first that may have an infinity in one of the `unsure` columns.
        Returns the keys that are left to be read from there, None if there is no such row."""
        connection.execute(_LOCKED)
        with any_text(connection):
            with closing(copied(connection, query, self._opened.hear)) as blocks:
                for block in blocks:
                    rows = rows_of(block, table, columns)
                    if count := key_ranges.before_ends(rows, unsure):
                        yield rows.slice(0, count)
                        last = bound_of(pa.Table.from_batches([rows]), table.key, count - 1)
                        keys = keys.beyond(last)
                    if count < rows.num_rows:
                        break
                else:
                    return None
            cancel(connection)
            connection.execute(_CANCELLED)
        return keys

    def estimated(self, table: SourceTable, keys: KeyRange) -> int | None:
        connection, found = self._borrow(), None
        with suppress(psycopg.Error):  # the table was altered behind the rows that were read
            found = key_ranges.estimated(connection, table, keys)
        self._take(connection)  # without a lock on the table
        self._idle.put(connection)
        return found

    def upto(self, _part: SnapshotPart) -> Lsn:
        return self.point

    def followed(self, publications: Sequence[str], decoder: Decoder) -> PostgresStream:
        """The changes beyond the point, by its slot. Nothing can enter the snapshot any more."""
        assert self._keeper is not None
        return PostgresStream(
            self._keeper,
            self._slot,
            publications,
            decoder,
            self._settings.chunk_bytes,
            self.point,
            metadata=False,
        )

    def close(self) -> None:
        self._mine.cut()
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                break
        if self._keeper is not None:
            self._keeper.close()

    def _known(self, table: SourceTable) -> Known | None:
        """By what the stream knows the table; before there is a stream, what was recorded."""
        if self._recognition is not None:
            return self._recognition.known(int(table.identity))
        return Known.of(table.known) if table.known else None

    def _borrow(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._enter()

    def _enter(self) -> Connection:
        connection = connect(self._settings.url, autocommit=False)
        self._take(self._mine.add(self._opened.add(connection)))
        return connection

    def _patiently(self, connection: Connection, act: Callable[[], Result]) -> Result:
        """Do something that needs a lock, however long another session holds it."""

        def attempt() -> Result:
            try:
                return act()
            except psycopg.errors.LockNotAvailable:
                self._take(connection)
                raise

        return patiently(attempt, forever=True)

    def _take(self, connection: Connection) -> None:
        """Let a connection see the snapshot, in a transaction of its own."""
        take = sql.SQL("set transaction snapshot {}").format(sql.Literal(self._name))
        try:
            with translated():
                connection.rollback()
                connection.execute("set transaction isolation level repeatable read, read only")
                connection.execute(take)
                connection.execute(NAMES_ALIKE)
                connection.execute(_ENTERED)
        except psycopg.Error as error:  # the server was restarted: it was that of a connection
            connection.close()
            raise SourceUnavailable(
                f"the snapshot of the load is gone: {_first_line(error)}",
                hint="The load is restarted.",
            ) from error


@dataclass(frozen=True, slots=True)
class SharedPostgresSnapshot:
    """A `SharedSnapshot`; it pickles. name: `Snapshot.shared`."""

    settings: PostgresSettings = field(repr=False)
    point: Lsn
    name: str

    @property
    def server(self) -> str:
        given = conninfo.conninfo_to_dict(self.settings.url)
        host, port = given.get("host") or given.get("hostaddr") or "localhost", given.get("port")
        return f"PostgreSQL at {host}:{port or 5432}"

    @property
    def extremes(self) -> str:
        return str(self.settings.extremes)

    def part(self, table: SourceTable, bounds: Any) -> SnapshotPart:
        heap = heaps.Heap(**bounds["heap"])
        return SnapshotPart(table, heaps.HeapRange(heap, bounds["start"], bounds["stop"]))

    def reach(self) -> None:
        connect(self.settings.url).close()

    def open(self, noted: NotedIn) -> PostgresSnapshot:
        opened = OpenConnections()
        long_ago = datetime.fromtimestamp(0, UTC)  # who keeps it open knows when it was taken
        return PostgresSnapshot(
            self.settings, None, self.point, long_ago, self.name, noted, "", opened
        )


def at_slot(
    settings: PostgresSettings,
    slot: str,
    noted: NotedIn,
    opened: OpenConnections,
    *,
    temporary: bool,
    recognition: Recognition | None = None,
    within: float | None = None,
) -> PostgresSnapshot:
    """Make a slot. Returns the snapshot at its beginning. opened: takes up the connections;
    recognition: of the stream beside it; within: seconds that it may take, else SlotWaits."""
    replication = opened.add(connect_replication(settings.url))
    try:
        with opened.making_slot(replication, within), translated():
            taken = current_time(replication)
            failover = settings.failover
            point, name = create_slot(replication, slot, temporary=temporary, failover=failover)
        return PostgresSnapshot(
            settings, replication, point, taken, name, noted, slot, opened, recognition
        )
    except BaseException:
        replication.close()
        raise


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0]
