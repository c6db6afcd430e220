"""delta-rs: `DeltaTable.merge` of the Python package deltalake, without Spark.

The table has the same rows in as many files, with the change feed on, and without deletion
vectors, which delta-rs does not write: it rewrites files. Changes are streamed, its own default.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from bench.rounds import timed
from mirrorlake.model.change import MARKER_COLUMN, Marker

THREADS = 4
"""For many tables: the statements of so many at once."""


def prepare(files: Sequence[Path], table: Path) -> None:
    """Write the rows of the files as a table, a file each."""
    for path in files:
        write_deltalake(
            table,
            pq.read_table(path),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
            target_file_size=1 << 30,
        )


def merge(table: Path, changes: Path, columns: Sequence[str], key: Sequence[str]) -> float:
    """Merge a file of changes. Returns the seconds."""
    with timed() as watch:
        _merge(table, changes, columns, key)
    return watch.seconds


def merge_many(
    work: Sequence[tuple[Path, Path]], columns: Sequence[str], key: Sequence[str]
) -> float:
    """Merge a file of changes into each table. Returns the seconds."""
    with timed() as watch, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda one: _merge(one[0], one[1], columns, key), work))
    return watch.seconds


def _merge(table: Path, changes: Path, columns: Sequence[str], key: Sequence[str]) -> None:
    delete = f"c.{MARKER_COLUMN} = {int(Marker.DELETE)}"
    values = {name: f"c.{name}" for name in columns}
    merging = DeltaTable(table).merge(
        pq.read_table(changes),
        predicate=" and ".join(f"t.{name} = c.{name}" for name in key),
        source_alias="c",
        target_alias="t",
        streamed_exec=True,
    )
    (
        merging.when_matched_delete(predicate=delete)
        .when_matched_update(updates=values)
        .when_not_matched_insert(updates=values, predicate=f"not ({delete})")
        .execute()
    )
