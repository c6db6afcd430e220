"""Compaction: rewrites the live rows of several files into fewer files, sorted by key. Clustering:
rewrites them into files that also follow each other by key.

The change feed is not affected: every action has `dataChange` false (CF-095). As in `rewrite`,
nothing here commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.rewrite import ROWS_PER_FILE, write_data_files
from mirrorlake.model.arrow import taken

SAMPLED = 256
"""One of so many rows is looked at to find the bounds of the new files."""


def compact(
    table: Path, files: Sequence[Mapping[str, Any]], schema: TableSchema, key: Sequence[str]
) -> list[dict[str, Any]]:
    """Rewrite the live rows of these files. Returns the add and remove actions.

    Memory: twice the rows.
    """
    rows = pa.concat_tables([live_rows(table, add, schema) for add in files])
    actions = write_data_files(table, schema, _ordered(rows, key), list(key), data_change=False)
    actions += [{"remove": data_files.removed(add, data_change=False)} for add in files]
    return actions


def cluster(
    table: Path,
    files: Sequence[Mapping[str, Any]],
    schema: TableSchema,
    key: Sequence[str],
    into: int,
) -> list[dict[str, Any]]:
    """Rewrite the live rows of these files of one partition. into: the number of new files, about.
    Returns the add and remove actions.

    Each file is sorted and written to a temporary file; then the new files are put together range
    by range from slices of these. Memory: twice the rows of the largest file, or of a new one; disk
    space: all rows.
    """
    actions: list[dict[str, Any]] = []
    column = next(name for name in key if name not in schema.partitions)
    with TemporaryDirectory(prefix="mirrorlake-cluster-") as folder:
        runs = []
        for number, add in enumerate(files):
            rows = _ordered(live_rows(table, add, schema), key)
            runs.append(_stored(rows, Path(folder, str(number))))
            del rows
        left = sum(map(len, runs))
        for part in _parts(runs, column, into):
            left -= len(part)
            rows = _ordered(part, key)
            actions += write_data_files(table, schema, rows, list(key), data_change=False)
        if left:
            raise RuntimeError(f"clustering {table} would change its number of rows by {-left}")
        del runs
    return actions + [{"remove": data_files.removed(add, data_change=False)} for add in files]


def _stored(rows: pa.Table, path: Path) -> pa.Table:
    """Rows in a file, which are read when they are used."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def _parts(runs: Sequence[pa.Table], column: str, into: int) -> Iterator[pa.Table]:
    """The rows of sorted runs by ranges of a column, none of more than a file has, if several rows
    have the same value."""
    begins = [0] * len(runs)
    for bound in [*_bounds(runs, column, into), None]:
        ends = [_before(run[column], bound) for run in runs]
        waiting: list[pa.Table] = []
        for run, begin, end in zip(runs, begins, ends, strict=True):
            if sum(map(len, waiting)) + end - begin > ROWS_PER_FILE and waiting:
                yield pa.concat_tables(waiting)
                waiting = []
            waiting.append(run.slice(begin, end - begin))
        if any(map(len, waiting)):
            yield pa.concat_tables(waiting)
        begins = ends


def _bounds(runs: Sequence[pa.Table], column: str, into: int) -> list[pa.Scalar]:
    """Values that divide the rows into parts of about the same size, ascending. NULL and NaN are
    none: sorted columns have them last, and NaN is not less or greater than anything."""
    values = pa.chunked_array(
        [
            chunk
            for run in runs
            for chunk in run[column].take(np.arange(0, len(run), SAMPLED)).drop_null().chunks
        ],
        runs[0].schema.field(column).type,
    )
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    values = values.take(pc.sort_indices(values))
    chosen = [len(values) * part // into for part in range(1, into)] if len(values) else []
    return list(dict.fromkeys(values[index] for index in chosen))


def _before(column: pa.ChunkedArray, bound: pa.Scalar | None) -> int:
    """The number of values before a bound in a sorted column, whose NULLs are last."""
    if bound is None:
        return len(column)
    return pc.sum(pc.less(column, bound)).as_py() or 0


def _ordered(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sort rows by key, so that a key lookup can skip most row groups."""
    if not key:
        return rows
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in key])
    return taken(rows, order)
