"""Deletes data files that no version within the retention needs, with Delta's VACUUM.

VACUUM ignores our folder beside the data files, so the indexes of deleted files are deleted
afterwards.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorlake.delta.lookup import key_index
from mirrorlake.delta.workspace import inner_tables
from mirrorlake.errors import ForeignTable
from mirrorlake.spark.session.thread_sessions import beside
from mirrorlake.spark.sql_text import quoted
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
"""While this is on, Delta refuses less than 7 days. The configuration already requires an explicit
setting for less."""

LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Number of tasks in which Delta lists the files, regardless of their number: 10,000 by default."""


def vacuum(
    spark: SparkSession,
    location: str,
    options: ObjectOptions | None,
    retention: timedelta,
    before: Callable[[], None],
) -> None:
    """Vacuum the table at a location. options: how to access a URL; before: called first, raises to
    refuse.

    Raises ForeignTable when another table is inside this one: VACUUM would delete its files as
    unknown.
    """
    if inner := _table_inside(location, options):
        raise ForeignTable(
            f"another table lies inside this one, at {inner}, and VACUUM would delete its files",
            table=Path(location).name,
            hint="Move the inner table away.",
        )
    before()
    parallelism = str(spark.sparkContext.defaultParallelism)
    session = beside(spark, {CHECK: "false", LISTING: parallelism})
    hours = retention.total_seconds() / 3600
    session.sql(f"vacuum delta.{quoted(location)} retain {hours:.4f} hours").collect()
    if not is_url(location):  # indexes of objects are local and deleted with the fetched files
        key_index.sweep(Path(location))


def _table_inside(location: str, options: ObjectOptions | None) -> str | Path | None:
    """The first folder below the table's own that has a log."""
    if is_url(location):
        return next(iter(inner_tables(location, options)), None)
    table = Path(location)
    for folder, folders, _files in os.walk(table):
        if "_delta_log" in folders:
            if Path(folder) != table:
                return Path(folder)
            folders.remove("_delta_log")
    return None
