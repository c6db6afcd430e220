"""Views of Delta tables in DuckDB, which read the data files themselves.

DuckDB reads only the columns that a query needs, and skips row groups by their statistics. Data
files contain the columns under their physical names, and possibly in the types that they had then;
not the partition columns, nor columns that were added later; and rows that a deletion vector has
removed. DuckDB does not verify page checksums.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from mirrorlake.delta import deletion_vectors, partitions
from mirrorlake.delta.log.table_log import BrokenLog, TableLog
from mirrorlake.delta.lookup.key_lookup import live_rows, path_of
from mirrorlake.delta.quoting import parquet_files, quoted
from mirrorlake.delta.schema import TableSchema, parse
from mirrorlake.model.arrow import arrow_schema

_PATH, _NUMBER = "__mirrorlake_path", "file_row_number"
"""Columns that DuckDB adds to the rows of files; the second has a fixed name."""

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class UnverifiedFiles:
    """The data files that a view reads without verifying them. columns: their names there."""

    paths: Sequence[Path]
    columns: Sequence[str]


def create_view(
    connection: duckdb.DuckDBPyConnection, name: str, path: Path, version: int | None = None
) -> UnverifiedFiles:
    """Create a view of the rows of a table; returns what DuckDB reads for it.

    name: of the view, quoted. version: None for the newest. Raises BrokenLog, UnknownColumnType,
    BrokenVector, OSError, and duckdb.Error for a data file that is missing or damaged.
    """
    log = TableLog(path)
    snapshot = log.snapshot() if version is None else log.snapshot_at(version)
    if not snapshot.exists:
        raise BrokenLog("its log has no version")
    schema, files = parse(snapshot.metadata), list(snapshot.files.values())
    query = _select(connection, path, schema, files)
    connection.execute(f"create view {name} as {query}")
    if _has_number(schema):
        return UnverifiedFiles((), ())
    return UnverifiedFiles([path_of(path, add) for add in files], schema.physical)


def _select(
    connection: duckdb.DuckDBPyConnection,
    table: Path,
    schema: TableSchema,
    files: Sequence[Mapping[str, Any]],
) -> str:
    empty = arrow_schema(schema.schema).empty_table()
    if not files:
        return f"select * from {_registered(connection, empty)}"  # noqa: S608
    if _has_number(schema):
        # DuckDB could not add its own column of this name. Arrow verifies what it reads.
        rows = pa.concat_tables([empty, *(live_rows(table, add, schema) for add in files)])
        return f"select * from {_registered(connection, rows)}"  # noqa: S608
    paths = [str(path_of(table, add)) for add in files]
    source = f"{parquet_files(paths, _PATH, _NUMBER)} t"
    present = frozenset(connection.sql(f"from {source}").columns)
    parts = [f"from {source}"]
    if schema.partitions:
        values = _registered(connection, _partition_values(schema, files, paths))
        parts.append(f"join {values} p on p.{_PATH} = t.{_PATH}")
    if any(add.get("deletionVector") for add in files):
        deleted = _registered(connection, _deleted(table, files, paths))
        parts.append(
            f"anti join {deleted} d on d.{_PATH} = t.{_PATH} and d.{_NUMBER} = t.{_NUMBER}"
        )
    types = connection.from_arrow(empty).types
    columns = [
        f"{_value(schema, name, present)}::{kind} as {quoted(name)}"
        for name, kind in zip(schema.schema.names, types, strict=True)
    ]
    return f"select {', '.join(columns)} {' '.join(parts)}"


def _has_number(schema: TableSchema) -> bool:
    return _NUMBER in {name.casefold() for name in schema.physical}


def _value(schema: TableSchema, name: str, present: frozenset[str]) -> str:
    """The SQL of the value of a column, which may have another type in the files."""
    if name in schema.partitions:
        return f"p.{quoted(name)}"
    stored = schema.physical_of(name)
    return f"t.{quoted(stored)}" if stored in present else "null"


def _registered(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> str:
    """The name under which a connection reads these rows."""
    name = f"__mirrorlake_rows_{next(_numbers)}"
    connection.register(name, rows)
    return name


def _partition_values(
    schema: TableSchema, files: Sequence[Mapping[str, Any]], paths: Sequence[str]
) -> pa.Table:
    """The partition values of files, by path."""
    schemas = [partitions.schema_of_file(add, schema) for add in files]
    columns = [
        pa.concat_arrays([within.missing_column(name, 1) for within in schemas])
        for name in schema.partitions
    ]
    return pa.table([pa.array(paths), *columns], names=[_PATH, *schema.partitions])


def _deleted(table: Path, files: Sequence[Mapping[str, Any]], paths: Sequence[str]) -> pa.Table:
    """The rows of files that deletion vectors have removed: path and row number."""
    vectors = {
        path: deletion_vectors.read(table, add["deletionVector"])
        for path, add in zip(paths, files, strict=True)
        if add.get("deletionVector")
    }
    number = np.repeat(np.arange(len(vectors)), [len(rows) for rows in vectors.values()])
    path = pa.DictionaryArray.from_arrays(pa.array(number, pa.int32()), pa.array(list(vectors)))
    return pa.table({_PATH: path, _NUMBER: np.concatenate(list(vectors.values()))})
