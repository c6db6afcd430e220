"""Plain Delta `MERGE`, on the Spark session of the bench.

The table is a copy of the mirror's own, or one that Spark has written from the same landed files,
in the layout that it chooses; change feed and deletion vectors are on in both. The statement is
that of Delta's documentation for changes with deletions. There is one change per key, so that it
needs no pass over them to find the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from bench.rounds import timed
from bench.zone import Key
from mirrorlake.model.change import MARKER_COLUMN, Marker

THREADS = 4
"""For many tables: the statements of so many at once, each in a session of its own."""


def prepare(spark: SparkSession, files: Sequence[Path], table: Path) -> None:
    """Write the rows of the files as a table in the layout that Spark chooses."""
    writer = spark.read.parquet(*map(str, files)).write.format("delta")
    for feature in ("enableChangeDataFeed", "enableDeletionVectors"):
        writer = writer.option(f"delta.{feature}", "true")
    writer.save(str(table))


def merge(spark: SparkSession, table: Path, changes: Path, key: Key) -> float:
    """Merge a file of changes. Returns the seconds."""
    with timed() as watch:
        _merge(spark, table, changes, key.names, list(key.columns))
    return watch.seconds


def merge_many(
    spark: SparkSession, work: Sequence[tuple[Path, Path]], columns: Sequence[str]
) -> float:
    """Merge a file of changes into each table, by the first of the columns. Returns the seconds."""
    with timed() as watch, ThreadPoolExecutor(THREADS) as pool:
        done = [
            pool.submit(_merge, spark.newSession(), table, changes, columns, columns[:1])
            for table, changes in work
        ]
        for one in done:
            one.result()
    return watch.seconds


def _merge(
    spark: SparkSession, table: Path, changes: Path, columns: Sequence[str], key: Sequence[str]
) -> None:
    same = " and ".join(f"t.{name} = c.{name}" for name in key)
    delete = f"c.{MARKER_COLUMN} = {int(Marker.DELETE)}"
    names = ", ".join(columns)
    values = ", ".join(f"c.{name}" for name in columns)
    updates = ", ".join(f"t.{name} = c.{name}" for name in columns)
    spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
    spark.sql(f"""
        merge into delta.`{table}` t using changes c on {same}
        when matched and {delete} then delete
        when matched then update set {updates}
        when not matched and not {delete} then insert ({names}) values ({values})
    """)
