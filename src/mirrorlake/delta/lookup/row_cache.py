"""Small data files, which are read whole and kept in memory.

The newest rows of a table are in small files, in which every batch looks for its keys. Data files
never change, so their rows are kept up to a bound, and those that were used last stay.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import arrow_schema, contiguous, taken
from mirrorlake.model.equality import comparable

SMALL = 4 << 20
"""Bytes of a file below which it is read whole: finding the keys and their pages takes half as long
once, and ten times as long as another look into the rows in memory."""

CACHE_BYTES = 160 << 20
"""Bytes of rows of small files that a process keeps in memory."""

LARGEST = 16 << 20
"""Bytes of rows of a file that is kept: a small one can hold much that repeats."""

BLOCK = 1_024
"""Rows that are decoded before their size is looked at."""

MANY = 4
"""Keys for each row, from which on they are many."""


def stored_rows(path: str, schema: TableSchema) -> tuple[pa.Table, int]:
    """A file whole: those columns of the table that it has, under its own names, and its rows,
    which it has without any of them too."""
    found = _stored(path, schema, None)
    assert found is not None
    return found


def _stored(path: str, schema: TableSchema, most: int | None) -> tuple[pa.Table, int] | None:
    """As `stored_rows`; None when the rows take more than `most` bytes."""
    target = schema.file_schema()
    # Spark writes moments as INT96, in nanoseconds, which end in 2262.
    with pq.ParquetFile(
        path,
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,
        page_checksum_verification=True,
    ) as file:
        there, rows = set(file.schema_arrow.names), file.metadata.num_rows
        columns = [name for name in target.names if name in there]
        named = pa.schema([target.field(name) for name in columns])
        if most is None or not rows or not columns:
            return file.read(columns).select(columns).cast(named), rows
        if _least(schema, rows) > most:
            return None
        blocks, taken = [], 0
        for block in file.iter_batches(BLOCK, columns=columns, use_threads=False):
            # As it is kept: a dictionary, for example, takes much less than what it stands for.
            blocks.append(pa.Table.from_batches([block]).select(columns).cast(named))
            taken += blocks[-1].nbytes
            if taken > most:
                return None
        return pa.concat_tables(blocks).combine_chunks(), rows


def table_rows(path: Path, schema: TableSchema) -> pa.Table:
    """A file whole, gone rows included, with all columns of the table; NULL where it has none."""
    rows = held(path, schema) if path.stat().st_size < SMALL else None
    return _of_table(*stored_rows(str(path), schema), schema) if rows is None else rows


def held(path: Path, schema: TableSchema) -> pa.Table | None:
    """As `table_rows`, from memory if it was read before; None for a file whose rows take more than
    LARGEST, which is found out without reading more than that."""
    known = _known(path, schema)
    if known in _cache:
        return _cache.get(known)
    return _cache.put(known, _bounded(path, schema))


def _bounded(path: Path, schema: TableSchema) -> pa.Table | None:
    """The rows of a file in all columns of the table, if they take no more than LARGEST."""
    found = _stored(str(path), schema, LARGEST)
    rows = None if found is None else _of_table(*found, schema)
    return None if rows is None or rows.nbytes > LARGEST else rows


def _least(schema: TableSchema, rows: int) -> int:
    """What rows take in memory at least, also of columns that their file has not."""
    kinds = [field.type for field in arrow_schema(schema.schema)]
    return rows * sum(map(_least_bits, kinds)) // 8


def _least_bits(kind: pa.DataType) -> int:
    """Of one value: where nothing says more, those of the number that tells where it ends."""
    if pa.types.is_struct(kind):
        return sum(_least_bits(field.type) for field in kind)
    varies = pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_list(kind)
    return 32 if varies else int(kind.bit_width)


def _known(path: Path, schema: TableSchema) -> _Known:
    facts = path.stat()
    return str(path), facts.st_size, facts.st_mtime_ns, schema


def matches(keys: pa.Table, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have one of the keys (distinct): the numbers of the keys, and of the rows."""
    stored = rows.select(keys.column_names).cast(keys.schema)
    some = np.arange(keys.num_rows)
    if len(some) > MANY * stored.num_rows:
        # To look many up among few takes a third of the time that it takes to number all of them.
        wanted, held = (comparable(contiguous(one.column(0))) for one in (keys, stored))
        some = np.flatnonzero(pc.is_in(wanted, value_set=held))
        keys = taken(keys, some)
    code = codes.encode(pa.concat_tables([keys, stored])).code[len(some) :]
    row = np.flatnonzero(code < len(some))
    return some[code[row]], row


def _of_table(found: pa.Table, rows: int, schema: TableSchema) -> pa.Table:
    target = arrow_schema(schema.schema)
    columns = [
        found[name] if name in found.column_names else schema.absent(column.name, rows)
        for name, column in zip(schema.physical, target, strict=True)
    ]
    return pa.table(columns, schema=target)


_Known = tuple[str, int, int, TableSchema]
"""A file that cannot be another one, with its size and time, and as which table it was read."""


def _cost(rows: pa.Table | None) -> int:
    """With what it takes to remember that there are none."""
    return 1_024 + (0 if rows is None else rows.nbytes)


_cache: BoundedCache[_Known, pa.Table | None] = BoundedCache(CACHE_BYTES, _cost)
