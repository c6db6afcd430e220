"""Tables with partition columns.

Data files do not contain these columns; the add action of each file has their values. So a key with
partition columns is looked up only in the files of its partition, by its other columns; a key
without them is looked up in all files. Rows are written partition by partition, without these
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta import statistics as bounds
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model import keys as codes

Add = Mapping[str, Any]


NULL_TEXTS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta reads as NULL in a partition column, in the log and in a folder name."""


class NullText(ValueError):
    """A text in a partition column that Delta would read as NULL."""

    def __init__(self, column: str, value: str) -> None:
        super().__init__(column)
        self.column, self.value = column, value


@dataclass(frozen=True, slots=True)
class KeysInPartition:
    """The keys with one value of the key's partition columns, and the files with this value.

    indexes: of the files among all files; keys: without the partition columns; code: int64, the row
    numbers of these keys among all keys.
    """

    indexes: np.ndarray
    keys: pa.Table
    code: np.ndarray


def key_partitions(schema: TableSchema, keys: pa.Table) -> list[str]:
    """The partition columns that are key columns."""
    return [name for name in schema.partitions if name in keys.column_names]


def keys_by_partition(
    files: Sequence[Add], schema: TableSchema, keys: pa.Table
) -> Iterator[KeysInPartition]:
    """Group the files that may contain one of the (distinct) keys by the partition columns of the
    key.

    Every key is in at most one group, so searching all groups takes as long as one search.
    """
    names = key_partitions(schema, keys)
    rest = keys.select([name for name in keys.column_names if name not in names])
    by_value = _by_value(keys.select(names))
    indexes: dict[tuple[Any, ...], list[int]] = {}
    for index, add in enumerate(files):
        within = schema_of_file(add, schema)
        indexes.setdefault(
            tuple(within.missing_column(name, 1)[0].as_py() for name in names), []
        ).append(index)
    for value, own in indexes.items():
        code = by_value.get(value)
        if code is not None:
            yield KeysInPartition(np.asarray(own), rest.take(pa.array(code)), code)


def schema_of_file(add: Add, schema: TableSchema) -> TableSchema:
    """The schema of a table for one of its files, with the partition values of the file."""
    if not schema.partitions:
        return schema
    values = add.get("partitionValues") or {}
    of_file = tuple(values.get(schema.physical_of(name)) or None for name in schema.partitions)
    return replace(schema, values=of_file)


def candidates(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> list[Add]:
    """The files that can contain one of the keys, by their partition values and statistics."""
    return [files[index] for index in candidate_indexes(files, schema, keys)]


def candidate_indexes(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> list[int]:
    """As `candidates`, as indexes of the files, ascending."""
    if not key_partitions(schema, keys):
        return bounds.candidate_indexes(files, schema, keys)
    chosen: set[int] = set()
    for part in keys_by_partition(files, schema, keys):
        own = part.indexes
        if part.keys.num_columns:
            in_part = [files[index] for index in own.tolist()]
            own = own[bounds.candidate_indexes(in_part, schema, part.keys)]
        chosen.update(own.tolist())
    return sorted(chosen)


def split(rows: pa.Table, schema: TableSchema) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Split rows by partition. Yields the partition values as in the log, and the rows without the
    partition columns.

    rows: the columns of the table, which further columns may follow. Raises NullText, and
    ValueError for a date outside the range of Python's `date`.
    """
    if not schema.partitions:
        yield {}, rows
        return
    names = list(schema.partitions)
    check_texts(rows, names)
    coded = codes.encode(rows.select(names))
    stored = rows.drop_columns(names)
    found: list[list[pa.RecordBatch]] = [[] for _ in coded.first]
    begin = 0
    for batch in stored.to_batches():  # by chunks: a whole column may not fit into one array
        code = coded.code[begin : begin + batch.num_rows]
        begin += batch.num_rows
        for number, indexes in _runs(code):
            found[number].append(batch.take(pa.array(indexes)))
    for first, batches in zip(coded.first.tolist(), found, strict=True):
        values = {schema.physical_of(name): _as_text(rows[name][first]) for name in names}
        yield values, pa.Table.from_batches(batches, stored.schema)


def check_texts(rows: pa.Table, names: Sequence[str]) -> None:
    """Raise NullText if one of these partition columns contains a text that Delta would read as
    NULL."""
    for name in names:
        if pa.types.is_string(rows[name].type):
            lost = rows[name].filter(pc.is_in(rows[name], pa.array(NULL_TEXTS)))
            if len(lost):
                raise NullText(name, lost[0].as_py())


def _runs(code: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each code that occurs, with its row numbers in ascending order."""
    order = codes.in_order(code)
    ends = np.flatnonzero(np.diff(code[order], append=-1)) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=False):
        yield int(code[order[begin]]), order[begin:end]


def _by_value(columns: pa.Table) -> dict[tuple[Any, ...], np.ndarray]:
    """The row numbers of each distinct row."""
    coded = codes.encode(columns)
    held = columns.take(pa.array(coded.first))
    values = list(zip(*(column.to_pylist() for column in held.columns), strict=True))
    return {values[number]: indexes for number, indexes in _runs(coded.code)}


def _as_text(value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    if pa.types.is_decimal(value.type):
        return format(value.as_py(), "f")  # Arrow would write 0E-18
    if pa.types.is_date(value.type):
        return str(value.as_py().isoformat())
    return str(value.cast(pa.string()).as_py())
