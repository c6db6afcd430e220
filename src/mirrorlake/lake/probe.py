"""Finds the rows of given keys in the files of a table.

Files whose statistics exclude every key are not opened. In the others DuckDB joins the keys with
the key columns and reads the other columns only where something matched; rows that a deletion
vector has removed are taken out afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.lake import vectors
from mirrorlake.lake.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema, contiguous

_PATH, _FILE, _ROW, _CODE = "__path", "__file", "__row", "__code"


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of the table that have one of the keys.

    rows: m rows with all columns; code: int64, the key of each; file: int64, which of the probed
    files; row: int64, the row number in it. gone: for each probed file the rows that its deletion
    vector had removed already, ascending.
    """

    rows: pa.Table
    code: np.ndarray
    file: np.ndarray
    row: np.ndarray
    gone: Mapping[int, np.ndarray]


def candidates(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> list[Mapping[str, Any]]:
    """The files that can hold one of the keys, by the bounds of their first key column."""
    if keys.num_rows == 0:
        return []
    name = keys.column_names[0]
    physical = schema.physical[schema.schema.names.index(name)]
    column = contiguous(keys[name])
    present = column.drop_null()
    bounds = _Bounds(present) if len(present) and _comparable(column.type) else None
    return [
        add
        for add in files
        if _may_hold(
            json.loads(add.get("stats") or "{}", parse_float=Decimal),
            physical,
            bounds,
            has_null=column.null_count > 0,
            comparable=_comparable(column.type),
        )
    ]


def probe(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    keys: pa.Table,
    threads: int,
) -> Matches:
    """The rows with these keys (distinct, in the table's key columns) in these files."""
    gone = {
        place: vectors.read(table, add["deletionVector"])
        for place, add in enumerate(files)
        if add.get("deletionVector")
    }
    target = arrow_schema(schema.schema)
    if not files:
        none = np.zeros(0, np.int64)
        return Matches(target.empty_table(), none, none, none, gone)
    coded = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
    coded = coded.append_column(_CODE, pa.array(np.arange(keys.num_rows), pa.int64()))
    connection = _connection(threads)
    try:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("wanted", coded)
        paths = [str(path_of(table, add)) for add in files]
        scan, present = _scan(connection, paths, schema)
        query = _query(schema, keys, present, scan)
        found = connection.execute(query, {"paths": paths}).to_arrow_table()
    finally:
        connection.close()
    place, row = _numbers(found, _FILE), _numbers(found, _ROW)
    live = ~_is_gone(place, row, gone)
    # Columns that were added later stand in none of these files.
    columns = [
        found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(len(row), f.type)
        for f in target
    ]
    rows = pa.table(columns, schema=target)
    if not live.all():
        rows = rows.filter(pa.array(live))
    return Matches(rows, _numbers(found, _CODE)[live], place[live], row[live], gone)


def live_rows(table: Path, add: Mapping[str, Any], schema: TableSchema) -> pa.Table:
    """All rows of a file that no deletion vector has removed, with all columns."""
    rows = _read(path_of(table, add), schema)
    if vector := add.get("deletionVector"):
        live = np.ones(rows.num_rows, bool)
        live[vectors.read(table, vector)] = False
        rows = rows.filter(pa.array(live))
    target = arrow_schema(schema.schema)
    columns = [
        rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for name, field in zip(schema.physical, target, strict=True)
    ]
    return pa.table(columns, schema=target)


def path_of(table: Path, add: Mapping[str, Any]) -> Path:
    """The file of an add action: relative and URL-encoded, or an absolute URL."""
    path = add["path"]
    parsed = urlparse(path)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return table / unquote(path)


_NUMBER = "file_row_number"

_FILES = f"""(select * exclude ({_NUMBER}), {_NUMBER} as {_ROW}
              from read_parquet($paths, {_NUMBER} = true, filename = '{_PATH}',
                                union_by_name = true, hive_partitioning = false))"""  # noqa: S608


_databases: dict[int, duckdb.DuckDBPyConnection] = {}


def _connection(threads: int) -> duckdb.DuckDBPyConnection:
    """To the database of this process that uses so many threads; it holds nothing.

    Making one takes longer than all else that a batch of a few rows needs.
    """
    database = _databases.get(threads)
    if database is None:
        made = duckdb.connect(config={"threads": threads})
        database = _databases.setdefault(threads, made)
    return database.cursor()


def _scan(
    connection: duckdb.DuckDBPyConnection, paths: list[str], schema: TableSchema
) -> tuple[str, Collection[str]]:
    """The rows of the files, each with its number and the path of its file, and their columns."""
    if all(name.casefold() != _NUMBER for name in schema.physical):
        query = f"select * from {_FILES} limit 0"  # noqa: S608  (nothing from outside is in it)
        found = connection.execute(query, {"paths": paths}).description
        return _FILES, {column[0] for column in found}
    # DuckDB gives the numbers of rows this name and no other: the files are read without it.
    stored = _stored(paths, schema)
    connection.register("stored", stored)
    return "stored", stored.column_names


def _stored(paths: list[str], schema: TableSchema) -> pa.Table:
    tables = []
    for path in paths:
        rows = _read(path, schema)
        rows = rows.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
        tables.append(rows.append_column(_PATH, pa.repeat(path, rows.num_rows)))
    return pa.concat_tables(tables, promote_options="default")


def _read(path: str | Path, schema: TableSchema) -> pa.Table:
    """A file whole: those columns of the table that it has, under its own names."""
    target = schema.file_schema()
    # Spark writes moments as INT96, in nanoseconds, which end in 2262.
    rows = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
    rows = rows.select([name for name in target.names if name in rows.column_names])
    return rows.cast(pa.schema([target.field(name) for name in rows.column_names]))


def _query(schema: TableSchema, keys: pa.Table, present: Collection[str], scan: str) -> str:
    """The join of the keys with the rows of the files; its parameter is the paths.

    NULL equals NULL, and floating point is compared as text, which tells -0.0 from 0.0, with every
    NaN the same (LZ-256, LZ-257).
    """
    names = schema.schema.names
    conditions = []
    for i, name in enumerate(keys.column_names):
        physical = schema.physical[names.index(name)]
        left = f"t.{_quoted(physical)}" if physical in present else "null"
        right = f"wanted.k{i}"
        if schema.schema[name].type.name in {"float", "double"}:
            left, right = _number_text(left), _number_text(right)
        conditions.append(f"{left} is not distinct from {right}")
    columns = [
        f"t.{_quoted(physical)} as {_quoted(name)}"
        for physical, name in zip(schema.physical, names, strict=True)
        if physical in present
    ]
    places = [
        f"t.{_ROW} as {_ROW}",
        f"wanted.{_CODE} as {_CODE}",
        f"list_position($paths, t.{_PATH})::bigint - 1 as {_FILE}",
    ]
    return (
        f"select {', '.join(columns + places)} from {scan} t "  # noqa: S608  (names are quoted)
        f"join wanted on {' and '.join(conditions)}"
    )


def _number_text(value: str) -> str:
    # A NaN has a sign, and its text shows it.
    return f"case when isnan({value}) then 'nan' else {value}::varchar end"


class _Bounds:
    """Which ranges of values can hold one of the keys."""

    def __init__(self, keys: pa.Array) -> None:
        ordered = keys.take(pc.sort_indices(keys))
        self._type = ordered.type
        self._ends: tuple[str, str] | None = None
        self._numbers = np.zeros(0, np.int64)
        if pa.types.is_string(keys.type):
            self._ends = ordered[0].as_py(), ordered[-1].as_py()
        else:
            # As numbers, because there are days that Python's calendar does not know.
            width = pa.int32() if keys.type.bit_width == 32 else pa.int64()
            temporal = pa.types.is_temporal(keys.type)
            self._numbers = (ordered.cast(width) if temporal else ordered).to_numpy()

    def meet(self, low: Any, high: Any) -> bool:
        """Whether a key can lie between these bounds of the log."""
        if self._ends is not None:
            first, last = self._ends
            known = isinstance(low, str) and isinstance(high, str)
            return not known or bool(low <= last and first <= high)
        least, most = _as_number(low, self._type), _as_number(high, self._type)
        if least is None or most is None:
            return True
        if pa.types.is_timestamp(self._type):
            most += 1_000  # writers cut bounds to milliseconds, this one too
        place = int(np.searchsorted(self._numbers, least))
        return place < len(self._numbers) and bool(self._numbers[place] <= most)


def _may_hold(
    stats: Mapping[str, Any],
    column: str,
    bounds: _Bounds | None,
    *,
    has_null: bool,
    comparable: bool,
) -> bool:
    if not stats or not comparable:
        return True
    nulls = (stats.get("nullCount") or {}).get(column)
    if has_null and nulls != 0:
        return True
    if bounds is None:
        return False
    low = (stats.get("minValues") or {}).get(column)
    high = (stats.get("maxValues") or {}).get(column)
    if low is None or high is None:
        return nulls is None or bool(nulls != stats.get("numRecords"))
    return bounds.meet(low, high)


def _comparable(kind: pa.DataType) -> bool:
    """Types whose bounds in the log order like their values here."""
    is_ = pa.types
    return any(
        test(kind) for test in (is_.is_integer, is_.is_string, is_.is_date, is_.is_timestamp)
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _as_number(bound: Any, kind: pa.DataType) -> int | None:
    """A bound from the log as Arrow holds such values; None when it cannot be read."""
    if pa.types.is_integer(kind):
        return bound if isinstance(bound, int) else None
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(bound).toordinal() - _EPOCH.toordinal()
        moment = datetime.fromisoformat(bound)
        return (moment - _EPOCH) // timedelta(microseconds=1) if moment.tzinfo else None
    except (ValueError, TypeError):
        return None


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    numbers: np.ndarray = table[name].to_numpy().astype(np.int64)
    return numbers


def _is_gone(file: np.ndarray, row: np.ndarray, gone: Mapping[int, np.ndarray]) -> np.ndarray:
    removed = np.zeros(len(file), bool)
    for place, rows in gone.items():
        mine = file == place
        removed[mine] = np.isin(row[mine], rows)
    return removed


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
