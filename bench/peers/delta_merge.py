"""Plain Delta `MERGE`, on the Spark session of the bench.

The table is a copy of the mirror's own: the same files, change feed and deletion vectors on. The
statement is the one that Delta's documentation gives for changes with deletions. Its changes have
one row per key, so that it needs no pass over them to find the last one.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench import payments
from bench.rounds import timed
from mirrorlake.model.change import MARKER_COLUMN, Marker

NAME = "Delta MERGE on Spark"


def merge(spark: SparkSession, table: Path, changes: Path) -> float:
    """Merge a file of changes. Returns the seconds."""
    delete = f"c.{MARKER_COLUMN} = {int(Marker.DELETE)}"
    columns = ", ".join(payments.TYPES)
    values = ", ".join(f"c.{name}" for name in payments.TYPES)
    updates = ", ".join(f"t.{name} = c.{name}" for name in payments.TYPES)
    with timed() as watch:
        spark.read.parquet(str(changes)).createOrReplaceTempView("changes")
        spark.sql(f"""
            merge into delta.`{table}` t using changes c on t.{payments.KEY} = c.{payments.KEY}
            when matched and {delete} then delete
            when matched then update set {updates}
            when not matched and not {delete} then insert ({columns}) values ({values})
        """)
    return watch.seconds
