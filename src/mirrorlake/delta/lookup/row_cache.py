"""The row cache: rows of small data files, kept in memory.

The newest rows of a table are in small files, in which every batch looks up its keys. Data files
never change, so their rows are cached in an LRU cache of bounded size.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.delta.lookup.whole_files import WholeFileReader, opened
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import arrow_schema, contiguous, taken
from mirrorlake.model.keys import comparable

SMALL = 4 << 20
"""Size of a file in bytes below which its rows are cached. Compared with that, locating keys and
reading their pages takes half as long the first time, but ten times as long when the rows are
cached."""

CACHE_BYTES = 160 << 20
"""Maximum bytes of cached rows per process."""

MAX_FILE_ROWS_BYTES = 16 << 20
"""Maximum bytes of the cached rows of one file: a small file may contain many repeated values."""

BLOCK = 1_024
"""Number of rows that are decoded before their size is checked."""

GROUP_BLOCK = 65_536
"""Number of rows of a row group that are decoded at once; larger blocks are not faster."""

KEYS_PER_ROW = 4
"""Number of keys per row above which the keys are filtered first."""


def stored_rows(path: str, schema: TableSchema) -> tuple[pa.Table, int]:
    """All rows of a file, and their number. The rows have the columns of the table that the file
    contains, with their names in the file."""
    found = _stored(path, schema, None)
    assert found is not None
    return found


def _stored(path: str, schema: TableSchema, most: int | None) -> tuple[pa.Table, int] | None:
    """As `stored_rows`; None if the rows take more than `most` bytes."""
    with opened(path) as file:
        named, rows = _named(file, schema), file.metadata.num_rows
        columns = named.names
        if most is None or not rows or not columns:
            return file.read(columns).select(columns).cast(named), rows
        if _min_size(schema, rows) > most:
            return None
        blocks, taken = [], 0
        for block in file.iter_batches(BLOCK, columns=columns, use_threads=False):
            # In the types of the cache: a dictionary, for example, takes much less than its values.
            blocks.append(pa.Table.from_batches([block]).select(columns).cast(named))
            taken += blocks[-1].nbytes
            if taken > most:
                return None
        return pa.concat_tables(blocks).combine_chunks(), rows


def _named(file: pq.ParquetFile, schema: TableSchema) -> pa.Schema:
    """The columns of the table that a file contains, with their names in the file."""
    target, there = schema.file_schema(), set(file.schema_arrow.names)
    return pa.schema([field for field in target if field.name in there])


def blocks_of_groups(
    file: pq.ParquetFile, groups: Sequence[int], schema: TableSchema
) -> Iterator[pa.Table]:
    """As `table_rows`, of some row groups of an open file, in order, in blocks that are decoded one
    after the other. The rows are not cached."""
    named = _named(file, schema)
    if not named.names:
        count = sum(file.metadata.row_group(group).num_rows for group in groups)
        yield _of_table(named.empty_table(), count, schema)
        return
    for block in file.iter_batches(GROUP_BLOCK, row_groups=list(groups), columns=named.names):
        rows = pa.Table.from_batches([block]).select(named.names).cast(named)
        yield _of_table(rows, block.num_rows, schema)


def table_rows(path: Path, schema: TableSchema) -> pa.Table:
    """All rows of a file, deleted ones included, with all columns of the table; see
    `TableSchema.missing_column` for columns that the file does not contain."""
    rows = cached_rows(path, schema) if path.stat().st_size < SMALL else None
    return _of_table(*stored_rows(str(path), schema), schema) if rows is None else rows


def read_rows(path: str | Path, reader: WholeFileReader) -> Generator[None, None, pa.Table]:
    """As `table_rows`, for rows that are needed whatever they take: a file that is not cached is
    decoded as a whole, in the steps of the reader."""
    known = _file_key(path, reader.columns)
    is_small = known[1] < SMALL
    found = _cache.get(known) if is_small else None
    if found is None:
        found = yield from reader.read(known[0], is_small=is_small, size=known[1])
        if is_small and (cost := _cost(found)) <= MAX_FILE_ROWS_BYTES:
            _cache.put(known, found, cost)
    return found


def cached_rows(path: Path, schema: TableSchema) -> pa.Table | None:
    """As `table_rows`, from the cache if possible; None if the rows take more than LARGEST bytes,
    of which no more than that are decoded."""
    known = _file_key(path, schema)
    if known in _cache:
        return _cache.get(known)
    return _cache.put(known, _bounded(path, schema))


def forget() -> None:
    """Empty the cache."""
    _cache.clear()


def _bounded(path: Path, schema: TableSchema) -> pa.Table | None:
    """The rows of a file with all columns of the table; None if they take more than LARGEST."""
    found = _stored(str(path), schema, MAX_FILE_ROWS_BYTES)
    rows = None if found is None else _of_table(*found, schema)
    return None if rows is None or rows.nbytes > MAX_FILE_ROWS_BYTES else rows


def _min_size(schema: TableSchema, rows: int) -> int:
    """Minimum size of rows in memory in bytes, including columns that their file does not
    contain."""
    kinds = [field.type for field in arrow_schema(schema.schema)]
    return rows * sum(map(_min_bits, kinds)) // 8


def _min_bits(kind: pa.DataType) -> int:
    """Minimum number of bits of one value: for values of variable length those of an offset."""
    if pa.types.is_struct(kind):
        return sum(_min_bits(field.type) for field in kind)
    varies = pa.types.is_binary(kind) or pa.types.is_string(kind) or pa.types.is_list(kind)
    return 32 if varies else int(kind.bit_width)


def _file_key(path: str | Path, schema: TableSchema | str) -> _FileKey:
    facts = os.stat(path)  # noqa: PTH116  (as a text, if it is one)
    return str(path), facts.st_size, facts.st_mtime_ns, schema


def matches(keys: pa.Table, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The rows that have one of the keys (distinct), as two arrays: the row number of the key, and
    the row number of the row."""
    stored = rows.select(keys.column_names).cast(keys.schema)
    key_rows = np.arange(keys.num_rows)
    if len(key_rows) > KEYS_PER_ROW * stored.num_rows:
        # Looking up many keys among few rows takes a third of the time of encoding all of them.
        sought, stored_keys = (comparable(contiguous(table.column(0))) for table in (keys, stored))
        key_rows = np.flatnonzero(pc.is_in(sought, value_set=stored_keys))
        keys = taken(keys, key_rows)
    code = codes.encode(pa.concat_tables([keys, stored])).code[len(key_rows) :]
    row = np.flatnonzero(code < len(key_rows))
    return key_rows[code[row]], row


def _of_table(found: pa.Table, rows: int, schema: TableSchema) -> pa.Table:
    target = arrow_schema(schema.schema)
    # A table looks for a name among all of its columns, of which there may be a thousand.
    there = dict(zip(found.column_names, found.columns, strict=True))
    columns = [
        there[name] if name in there else schema.missing_column(column.name, rows)
        for name, column in zip(schema.physical, target, strict=True)
    ]
    return pa.table(columns, schema=target)


_FileKey = tuple[str, int, int, TableSchema | str]
"""Identity of a cached file: path, size, modification time, and the schema of its rows, also as
`WholeFileReader.columns`."""


def _cost(rows: pa.Table | None) -> int:
    """Size of an entry in bytes; an entry without rows takes some bytes, too."""
    # Of the buffers that the entry keeps. `nbytes`, of what it uses of them, takes much longer.
    return 1_024 + (0 if rows is None else rows.get_total_buffer_size())


_cache: BoundedCache[_FileKey, pa.Table | None] = BoundedCache(CACHE_BYTES, _cost)
