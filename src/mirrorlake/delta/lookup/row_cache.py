"""Data files that are read whole, and kept in memory.

The newest rows of a table lie in small files, into which every batch looks; a table of some hundred
thousand rows lies in a file of which few keys want most pages, batch for batch. Data files never
change, so what was read is good as long as the file is there; it is kept up to a bound, the newest
looks first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
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

SMALL = 1 << 20
"""Bytes of a file below which it is read whole at once: to ask where the keys are takes as long."""

CACHE_BYTES = 64 << 20
"""Bytes of rows of small files that a process keeps in memory."""

OFTEN = 96 << 20
"""Bytes of rows of files that are read again and again."""

UNPACKED = 4
"""How much larger than its file the rows are taken for before they are read."""

LARGEST = 16 << 20
"""Bytes of rows of a file that is kept: a small one can hold much that repeats."""

REMEMBERED = 1_024
"""Files of which is known how much of them was read."""

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
    with pq.ParquetFile(path, coerce_int96_timestamp_unit="us", pre_buffer=False) as file:
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


def often(path: Path, schema: TableSchema) -> pa.Table | None:
    """The rows of a file that was read so often that they are kept."""
    return _often.get(_known(path, schema))


def again(path: Path, schema: TableSchema, part: float) -> pa.Table | None:
    """As `held`, for a file of which `part` is about to be read, 1 for all of it.

    None until the parts make more than the file. Then it is kept, unless that were at the cost of
    one that was looked at since the last look at this one: of more files than there is room for
    some are kept, and not each in turn.
    """
    known = _known(path, schema)
    if known in _often:
        return _often.get(known)
    size = known[1]
    if size > LARGEST:
        return None
    parts, last = _read_so_far.add(known, part, _often.looks)
    if parts <= 1 or not _often.has_room(UNPACKED * size, last):
        return None
    _read_so_far.forget(known)
    return _often.put(known, _bounded(path, schema))


def _bounded(path: Path, schema: TableSchema) -> pa.Table | None:
    """The rows of a file in all columns of the table, if they take no more than LARGEST."""
    found = _stored(str(path), schema, LARGEST)
    rows = None if found is None else _of_table(*found, schema)
    return None if rows is None or rows.nbytes > LARGEST else rows


def _least(schema: TableSchema, rows: int) -> int:
    """What rows take in memory at least, also of columns that their file has not."""
    kinds = [field.type for field in arrow_schema(schema.schema)]
    bits = sum(32 if pa.types.is_binary(k) or pa.types.is_string(k) else k.bit_width for k in kinds)
    return rows * bits // 8


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


@dataclass(slots=True)
class ReadSoFar:
    """What was read of files in parts, those that were looked at last."""

    most: int
    _parts: OrderedDict[_Known, tuple[float, int]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, known: _Known, part: float, look: int) -> tuple[float, int]:
        """The sum with this part, and the look at which the part before was added."""
        with self._lock:
            parts, last = self._parts.pop(known, (0.0, look))
            self._parts[known] = parts + part, look
            if len(self._parts) > self.most:
                self._parts.popitem(last=False)
            return parts + part, last

    def forget(self, known: _Known) -> None:
        with self._lock:
            self._parts.pop(known, None)


_cache: BoundedCache[_Known, pa.Table | None] = BoundedCache(CACHE_BYTES, _cost)
_often: BoundedCache[_Known, pa.Table | None] = BoundedCache(OFTEN, _cost)
_read_so_far = ReadSoFar(REMEMBERED)
