"""The hash of a key, which does not depend on the physical type in a file.

Equal keys have equal hashes (LZ-256): NULL is a value, -0.0 differs from 0.0, all NaN are equal.
Integer keys, the most frequent ones, are hashed here, column by column; other keys are hashed by
DuckDB, whose hash function may change with each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup import key_join, page_checksums
from mirrorlake.delta.quoting import quoted
from mirrorlake.delta.schema import TableSchema

_WHOLE = frozenset({"byte", "short", "integer", "long"})

_GOLDEN, _FIRST, _SECOND = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Constants of splitmix64 (Steele, Lea and Flood, 2014), a bijection of 64-bit integers."""

_NULL = np.uint64(0x6D6972726F726C6B)
"""Mixed in for a NULL. An integer may have the same hash, so found rows are compared."""

_HASHED_AS = {
    **dict.fromkeys(_WHOLE, "bigint"),
    "string": "varchar",
    "binary": "blob",
    "timestamp": "timestamptz",
}
"""Types of DuckDB whose names are not those of Delta."""


def hash_keys(keys: pa.Table, schema: TableSchema) -> np.ndarray:
    """The hash of each key, uint64; equal to that of `hash_file` for a row with the key."""
    if _is_whole(schema, keys.column_names):
        return _mixed(keys)
    with key_join.connected(1) as connection:
        connection.register("wanted", key_join.numbered_keys(keys))
        names = [f"k{i}" for i in range(keys.num_columns)]
        hashed = _hash(names, schema, keys.column_names)
        found = connection.sql(
            f"select {key_join.CODE}, {hashed} as hash from wanted"  # noqa: S608  (numbered names)
        ).to_arrow_table()
    return _in_order(found["hash"], found[key_join.CODE])


def hash_file(path: str, schema: TableSchema, key: Sequence[str]) -> np.ndarray | None:
    """The hash of the key of each row of a file, uint64; None if the file lacks a key column."""
    physical = [schema.physical_of(name) for name in key]
    whole = _is_whole(schema, key)
    page_checksums.verify(Path(path), physical)
    with key_join.connected(1) as connection:
        source, present = key_join.file_rows(connection, [path], schema)
        if not present.issuperset(physical):
            return None
        values = [f"t.{quoted(name)}" for name in physical]
        if whole:
            columns = ", ".join(f"{value}::bigint as k{i}" for i, value in enumerate(values))
        else:
            columns = f"{_hash(values, schema, key)} as hash"
        query = f"select {columns}, {key_join.ROW} from {source} t"  # noqa: S608  (names are quoted)
        found = connection.sql(query).to_arrow_table()
    if whole:
        own = _mixed(found.select([f"k{i}" for i in range(len(key))]))
        return _in_order(pa.chunked_array([own]), found[key_join.ROW])
    return _in_order(found["hash"], found[key_join.ROW])


def name(schema: TableSchema, key: Sequence[str]) -> str:
    """The name of the hash function for such keys, with its version."""
    if _is_whole(schema, key):
        return "splitmix64"
    kinds = {schema.schema[column].type.name for column in key}
    # Earlier releases hashed numbers in the type of the file.
    cast = ", cast" if kinds & {"float", "double"} else ""
    return f"duckdb {duckdb.__version__}{cast}"


def _is_whole(schema: TableSchema, key: Sequence[str]) -> bool:
    return all(schema.schema[column].type.name in _WHOLE for column in key)


def _in_order(hashes: pa.ChunkedArray, index: pa.ChunkedArray) -> np.ndarray:
    result = np.zeros(len(hashes), np.uint64)
    result[index.to_numpy()] = hashes.to_numpy()
    return result


def _mixed(keys: pa.Table) -> np.ndarray:
    """The hash of each row of integer columns of any width."""
    return reduce(_joined, keys.columns, np.zeros(keys.num_rows, np.uint64))


def _joined(hashes: np.ndarray, column: pa.ChunkedArray) -> np.ndarray:
    """Combine the hashes of rows with one more column."""
    wide = column.cast(pa.int64())
    numbers = pc.fill_null(wide, 0).to_numpy().view(np.uint64)
    mixed = _mix(hashes ^ _mix(numbers))
    if wide.null_count:
        mixed[pc.is_null(wide).to_numpy()] ^= _NULL
    return mixed


def _mix(numbers: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = numbers + _GOLDEN
    mixed ^= mixed >> np.uint64(30)
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _hash(values: Sequence[str], schema: TableSchema, names: Sequence[str]) -> str:
    """The SQL expression of DuckDB's hash of a key; values: the SQL expressions of its columns."""
    parts = []
    for value, column in zip(values, names, strict=True):
        kind = schema.schema[column].type
        if kind.name in {"float", "double"}:
            parts.append(key_join.number_text(f"{value}::{kind.name}"))
        else:
            parts.append(f"{value}::{_HASHED_AS.get(kind.name, str(kind))}")
    return f"hash({', '.join(parts)})"
