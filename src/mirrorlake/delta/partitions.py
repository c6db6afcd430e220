"""Tables with partition columns: the files of each partition are those of a table without them.

Their values stand in the log, for each file once. So a key that has such columns is sought only in
the files of its own partition, by what is left of it, any other in all files at once; and rows are
written partition by partition, without these columns.
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
"""What is NULL to Delta in a partition column: in the log, and in the name of a folder."""


class NullText(ValueError):
    """A text in a partition column that Delta does not keep."""

    def __init__(self, column: str, value: str) -> None:
        super().__init__(column)
        self.column, self.value = column, value


@dataclass(frozen=True, slots=True)
class KeysInPartition:
    """Files of which the key's own partition columns have one value, and the keys of that value.

    places: of the files, among all; keys: by those of their columns that the files have; code:
    int64, which of all keys these are.
    """

    indexes: np.ndarray
    keys: pa.Table
    code: np.ndarray


def in_key(schema: TableSchema, keys: pa.Table) -> list[str]:
    """The partition columns that belong to the key."""
    return [name for name in schema.partitions if name in keys.column_names]


def parts(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> Iterator[KeysInPartition]:
    """The files that may hold one of some keys (distinct), by what their partition has of the key.

    Every key belongs to one part, so that all parts together take as long as one would.
    """
    names = in_key(schema, keys)
    rest = keys.select([name for name in keys.column_names if name not in names])
    wanted = _by_value(keys.select(names))
    indexes: dict[tuple[Any, ...], list[int]] = {}
    for index, add in enumerate(files):
        within = of_file(add, schema)
        indexes.setdefault(tuple(within.absent(name, 1)[0].as_py() for name in names), []).append(
            index
        )
    for value, own in indexes.items():
        code = wanted.get(value)
        if code is not None:
            yield KeysInPartition(np.asarray(own), rest.take(pa.array(code)), code)


def of_file(add: Add, schema: TableSchema) -> TableSchema:
    """The schema of a table in one of its files."""
    if not schema.partitions:
        return schema
    values = add.get("partitionValues") or {}
    said = tuple(values.get(schema.physical_of(name)) or None for name in schema.partitions)
    return replace(schema, values=said)


def candidates(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> list[Add]:
    """The files that can hold one of the keys, by their partitions and their bounds."""
    return [files[index] for index in candidate_indexes(files, schema, keys)]


def candidate_indexes(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> list[int]:
    """As `candidates`: which of the files, ascending."""
    if not in_key(schema, keys):
        return bounds.candidate_indexes(files, schema, keys)
    chosen: set[int] = set()
    for part in parts(files, schema, keys):
        own = part.indexes
        if part.keys.num_columns:
            some = [files[index] for index in own.tolist()]
            own = own[bounds.candidate_indexes(some, schema, part.keys)]
        chosen.update(own.tolist())
    return sorted(chosen)


def split(rows: pa.Table, schema: TableSchema) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Rows by partition, without its columns, and the values of each as the log writes them.

    rows: in the table's columns, with further ones behind them. Raises NullText; ValueError for a
    day that Python's calendar does not know.
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
    for batch in stored.to_batches():  # chunk by chunk: all of a column may not fit into one
        code = coded.code[begin : begin + batch.num_rows]
        begin += batch.num_rows
        for number, indexes in _runs(code):
            found[number].append(batch.take(pa.array(indexes)))
    for first, batches in zip(coded.first.tolist(), found, strict=True):
        values = {schema.physical_of(name): _as_text(rows[name][first]) for name in names}
        yield values, pa.Table.from_batches(batches, stored.schema)


def check_texts(rows: pa.Table, names: Sequence[str]) -> None:
    """Refuse rows with texts in these partition columns that Delta would make NULL, whoever writes
    them. Raises NullText."""
    for name in names:
        if pa.types.is_string(rows[name].type):
            lost = rows[name].filter(pc.is_in(rows[name], pa.array(NULL_TEXTS)))
            if len(lost):
                raise NullText(name, lost[0].as_py())


def _runs(code: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each number that occurs, and its places in their order."""
    order = codes.in_order(code)
    ends = np.flatnonzero(np.diff(code[order], append=-1)) + 1
    for begin, end in zip([0, *ends[:-1]], ends, strict=False):
        yield int(code[order[begin]]), order[begin:end]


def _by_value(columns: pa.Table) -> dict[tuple[Any, ...], np.ndarray]:
    """The numbers of the rows by what they hold."""
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
