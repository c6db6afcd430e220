"""Joins keys with the rows of data files, with DuckDB.

NULL equals NULL. Floating point is compared as text, so that -0.0 differs from 0.0 and all NaN are
equal (LZ-256, LZ-257).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.lookup.row_cache import stored_rows
from mirrorlake.delta.quoting import parquet_files, quoted
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.keys import same

CODE, FILE, ROW = "__mirrorlake_code", "__mirrorlake_file", "__mirrorlake_row"
"""Columns of found rows: the row number of the key, the index of the file, and the row number in
it. DuckDB would give them other names beside columns of the table that have the same."""

_PATH = "__mirrorlake_path"
_NUMBER = "file_row_number"


def matches(paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int) -> pa.Table:
    """The positions of the rows with these keys: CODE, FILE (an index of `paths`) and ROW.

    Reads only the key columns.
    """
    return _join(paths, schema, keys, threads, whole=False)


def rows(paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int) -> pa.Table:
    """The rows with these keys: the columns of the table that the files contain, and CODE, FILE,
    ROW."""
    return _join(paths, schema, keys, threads, whole=True)


def equal(found: pa.Table, code: np.ndarray, keys: pa.Table) -> np.ndarray:
    """Whether each found row has its key; bool. found: the key columns of the rows; code: the row
    number of the key of each."""
    sought, result = keys.take(pa.array(code)), np.ones(len(code), bool)
    for left, right in zip(found.columns, sought.columns, strict=True):
        result &= same(contiguous(left), contiguous(right))
    return result


_databases: dict[int, duckdb.DuckDBPyConnection] = {}


@contextmanager
def connected(threads: int) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to the empty in-memory database of this process with `threads` threads.

    The database is reused: creating one takes longer than the rest of a small batch.
    """
    database = _databases.get(threads)
    if database is None:
        made = duckdb.connect(config={"threads": threads})
        made.execute("set global TimeZone = 'UTC'")
        # DuckDB would cache parts of every file, up to most of the machine's memory, without faster
        # reads: `row_cache` and the page cache of the system have what is read repeatedly.
        made.execute("set global enable_external_file_cache = false")
        database = _databases.setdefault(threads, made)
    connection = database.cursor()
    try:
        yield connection
    finally:
        connection.close()


def _join(
    paths: Sequence[str], schema: TableSchema, keys: pa.Table, threads: int, *, whole: bool
) -> pa.Table:
    paths = list(paths)
    with connected(threads) as connection:
        connection.register("wanted", numbered_keys(keys))
        key = [schema.physical_of(name) for name in keys.column_names]
        unread = _without_values(paths) - set(key) if whole else set()
        with page_checksums.verifying(paths, threads, None if whole else key, unread):
            source, present = file_rows(connection, paths, schema)
            query = _join_query(schema, keys, present - unread, source, whole=whole)
            if threads > 1:
                # The threads that read would wait for the one that converts the result. With one
                # thread, the table would only be another copy.
                connection.execute(f"create temp table found as {query}", {"paths": paths})
                return connection.sql("from found").to_arrow_table()
            return connection.sql(query, params={"paths": paths}).to_arrow_table()


def numbered_keys(keys: pa.Table) -> pa.Table:
    """The keys with columns named k0, k1, ..., and their row numbers as CODE."""
    numbered_keys = keys.rename_columns([f"k{i}" for i in range(keys.num_columns)])
    return numbered_keys.append_column(CODE, pa.array(np.arange(keys.num_rows), pa.int64()))


def file_rows(
    connection: duckdb.DuckDBPyConnection, paths: list[str], schema: TableSchema
) -> tuple[str, set[str]]:
    """The SQL source of the rows of the files, with row number and path, and its columns. The page
    checksums of what is read from it are not verified."""
    if all(name.casefold() != _NUMBER for name in schema.physical):
        files = parquet_files(paths, _PATH, _NUMBER)
        source = f"(select * exclude ({_NUMBER}), {_NUMBER} as {ROW} from {files})"  # noqa: S608
        return source, set(connection.sql(f"from {source}").columns)
    # A column has the fixed name of DuckDB's row number, so Arrow reads the files instead.
    stored = _stored(paths, schema)
    connection.register("stored", stored)
    return "stored", set(stored.column_names)


def _without_values(paths: Sequence[str]) -> set[str]:
    """The columns that have no value in any of these files, by their statistics. Not the members of
    a struct or list, whose pages are read with the whole column, so that they have to be intact."""
    found: list[set[str]] = []
    for path in paths:
        metadata = pq.read_metadata(path)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
        valued = {chunk.path_in_schema for chunk in chunks if not _is_null(chunk)}
        columns = {chunk.path_in_schema for chunk in chunks} - valued
        found.append({name for name in columns if "." not in name})
    return set.intersection(*found) if found else set()


def _is_null(chunk: pq.ColumnChunkMetaData) -> bool:
    facts = chunk.statistics
    return bool(facts and facts.has_null_count and facts.null_count == chunk.num_values)


def _stored(paths: list[str], schema: TableSchema) -> pa.Table:
    tables = []
    for path in paths:
        found, rows = stored_rows(path, schema)
        found = found.append_column(ROW, pa.array(np.arange(rows)))
        tables.append(found.append_column(_PATH, pa.repeat(path, rows)))
    return pa.concat_tables(tables, promote_options="default")


def _join_query(
    schema: TableSchema, keys: pa.Table, present: Collection[str], source: str, *, whole: bool
) -> str:
    """The SQL join of the keys with the rows of the files, with the parameter `paths`."""
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
        f"select {', '.join(columns + at)} from {source} t "  # noqa: S608  (names are quoted)
        f"join wanted on {' and '.join(conditions)}"
    )


def _condition(left: str, index: int, schema: TableSchema, name: str) -> str:
    """The SQL condition that a stored value equals key column number `index`."""
    right = f"wanted.k{index}"
    kind = schema.schema[name].type.name
    if kind in {"float", "double"}:
        # A file may have a narrower type, with other texts for the same numbers.
        left, right = number_text(f"{left}::{kind}"), number_text(right)
    return f"{left} is not distinct from {right}"


def number_text(value: str) -> str:
    # The text of a NaN contains its sign.
    return f"case when isnan({value}) then 'nan' else {value}::varchar end"
