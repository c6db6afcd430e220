"""The hash of a key, the same in whatever file and type it is stored.

What is equal as a key has one hash (LZ-256): NULL is a value, -0.0 is not 0.0, every NaN is the
same. Keys of whole numbers, which most keys are, are mixed here, a column at a time; others are
hashed by DuckDB, whose hash is its own in each version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.duckdb_extension import quoted
from mirrorlake.delta.lookup import key_join
from mirrorlake.delta.schema import TableSchema

_WHOLE = frozenset({"byte", "short", "integer", "long"})

_GOLDEN, _FIRST, _SECOND = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
"""Of splitmix64 (Steele, Lea and Flood, 2014): no two numbers have one hash."""

_NULL = np.uint64(0x6D6972726F726C6B)
"""Mixed in for a NULL; that a number has the same hash costs a look."""

_HASHED_AS = {
    **dict.fromkeys(_WHOLE, "bigint"),
    "string": "varchar",
    "binary": "blob",
    "timestamp": "timestamptz",
}
"""Types of DuckDB whose names are not those of Delta."""


def of_keys(keys: pa.Table, schema: TableSchema) -> np.ndarray:
    """The hash of each key, uint64, as `of_file` gives it for a row that has it."""
    if _is_whole(schema, keys.column_names):
        return _mixed(keys)
    with key_join.connected(1) as connection:
        connection.register("wanted", key_join.coded(keys))
        names = [f"k{i}" for i in range(keys.num_columns)]
        hashed = _hash(names, schema, keys.column_names)
        found = connection.execute(
            f"select {key_join.CODE}, {hashed} as hash from wanted"  # noqa: S608  (numbered names)
        ).to_arrow_table()
    return _in_order(found["hash"], found[key_join.CODE])


def of_file(path: str, schema: TableSchema, key: Sequence[str]) -> np.ndarray | None:
    """The hash of the key of each row of a file, uint64; None when it lacks a key column."""
    physical = [schema.physical_of(name) for name in key]
    whole = _is_whole(schema, key)
    with key_join.connected(1) as connection:
        scan, present = key_join.scanned(connection, [path], schema, physical)
        if not present.issuperset(physical):
            return None
        values = [f"t.{quoted(name)}" for name in physical]
        if whole:
            wanted = ", ".join(f"{value}::bigint as k{i}" for i, value in enumerate(values))
        else:
            wanted = f"{_hash(values, schema, key)} as hash"
        query = f"select {wanted}, {key_join.ROW} from {scan} t"  # noqa: S608  (names are quoted)
        found = connection.execute(query, {"paths": [path]}).to_arrow_table()
    if whole:
        own = _mixed(found.select([f"k{i}" for i in range(len(key))]))
        return _in_order(pa.chunked_array([own]), found[key_join.ROW])
    return _in_order(found["hash"], found[key_join.ROW])


def name(schema: TableSchema, key: Sequence[str]) -> str:
    """What the hashes of such keys depend on, beside the values."""
    return "splitmix64" if _is_whole(schema, key) else f"duckdb {duckdb.__version__}"


def _is_whole(schema: TableSchema, key: Sequence[str]) -> bool:
    return all(schema.schema[column].type.name in _WHOLE for column in key)


def _in_order(hashes: pa.ChunkedArray, index: pa.ChunkedArray) -> np.ndarray:
    result = np.zeros(len(hashes), np.uint64)
    result[index.to_numpy()] = hashes.to_numpy()
    return result


def _mixed(keys: pa.Table) -> np.ndarray:
    """The hash of each row of whole numbers of any width."""
    return reduce(_joined, keys.columns, np.zeros(keys.num_rows, np.uint64))


def _joined(hashes: np.ndarray, column: pa.ChunkedArray) -> np.ndarray:
    """The hashes of rows with one more column."""
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
    """The hash by DuckDB of a key of these SQL values."""
    parts = []
    for value, column in zip(values, names, strict=True):
        kind = schema.schema[column].type
        if kind.name in {"float", "double"}:
            parts.append(key_join.number_text(value))
        else:
            parts.append(f"{value}::{_HASHED_AS.get(kind.name, str(kind))}")
    return f"hash({', '.join(parts)})"
