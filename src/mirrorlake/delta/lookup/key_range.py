"""Finds the keys of a table in a range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta import deletion_vectors, statistics
from mirrorlake.delta.lookup.key_lookup import live_rows, path_of
from mirrorlake.delta.lookup.row_cache import SMALL
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.keys import KeyRange


def overlapping(
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    key: Sequence[str],
    keys: KeyRange,
) -> list[Mapping[str, Any]]:
    """The files that can contain a key of the range, by the bounds of the first key column."""
    if key[0] in schema.partitions:
        return list(files)
    column = arrow_schema(schema.schema).field(key[0])
    ends = [
        None if bound is None else bound[key[0]].cast(column.type).combine_chunks()
        for bound in (keys.low, keys.high)
    ]
    return statistics.overlapping(files, schema.physical_of(key[0]), *ends)


def keys_between(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    key: Sequence[str],
    keys: KeyRange,
) -> pa.Table:
    """The keys in the range of all live rows in these files."""
    names = list(key)
    kinds = arrow_schema(schema.schema)
    found = [pa.schema([kinds.field(name) for name in names]).empty_table()]
    for add in files:
        rows = _keys(table, add, schema, names).cast(found[0].schema)
        found.append(rows.filter(pa.array(keys.contains(rows))))
    return pa.concat_tables(found)


def _keys(
    table: Path, add: Mapping[str, Any], schema: TableSchema, names: Sequence[str]
) -> pa.Table:
    """The keys of the live rows of a file."""
    path, physical = path_of(table, add), [schema.physical_of(name) for name in names]
    if path.stat().st_size < SMALL or any(name in schema.partitions for name in names):
        return live_rows(table, add, schema).select(list(names))
    with pq.ParquetFile(
        path, coerce_int96_timestamp_unit="us", page_checksum_verification=True
    ) as file:
        if not set(physical) <= set(file.schema_arrow.names):
            return live_rows(table, add, schema).select(list(names))
        rows = file.read(physical).select(physical).rename_columns(list(names))
    if vector := add.get("deletionVector"):
        live = np.ones(rows.num_rows, bool)
        live[deletion_vectors.read(table, vector)] = False
        rows = rows.filter(pa.array(live))
    return rows
