"""Plain Delta `MERGE`, on the Spark session of the bench.

The table is a copy of the mirror's own: the same files, change feed and deletion vectors on. The
statement is the one that Delta's documentation gives for changes with deletions. Its changes have
one row per key, so that it needs no pass over them to find the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from bench import payments
from bench.rounds import timed
from mirrorlake.model.change import MARKER_COLUMN, Marker

NAME = "Delta MERGE on Spark"


THREADS = 4
"""For many tables: the statements of so many at once, each in a session of its own."""


def merge(spark: SparkSession, table: Path, changes: Path) -> float:
    """Merge a file of changes. Returns the seconds."""
    with timed() as watch:
        _merge(spark, table, changes, list(payments.TYPES), payments.KEY)
    return watch.seconds


def merge_many(
    spark: SparkSession, work: Sequence[tuple[Path, Path]], columns: Sequence[str]
) -> float:
    """Merge a file of changes into each table, by the first of the columns. Returns the seconds."""
    with timed() as watch, ThreadPoolExecutor(THREADS) as pool:
        done = [
            pool.submit(_merge, spark.newSession(), table, changes, columns, columns[0])
            for table, changes in work
        ]
        for one in done:
            one.result()
    return watch.seconds


def _merge(
    spark: SparkSession, table: Path, changes: Path, columns: Sequence[str], key: str
) -> None:
    delete = f"c.{MARKER_COLUMN} = {int(Marker.DELETE)}"
    names = ", ".join(columns)
    values = ", ".join(f"c.{name}" for name in columns)
    updates = ", ".join(f"t.{name} = c.{name}" for name in columns)
    spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
    spark.sql(f"""
        merge into delta.`{table}` t using changes c on t.{key} = c.{key}
        when matched and {delete} then delete
        when matched then update set {updates}
        when not matched and not {delete} then insert ({names}) values ({values})
    """)
