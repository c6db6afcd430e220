"""Joins keys with the rows of data files, by DuckDB.

NULL equals NULL, and floating point is compared as text, which tells -0.0 from 0.0, with every NaN
the same (LZ-256, LZ-257).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from mirrorlake.delta.duckdb_extension import quoted
from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.lookup.row_cache import stored_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.equality import same

CODE, FILE, ROW = "__code", "__file", "__row"
"""Of a row that was found: the key it has, the file it is in, and its number there."""

_PATH = "__path"
_NUMBER = "file_row_number"

_FILES = f"""(select * exclude ({_NUMBER}), {_NUMBER} as {ROW}
              from read_parquet($paths, {_NUMBER} = true, filename = '{_PATH}',
                                union_by_name = true, hive_partitioning = false))"""  # noqa: S608


def matches(paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int) -> pa.Table:
    """Where the rows with these keys are: CODE, FILE (a position in `paths`) and ROW.

    Reads the key columns only.
    """
    return _joined(paths, schema, keys, threads, whole=False)


def rows(paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int) -> pa.Table:
    """The rows with these keys, with those columns of the table that the files have, and places."""
    return _joined(paths, schema, keys, threads, whole=True)


def equal(found: pa.Table, code: np.ndarray, keys: pa.Table) -> np.ndarray:
    """Whether each found row has the key that `code` says: bool. found: the key columns."""
    wanted, result = keys.take(pa.array(code)), np.ones(len(code), bool)
    for one, other in zip(found.columns, wanted.columns, strict=True):
        result &= same(contiguous(one), contiguous(other))
    return result


_databases: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def connected(threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """To the database of this process that uses so many threads; it holds nothing.

    Making one takes longer than all else that a batch of a few rows needs.
    """
    database = _databases.get(threads)
    if database is None:
        made = duckdb.connect(config={"threads": threads})
        made.execute("set global TimeZone = 'UTC'")
        # It keeps pieces of every file that it has read, up to most of the machine's memory, and
        # reads are no faster for it: what is worth keeping is kept by `small`, and by the system.
        made.execute("set global enable_external_file_cache = false")
        database = _databases.setdefault(threads, made)
    connection = database.cursor()
    try:
        yield connection
    finally:
        connection.close()


def _joined(
    paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int, *, whole: bool
) -> pa.Table:
    paths = list(paths)
    with connected(threads) as connection:
        connection.register("wanted", coded(keys))
        key = [schema.physical_of(name) for name in keys.column_names]
        scan, present = scanned(connection, paths, schema, None if whole else key)
        query = _query(schema, keys, present, scan, whole=whole)
        return connection.execute(query, {"paths": paths}).to_arrow_table()


def coded(keys: pa.Table) -> pa.Table:
    """The keys under names of ours, with their numbers."""
    coded = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
    return coded.append_column(CODE, pa.array(np.arange(keys.num_rows), pa.int64()))


def scanned(
    connection: duckdb.DuckDBPyConnection,
    paths: list[str],
    schema: TableSchema,
    columns: Collection[str] | None = None,
) -> tuple[str, set[str]]:
    """The rows of the files, each with its number and the path of its file, and their columns.

    columns: those that will be read, None for all; their checksums are verified here.
    """
    if all(name.casefold() != _NUMBER for name in schema.physical):
        for path in paths:
            page_checksums.verify(Path(path), columns)
        query = f"select * from {_FILES} limit 0"  # noqa: S608  (nothing from outside is in it)
        found = connection.execute(query, {"paths": paths}).description
        return _FILES, {column[0] for column in found}
    # DuckDB gives the numbers of rows this name and no other: the files are read without it.
    stored = _stored(paths, schema)
    connection.register("stored", stored)
    return "(select * from stored where list_contains($paths, __path))", set(stored.column_names)


def _stored(paths: list[str], schema: TableSchema) -> pa.Table:
    tables = []
    for path in paths:
        found, rows = stored_rows(path, schema)
        found = found.append_column(ROW, pa.array(np.arange(rows)))
        tables.append(found.append_column(_PATH, pa.repeat(path, rows)))
    return pa.concat_tables(tables, promote_options="default")


def _query(
    schema: TableSchema, keys: pa.Table, present: Collection[str], scan: str, *, whole: bool
) -> str:
    """The join of the keys with the rows of the files; its parameter is the paths."""
    names = schema.schema.names
    conditions = []
    for i, name in enumerate(keys.column_names):
        physical = schema.physical_of(name)
        left = f"t.{quoted(physical)}" if physical in present else "null"
        conditions.append(_condition(left, i, schema, name))
    columns = [
        f"t.{quoted(physical)} as {quoted(name)}"
        for physical, name in zip(schema.physical, names, strict=True)
        if physical in present and whole and name not in schema.partitions
    ]
    at = [
        f"t.{ROW} as {ROW}",
        f"wanted.{CODE} as {CODE}",
        f"list_position($paths, t.{_PATH})::bigint - 1 as {FILE}",
    ]
    return (
        f"select {', '.join(columns + at)} from {scan} t "  # noqa: S608  (names are quoted)
        f"join wanted on {' and '.join(conditions)}"
    )


def _condition(left: str, index: int, schema: TableSchema, name: str) -> str:
    """That a stored value is that of the key column at a place."""
    right = f"wanted.k{index}"
    if schema.schema[name].type.name in {"float", "double"}:
        left, right = number_text(left), number_text(right)
    return f"{left} is not distinct from {right}"


def number_text(value: str) -> str:
    # A NaN has a sign, and its text shows it.
    return f"case when isnan({value}) then 'nan' else {value}::varchar end"
