"""Consistent reads of whole tables, several pieces at a time, all in one exported snapshot.

A piece is a range of pages of one heap (of a leaf partition, for a partitioned table). Rows come
by COPY as CSV, whose unquoted empty field is NULL and whose quoted one is the empty text; Arrow
parses whole messages at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg import sql

from mirrorlake.errors import BadValue, SourceUnavailable, TableError
from mirrorlake.model.arrow import arrow_type, contiguous, nullable_schema
from mirrorlake.model.position import Lsn
from mirrorlake.sources.postgresql.connect import (
    Connection,
    any_text,
    connect,
    connect_replication,
    translated,
)
from mirrorlake.sources.postgresql.copy import copied
from mirrorlake.sources.postgresql.decoder import NotedIn, decoders_of
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.postgresql.slot import create_slot
from mirrorlake.sources.postgresql.types.arrays import json_to_array
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.values import ColumnDecoder, Extremes
from mirrorlake.sources.table import SnapshotPart, SourceTable

_PAGE = 8192
_BOM = "\ufeff".encode()

_HEAPS = """
select n.nspname, c.relname, pg_relation_size(c.oid) / current_setting('block_size')::int
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'f')
  and (c.oid = %s::oid
       or c.oid in (select relid::oid from pg_partition_tree(%s::oid::regclass) where isleaf))
