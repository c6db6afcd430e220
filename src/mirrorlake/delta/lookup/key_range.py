"""Finds the keys of a table in a range, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta import deletion_vectors, partitions, statistics
from mirrorlake.delta.lookup.key_lookup import live_rows, path_of
from mirrorlake.delta.lookup.row_cache import SMALL, blocks_of_groups
from mirrorlake.delta.lookup.whole_files import opened
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.keys import KeyRange


def overlapping(
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    key: Sequence[str],
    keys: KeyRange,
) -> list[Mapping[str, Any]]:
    """The files that can contain a key of the range, by the bounds of the first key column and of
    the one that limits the range."""
    found = _between(files, schema, key[0], keys.low, keys.high)
    if keys.limited is None:
        return found
    return _between(found, schema, keys.limited, keys.least, keys.below)


def _between(
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    name: str,
    low: pa.Table | None,
    high: pa.Table | None,
) -> list[Mapping[str, Any]]:
    if name in schema.partitions:
        return list(files)
    column = arrow_schema(schema.schema).field(name)
    ends = [
        None if bound is None else bound[name].cast(column.type).combine_chunks()
        for bound in (low, high)
    ]
    return statistics.overlapping(files, schema.physical_of(name), *ends)


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
    live = _live(table, add, rows.num_rows)
    return rows if live is None else rows.filter(pa.array(live))


def _live(table: Path, add: Mapping[str, Any], count: int) -> np.ndarray | None:
    """Which of the `count` rows of a file are not deleted; None for all."""
    if not (vector := add.get("deletionVector")):
        return None
    live = np.ones(count, bool)
    live[deletion_vectors.read(table, vector)] = False
    return live


@dataclass(frozen=True, slots=True)
class _Selected:
    """What is read of a file: the row groups of a large one, the rows of a small one."""

    add: Mapping[str, Any]
    groups: Sequence[int] = ()
    rows: pa.Table | None = None


def rows_between(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    key: Sequence[str],
    keys: KeyRange,
    most: int,
) -> Iterator[pa.Table] | None:
    """The live rows in these files with a key in the range, with all columns: at least one block,
    decoded when it is needed. Of a large file only the row groups are read that can contain one.
    None if that were more than `most` rows."""
    selected, read = [], 0
    for add in files:
        path = path_of(table, add)
        if path.stat().st_size < SMALL or key[0] in schema.partitions:
            rows = live_rows(table, add, schema)
            selected.append(_Selected(add, rows=rows))
            read += rows.num_rows
        else:
            with opened(str(path)) as file:
                groups = _groups_between(file, schema, key[0], keys)
                read += sum(file.metadata.row_group(group).num_rows for group in groups)
            selected.append(_Selected(add, groups))
        if read > most:
            return None
    return _blocks_between(table, selected, schema, keys)


def _blocks_between(
    table: Path, selected: Sequence[_Selected], schema: TableSchema, keys: KeyRange
) -> Iterator[pa.Table]:
    yield arrow_schema(schema.schema).empty_table()
    for part in selected:
        if part.rows is None:
            blocks = _live_blocks(table, part.add, part.groups, schema)
        else:
            blocks = iter([part.rows])
        for rows in blocks:
            yield _rows_where(keys.contains(rows), rows)


def _rows_where(which: np.ndarray, rows: pa.Table) -> pa.Table:
    """The rows for which it is true; without a copy if these stand together."""
    inside = np.flatnonzero(which)
    if len(inside) and inside[-1] - inside[0] + 1 == len(inside):
        return rows.slice(inside[0], len(inside))
    return rows.filter(pa.array(which))


def _groups_between(
    file: pq.ParquetFile, schema: TableSchema, column: str, keys: KeyRange
) -> list[int]:
    """The row groups in which a column can have a value of the range, by their bounds."""
    physical, kind = schema.physical_of(column), arrow_schema(schema.schema).field(column).type
    every, stored = range(file.num_row_groups), file.schema_arrow
    leaves = [i for i in range(len(file.schema)) if file.schema.column(i).path == physical]
    # A leaf of a nested column may have the same path.
    if len(leaves) != 1 or physical not in stored.names or stored.field(physical).type != kind:
        return list(every)
    chunks = (file.metadata.row_group(group).column(leaves[0]) for group in every)
    return [
        group
        for group, chunk in zip(every, chunks, strict=True)
        if _may_contain(chunk.statistics, kind, column, keys)
    ]


def _may_contain(
    bounds: pq.Statistics | None, kind: pa.DataType, column: str, keys: KeyRange
) -> bool:
    if bounds is None or not bounds.has_min_max or not bounds.has_null_count:
        return True
    if bounds.null_count and keys.high is None:
        return True  # NULL is greater than every value
    try:
        ends = [pa.array([end], kind) for end in (bounds.min, bounds.max)]
    except (pa.ArrowException, ValueError, OverflowError):  # beyond what Python's types can have
        return True
    least, most = (pa.table([end], [column]) for end in ends)
    low = None if keys.low is None else keys.low.select([column])
    high = None if keys.high is None else keys.high.select([column])
    # With the other columns of the key, a key may be greater than one with the same first column.
    is_before = low is not None and not KeyRange(low, is_closed=True).contains(most)[0]
    return not is_before and bool(KeyRange(high=high).contains(least)[0])


def _live_blocks(
    table: Path, add: Mapping[str, Any], groups: Sequence[int], schema: TableSchema
) -> Iterator[pa.Table]:
    """The live rows of some row groups of a file."""
    with opened(str(path_of(table, add))) as file:
        live = _live_of_groups(file, groups, table, add)
        begin = 0
        for rows in blocks_of_groups(file, groups, partitions.schema_of_file(add, schema)):
            end = begin + rows.num_rows
            yield rows if live is None else rows.filter(pa.array(live[begin:end]))
            begin = end


def _live_of_groups(
    file: pq.ParquetFile, groups: Sequence[int], table: Path, add: Mapping[str, Any]
) -> np.ndarray | None:
    """As `_live`, of the rows of these row groups."""
    live = _live(table, add, file.metadata.num_rows)
    if live is None:
        return None
    counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    begins = np.concatenate(([0], np.cumsum(counts)))
    parts = [live[begins[group] : begins[group + 1]] for group in groups]
    return np.concatenate([np.zeros(0, bool), *parts])
