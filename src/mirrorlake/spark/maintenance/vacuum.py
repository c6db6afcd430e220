"""Removing data files that no version within the retention needs, by Delta's own VACUUM.

It leaves our folder beside them alone, so the indexes of the files that it removed go after it.
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
from mirrorlake.spark.sql_text import quoted
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
"""Delta refuses less than 7 days while this is on. Who asks for less has said so at the door."""

LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""In how many tasks Delta lists the files, however few there are: 10,000 unless it is told."""


def vacuum(
    spark: SparkSession,
    location: str,
    options: ObjectOptions | None,
    retention: timedelta,
    before: Callable[[], None],
) -> None:
    """Vacuum the table at a location. options: how that is reached when it is a URL; before: called
    first, and refuses it by raising.

    Raises ForeignTable when a table lies inside this one: VACUUM knows only the files of its own,
    and would delete those of the other.
    """
    if inner := _table_inside(location, options):
        raise ForeignTable(
            f"another table lies inside this one, at {inner}, and VACUUM would delete its files",
            table=Path(location).name,
            hint="Move the inner table away.",
        )
    before()
    session = spark.newSession()
    session.conf.set(CHECK, "false")
    session.conf.set(LISTING, str(spark.sparkContext.defaultParallelism))
    hours = retention.total_seconds() / 3600
    session.sql(f"vacuum delta.{quoted(location)} retain {hours:.4f} hours").collect()
    if not is_url(location):  # of a table on objects they go with the files that were fetched
        key_index.sweep(Path(location))


def _table_inside(location: str, options: ObjectOptions | None) -> str | Path | None:
    """The first folder below a table's own that has a log."""
    if is_url(location):
        return next(iter(inner_tables(location, options)), None)
    table = Path(location)
    for folder, folders, _files in os.walk(table):
        if "_delta_log" in folders:
            if Path(folder) != table:
                return Path(folder)
            folders.remove("_delta_log")
    return None
