"""Tables with partition columns: the files of each partition are those of a table without them.

Their values stand in the log, for each file once. So keys are sought partition by partition, by
what is left of them, and rows are written partition by partition, without these columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.lake import bounds
from mirrorlake.lake.schema import TableSchema
from mirrorlake.model import keys as codes

Add = Mapping[str, Any]


class EmptyText(ValueError):
    """An empty text in a partition column, by whose name this goes: to Delta it is NULL."""


@dataclass(frozen=True, slots=True)
class Part:
    """The files of one partition, and the keys that they may hold.

    places: of the files, among all; schema: with the values of the partition; keys: by those of
    their columns that the files have; code: int64, which of all keys these are.
    """

    places: np.ndarray
    schema: TableSchema
    keys: pa.Table
    code: np.ndarray


def parts(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> Iterator[Part]:
    """The partitions of some files that may hold one of some keys (distinct)."""
    found: dict[tuple[str | None, ...], list[int]] = {}
    for place, add in enumerate(files):
        found.setdefault(values_of(add, schema), []).append(place)
    rest = [name for name in keys.column_names if name not in schema.partitions]
    for values, places in found.items():
        within = replace(schema, values=values)
        code = _within(keys, within)
        if len(code):
            some = keys if len(code) == keys.num_rows else keys.take(pa.array(code))
            yield Part(np.asarray(places), within, some.select(rest), code)


def values_of(add: Add, schema: TableSchema) -> tuple[str | None, ...]:
    """The values of the partition that a file belongs to, as the log writes them."""
    values = add.get("partitionValues") or {}
    return tuple(values.get(schema.physical_of(name)) or None for name in schema.partitions)


def of_file(add: Add, schema: TableSchema) -> TableSchema:
    """The schema of a table in one of its files."""
    return replace(schema, values=values_of(add, schema)) if schema.partitions else schema


def candidates(files: Sequence[Add], schema: TableSchema, keys: pa.Table) -> list[Add]:
    """The files that can hold one of the keys, by their partitions and their bounds."""
    if not schema.partitions:
        return bounds.candidates(files, schema, keys)
    chosen: set[int] = set()
    for part in parts(files, schema, keys):
        own = {id(files[place]): int(place) for place in part.places}
        some: Sequence[Add] = [files[place] for place in part.places]
        if part.keys.num_columns:
            some = bounds.candidates(some, part.schema, part.keys)
        chosen.update(own[id(add)] for add in some)
    return [files[place] for place in sorted(chosen)]


def split(rows: pa.Table, schema: TableSchema) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Rows by partition, without its columns, and the values of each as the log writes them.

    rows: in the table's columns, with further ones behind them. Raises EmptyText.
    """
    if not schema.partitions:
        yield {}, rows
        return
    if not rows.num_rows:
        return
    names = list(schema.partitions)
    for name in names:
        if pa.types.is_string(rows[name].type) and pc.any(pc.equal(rows[name], "")).as_py():
            raise EmptyText(name)
    code = codes.encode(rows.select(names)).code
    order = codes.in_order(code)
    ends = np.flatnonzero(np.diff(code[order], append=-1)) + 1
    stored = rows.drop_columns(names)
    for begin, end in zip([0, *ends[:-1]], ends, strict=True):
        first = int(order[begin])
        values = {schema.physical_of(name): _as_text(rows[name][first]) for name in names}
        yield values, stored.take(pa.array(order[begin:end]))


def _within(keys: pa.Table, schema: TableSchema) -> np.ndarray:
    """Which keys can be in a partition, by number."""
    there = np.ones(keys.num_rows, bool)
    for name in schema.partitions:
        if name in keys.column_names:
            value = schema.absent(name, 1).cast(keys[name].type)[0]
            same = pc.equal(keys[name], value) if value.is_valid else keys[name].is_null()
            there &= same.fill_null(False).to_numpy()
    return np.flatnonzero(there)


def _as_text(value: pa.Scalar) -> str | None:
    if pa.types.is_decimal(value.type) and value.is_valid:
        return format(value.as_py(), "f")  # Arrow would write 0E-18
    text: str | None = value.cast(pa.string()).as_py()
    return text
