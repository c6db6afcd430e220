"""delta-rs: `DeltaTable.merge` of the Python package deltalake, without Spark.

The table has the same rows in as many files, with the change feed on, and without deletion
vectors, which delta-rs does not write: it rewrites files. Changes are streamed, its own default.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from bench import payments
from bench.rounds import timed
from mirrorlake.model.change import MARKER_COLUMN, Marker

NAME = "delta-rs MERGE"


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


def merge(table: Path, changes: Path) -> float:
    """Merge a file of changes. Returns the seconds."""
    delete = f"c.{MARKER_COLUMN} = {int(Marker.DELETE)}"
    values = {name: f"c.{name}" for name in payments.TYPES}
    with timed() as watch:
        merging = DeltaTable(table).merge(
            pq.read_table(changes),
            predicate=f"t.{payments.KEY} = c.{payments.KEY}",
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
    return watch.seconds
