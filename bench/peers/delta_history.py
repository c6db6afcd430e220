"""A history of type 2 in two steps, on the Spark session of the bench, as Delta documents it: a
`MERGE` that ends the open rows of changed keys, and an append of the new ones.

The table is a copy of ours: the same files, with deletion vectors on. The changes are read from the
change feed by Spark; there is one per key, so that no pass over them is needed to order them.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench import payments
from bench.rounds import timed

NAME = "two-step MERGE on Spark"


def extend(spark: SparkSession, source: Path, target: Path, first: int, last: int) -> float:
    """Carry the versions `first` to `last` of the source into the history. Returns the seconds."""
    columns = ", ".join(payments.TYPES)
    with timed() as watch:
        feed = spark.read.format("delta").option("readChangeFeed", "true")
        changes = feed.option("startingVersion", first).option("endingVersion", last)
        changes.load(str(source)).createOrReplaceTempView("changes")
        spark.sql(f"""
            merge into delta.`{target}` t
            using (select {payments.KEY}, _commit_version from changes
                   where _change_type in ('delete', 'update_postimage')) c
            on t.{payments.KEY} = c.{payments.KEY} and t.__END_AT is null
            when matched then update set t.__END_AT = c._commit_version
        """)
        spark.sql(f"""
            insert into delta.`{target}` ({columns}, __START_AT, __END_AT, __FROM_SNAPSHOT)
            select {columns}, _commit_version, null, false from changes
            where _change_type in ('insert', 'update_postimage')
        """)
    return watch.seconds
