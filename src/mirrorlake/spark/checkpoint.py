"""A checkpoint between two commits, by Delta itself, which cleans its log on the way."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession


def checkpoint(spark: SparkSession, location: str) -> None:
    """Write a checkpoint of the newest version of the table at a location."""
    jvm: Any = spark._jvm  # noqa: SLF001
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        spark._jsparkSession,  # noqa: SLF001
        location,
    )
    none = jvm.scala.Option.empty()
    log.checkpoint(log.update(False, none, none), none)
