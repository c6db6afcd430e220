"""Avro events to a Delta table by plain Spark: read, last of each key by a window, `MERGE`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from bench import payments
from bench.rounds import timed

NAME = "Spark window and MERGE"

PACKAGE = "org.apache.spark:spark-avro_2.13:4.1.1"

_PLACE = """source_timestamp desc,
    conv(split(source_metadata.lsn, '/')[0], 16, 10)::bigint desc,
    conv(split(source_metadata.lsn, '/')[1], 16, 10)::bigint desc"""


def merge(spark: SparkSession, table: Path, files: list[Path]) -> float:
    """Merge files of changes. Returns the seconds."""
    columns = {name: f"payload.{name}" for name in payments.TYPES}
    columns["created_at"] = "payload.created_at.timestamp"
    chosen = ", ".join(f"{value} as {name}" for name, value in columns.items())
    names = ", ".join(columns)
    values = ", ".join(f"c.{name}" for name in columns)
    updates = ", ".join(f"t.{name} = c.{name}" for name in columns)
    with timed() as watch:
        spark.read.format("avro").load(list(map(str, files))).createOrReplaceTempView("events")
        spark.sql(f"""
            merge into delta.`{table}` t using (
                select {chosen}, source_metadata.is_deleted as _gone from events
                qualify row_number() over (partition by payload.id order by {_PLACE}) = 1
            ) c on t.{payments.KEY} = c.{payments.KEY}
            when matched and c._gone then delete
            when matched then update set {updates}
            when not matched and not c._gone then insert ({names}) values ({values})
        """)
    return watch.seconds
