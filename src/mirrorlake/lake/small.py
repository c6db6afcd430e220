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
import pyarrow.parquet as pq

from mirrorlake.lake.schema import TableSchema
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import arrow_schema

SMALL = 1 << 20
"""Bytes of a file below which it is read whole at once: to ask where the keys are takes as long."""

KEPT = 128 << 20
"""Bytes of rows that a process keeps in memory."""

LARGEST = 16 << 20
"""Bytes of rows of a file that is kept: a small one can hold much that repeats."""

REMEMBERED = 1_024
"""Files of which is known how much of them was read."""

PIECE = 1_024
"""Rows that are decoded before their size is looked at."""


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
        if most is None or not rows or not columns:
            found = file.read(columns)
        else:
            pieces, taken = [], 0
            for piece in file.iter_batches(PIECE, columns=columns, use_threads=False):
                taken += piece.nbytes
                if taken > most:
                    return None
                pieces.append(piece)
            found = pa.Table.from_batches(pieces).combine_chunks()
    found = found.select([name for name in target.names if name in found.column_names])
    return found.cast(pa.schema([target.field(name) for name in found.column_names])), rows


def table_rows(path: Path, schema: TableSchema) -> pa.Table:
    """A file whole, gone rows included, with all columns of the table; NULL where it has none."""
    rows = held(path, schema) if path.stat().st_size < SMALL else None
    return _of_table(*stored_rows(str(path), schema), schema) if rows is None else rows


def held(path: Path, schema: TableSchema) -> pa.Table | None:
    """As `table_rows`, from memory if it was read before; None for a file whose rows take more than
    LARGEST, which is found out without reading more than that."""
    return _held(path, _known(path, schema))


def again(path: Path, schema: TableSchema, part: float) -> pa.Table | None:
    """As `held`, of a file of any size; None, too, for one of which not enough was read so far.

    part: what is about to be read of it, 1 for all. Once the parts make a whole file, to hold it is
    sure to have cost at most twice what would have been best.
    """
    known = _known(path, schema)
    if known in _kept or (known[1] <= LARGEST and _read_so_far.add(known, part) > 1):
        return _held(path, known)
    return None


def _held(path: Path, known: _Known) -> pa.Table | None:
    if known in _kept:
        return _kept.get(known)
    schema = known[-1]
    found = _stored(str(path), schema, LARGEST)
    rows = None if found is None else _of_table(*found, schema)
    _kept.put(known, rows)
    return rows


def _known(path: Path, schema: TableSchema) -> _Known:
    facts = path.stat()
    return str(path), facts.st_size, facts.st_mtime_ns, schema


def matches(keys: pa.Table, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Which rows have one of the keys (distinct): the numbers of the keys, and of the rows."""
    stored = rows.select(keys.column_names).cast(keys.schema)
    code = codes.encode(pa.concat_tables([keys, stored])).code[keys.num_rows :]
    row = np.flatnonzero(code < keys.num_rows)
    return code[row], row


def _of_table(found: pa.Table, rows: int, schema: TableSchema) -> pa.Table:
    target = arrow_schema(schema.schema)
    columns = [
        found[name] if name in found.column_names else pa.nulls(rows, column.type)
        for name, column in zip(schema.physical, target, strict=True)
    ]
    return pa.table(columns, schema=target)


_Known = tuple[str, int, int, TableSchema]
"""A file that cannot be another one, with its size and time, and as which table it was read."""


@dataclass(slots=True)
class Kept:
    """Rows of files, those that were looked at last; None for files that hold too much."""

    most: int
    _rows: OrderedDict[_Known, pa.Table | None] = field(default_factory=OrderedDict)
    size: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __contains__(self, known: _Known) -> bool:
        return known in self._rows

    def get(self, known: _Known) -> pa.Table | None:
        with self._lock:
            if known in self._rows:
                self._rows.move_to_end(known)
            return self._rows.get(known)

    def put(self, known: _Known, rows: pa.Table | None) -> None:
        with self._lock:
            if known in self._rows:
                return
            self._rows[known] = rows
            self.size += _cost(rows)
            while self.size > self.most and len(self._rows) > 1:
                _, oldest = self._rows.popitem(last=False)
                self.size -= _cost(oldest)


def _cost(rows: pa.Table | None) -> int:
    """With what it takes to remember that there are none."""
    return 1_024 + (0 if rows is None else rows.nbytes)


@dataclass(slots=True)
class ReadSoFar:
    """What was read of files in parts, those that were looked at last."""

    most: int
    _parts: OrderedDict[_Known, float] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, known: _Known, part: float) -> float:
        """The sum with this part."""
        with self._lock:
            total = self._parts.pop(known, 0.0) + part
            self._parts[known] = total
            if len(self._parts) > self.most:
                self._parts.popitem(last=False)
            return total


_kept = Kept(KEPT)
_read_so_far = ReadSoFar(REMEMBERED)