"""


class PostgresSnapshot:
    """A `Snapshot` at the consistent point of a slot.

    `keeper` is the replication connection whose next command would end the exported snapshot; a
    temporary slot ends with it.
    """

    def __init__(
        self, settings: PostgresSettings, keeper: Connection, point: Lsn, name: str, noted: NotedIn
    ) -> None:
        self.point = point
        self._settings, self._keeper, self._name, self._noted = settings, keeper, name, noted
        self._idle: SimpleQueue[Connection] = SimpleQueue()
        self._idle.put(self._enter())

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        connection = self._borrow()
        with translated():
            heaps = connection.execute(_HEAPS, [table.identity] * 2).fetchall()
        self._idle.put(connection)
        step = max(self._settings.part_bytes // _PAGE, 1)
        parts = []
        for schema, name, pages in heaps:
            # The last range is open: pages may have been added since.
            starts = range(0, max(pages, 1), step)
            parts += [
                SnapshotPart(
                    table, (schema, name, start, start + step if start + step < pages else None)
                )
                for start in starts
            ]
        return parts or [SnapshotPart(table, None)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        if part.range is None or not part.table.schema.columns:
            return
        connection = self._borrow()
        decoders = decoders_of(part.table, self._settings.extremes, self._noted)
        try:
            with any_text(connection):
                for block in copied(connection, _query(part).as_bytes(connection)):
                    yield _read(block, part.table, decoders)
        except psycopg.errors.InsufficientPrivilege as error:
            connection.close()
            raise TableError(
                f"the table cannot be read: {_first_line(error)}",
                table=str(part.table.table),
                hint="`mirrorlake check` names the missing privilege.",
            ) from error
        except psycopg.Error as error:
            connection.close()
            raise SourceUnavailable(
                f"reading {part.table.table} failed: {_first_line(error)}",
                hint="The load is restarted.",
            ) from error
        except BaseException:
            connection.close()  # in the middle of a COPY it is of no further use
            raise
        self._idle.put(connection)

    def upto(self, _part: SnapshotPart) -> Lsn:
        return self.point

    def close(self) -> None:
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                break
        self._keeper.close()

    def _borrow(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._enter()

    def _enter(self) -> Connection:
        connection = connect(self._settings.url, autocommit=False)
        take = sql.SQL("set transaction snapshot {}").format(sql.Literal(self._name))
        try:
            with translated():
                connection.execute("set transaction isolation level repeatable read, read only")
                connection.execute(take)
        except psycopg.Error as error:  # the server was restarted: it was that of a connection
            connection.close()
            raise SourceUnavailable(
                f"the snapshot of the load is gone: {_first_line(error)}",
                hint="The load is restarted.",
            ) from error
        return connection


def at_slot(
    settings: PostgresSettings, slot: str, noted: NotedIn, *, temporary: bool
) -> PostgresSnapshot:
    """Make a slot. Returns the snapshot at its beginning."""
    replication = connect_replication(settings.url)
    try:
        with translated():
            point, name = create_slot(replication, slot, temporary=temporary)
        return PostgresSnapshot(settings, replication, point, name, noted)
    except BaseException:
        replication.close()
        raise


def read_rows(
    connection: Connection, table: SourceTable, keys: pa.Table, extremes: Extremes, noted: NotedIn
) -> pa.Table:
    """The rows with these keys as they are now. Those that are gone are absent."""
    columns = [sql.Identifier(name) for name in table.schema.names]
    names = [sql.Identifier(name) for name in keys.column_names]
    row = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(names)))
    query = sql.SQL("copy (select {} from {} where ({}) in ({})) to stdout with (format csv)")
    is_array = [table.source_types[name].form is Form.ARRAY for name in keys.column_names]
    values = [
        json_to_array(value) if array and value is not None else value
        for row in keys.to_pylist()
        for array, value in zip(is_array, row.values(), strict=True)
    ]
    filled = query.format(
        sql.SQL(", ").join(columns),
        sql.Identifier(table.table.schema, table.table.name),
        sql.SQL(", ").join(names),
        sql.SQL(", ").join([row] * keys.num_rows),
    )
    decoders = decoders_of(table, extremes, noted)
    with connection.cursor() as cursor, cursor.copy(filled, values) as copy:
        content = b"".join(copy)
    if not content:
        return pa.Table.from_batches([], schema=nullable_schema(table.schema))
    return pa.Table.from_batches([_read(content, table, decoders)])


def _query(part: SnapshotPart) -> sql.Composed:
    schema, name, first, stop = part.range
    conditions: list[sql.Composable] = []
    if first:
        conditions.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({first},0)")))
    if stop is not None:
        conditions.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({stop},0)")))
    if condition := part.table.selection.get("rows"):
        conditions.append(sql.SQL("(") + sql.SQL(condition) + sql.SQL(")"))
    where = sql.SQL(" where ") + sql.SQL(" and ").join(conditions) if conditions else sql.SQL("")
    return sql.SQL("copy (select {} from only {}{}) to stdout with (format csv)").format(
        sql.SQL(", ").join(map(sql.Identifier, part.table.schema.names)),
        sql.Identifier(schema, name),
        where,
    )


def _first_line(error: psycopg.Error) -> str:
    return str(error).strip().splitlines()[0]


def _read(block: bytes, table: SourceTable, decoders: Sequence[ColumnDecoder]) -> pa.RecordBatch:
    try:
        return _parse(block, table, decoders)
    except pa.ArrowInvalid as error:
        raise BadValue(
            f"a value does not fit its column: {error}",
            table=str(table.table),
            hint="This is a bug. Report it with the types of the columns.",
        ) from error


def _parse(block: bytes, table: SourceTable, decoders: Sequence[ColumnDecoder]) -> pa.RecordBatch:
    names = table.schema.names
    # Numbers are read on the way; everything else is a text that its decoder understands.
    direct = {
        d.column: arrow_type(d.type.type)
        for d in decoders
        if d.type.form is Form.NUMBER and d.type.type.name not in {"float", "double"}
    }
    if block.startswith(_BOM):  # it belongs to the first value; Arrow takes one away
        block = _BOM + block
    rows = pyarrow.csv.read_csv(
        pa.BufferReader(block),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, block_size=len(block) + 1, use_threads=False
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={name: direct.get(name, pa.string()) for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    columns = [
        contiguous(rows[d.column]) if d.column in direct else d.decode(contiguous(rows[d.column]))
        for d in decoders
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)
