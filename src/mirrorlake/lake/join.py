"""Joins keys with the rows of data files, by DuckDB.

NULL equals NULL, and floating point is compared as text, which tells -0.0 from 0.0, with every NaN
the same (LZ-256, LZ-257).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa

from mirrorlake.lake.schema import TableSchema
from mirrorlake.lake.small import stored_rows
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.equality import same

CODE, FILE, ROW = "__code", "__file", "__row"
"""Of a row that was found: the key it has, the file it is in, and its number there."""

_PATH = "__path"
_NUMBER = "file_row_number"

_FILES = f"""(select * exclude ({_NUMBER}), {_NUMBER} as {ROW}
              from read_parquet($paths, {_NUMBER} = true, filename = '{_PATH}',
                                union_by_name = true, hive_partitioning = false))"""  # noqa: S608


def places(paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int) -> pa.Table:
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


def hashes(path: str, schema: TableSchema, key: Sequence[str]) -> np.ndarray | None:
    """The hash of the key of each row of a file, uint64; None when it lacks a key column."""
    physical = [schema.physical_of(name) for name in key]
    with _connected(1) as connection:
        scan, present = _scan(connection, [path], schema)
        if not present.issuperset(physical):
            return None
        hashed = _hash([f"t.{_quoted(name)}" for name in physical], schema, key)
        query = f"select {ROW}, {hashed} as hash from {scan} t"  # noqa: S608  (names are quoted)
        found = connection.execute(query, {"paths": [path]}).to_arrow_table()
    result = np.zeros(found.num_rows, np.uint64)
    result[found[ROW].to_numpy()] = found["hash"].to_numpy()
    return result


def key_hashes(keys: pa.Table, schema: TableSchema) -> np.ndarray:
    """The hash of each key, as `hashes` gives it for a row that has it."""
    with _connected(1) as connection:
        connection.register("wanted", _coded(keys))
        names = [f"k{i}" for i in range(keys.num_columns)]
        hashed = _hash(names, schema, keys.column_names)
        found = connection.execute(
            f"select {CODE}, {hashed} as hash from wanted"  # noqa: S608
        ).to_arrow_table()
    result = np.zeros(keys.num_rows, np.uint64)
    result[found[CODE].to_numpy()] = found["hash"].to_numpy()
    return result


def hash_name() -> str:
    """What the hashes depend on, beside the values: DuckDB promises none between versions."""
    return f"duckdb {duckdb.__version__}"


_databases: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def _connected(threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """To the database of this process that uses so many threads; it holds nothing.

    Making one takes longer than all else that a batch of a few rows needs.
    """
    database = _databases.get(threads)
    if database is None:
        made = duckdb.connect(config={"threads": threads})
        made.execute("set global TimeZone = 'UTC'")
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
    with _connected(threads) as connection:
        connection.register("wanted", _coded(keys))
        scan, present = _scan(connection, paths, schema)
        query = _query(schema, keys, present, scan, whole=whole)
        return connection.execute(query, {"paths": paths}).to_arrow_table()


def _coded(keys: pa.Table) -> pa.Table:
    """The keys under names of ours, with their numbers."""
    coded = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
    return coded.append_column(CODE, pa.array(np.arange(keys.num_rows), pa.int64()))


def _scan(
    connection: duckdb.DuckDBPyConnection, paths: list[str], schema: TableSchema
) -> tuple[str, set[str]]:
    """The rows of the files, each with its number and the path of its file, and their columns."""
    if all(name.casefold() != _NUMBER for name in schema.physical):
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
        left = f"t.{_quoted(physical)}" if physical in present else "null"
        conditions.append(_condition(left, i, schema, name))
    columns = [
        f"t.{_quoted(physical)} as {_quoted(name)}"
        for physical, name in zip(schema.physical, names, strict=True)
        if physical in present and whole
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


def _condition(left: str, place: int, schema: TableSchema, name: str) -> str:
    """That a stored value is that of the key column at a place."""
    right = f"wanted.k{place}"
    if schema.schema[name].type.name in {"float", "double"}:
        left, right = _number_text(left), _number_text(right)
    return f"{left} is not distinct from {right}"


def _number_text(value: str) -> str:
    # A NaN has a sign, and its text shows it.
    return f"case when isnan({value}) then 'nan' else {value}::varchar end"


_HASHED_AS = {
    "boolean": "boolean",
    "byte": "bigint",
    "short": "bigint",
    "integer": "bigint",
    "long": "bigint",
    "string": "varchar",
    "binary": "blob",
    "date": "date",
    "timestamp": "timestamptz",
}


def _hash(values: Sequence[str], schema: TableSchema, names: Sequence[str]) -> str:
    """The hash of a key. What is equal by `_condition` has one hash, whatever file it is in."""
    parts = []
    for value, name in zip(values, names, strict=True):
        kind = schema.schema[name].type
        if kind.name in {"float", "double"}:
            parts.append(_number_text(value))
        else:
            parts.append(f"{value}::{_HASHED_AS.get(kind.name, str(kind))}")
    return f"hash({', '.join(parts)})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
