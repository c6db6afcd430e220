"""A checkpoint between two commits, by Delta itself, which cleans its log on the way.

There is no public way to ask for one. A table that is left to Delta's public interface gets them
within every so manieth commit, which takes a second longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.mirror.faults import TableFault

INTERVAL = "delta.checkpointInterval"
DELTAS_OWN = 10
"""The interval of a table that does not say."""


def checkpoint(spark: SparkSession, location: str) -> None:
    """Write a checkpoint of the newest version of the table at a location. Raises TableFault.

    Delta tells its own log of what goes wrong, and nobody else: whether there is one is looked up.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        spark._jsparkSession,  # noqa: SLF001
        location,
    )
    none = jvm.scala.Option.empty()
    snapshot = log.update(False, none, none)
    version = snapshot.version()
    log.checkpoint(snapshot, none)
    if version < 0 or not log.checkpointExistsAtVersion(version):
        raise TableFault(
            f"no checkpoint of version {version} was written",
            table=Path(location).name,
            hint="Spark's log says why. It is tried again after some more commits.",
        )


def leave_to_delta(
    spark: SparkSession, location: str, properties: Mapping[str, str], every: int
) -> None:
    """Have Delta write a checkpoint within every so manieth commit, at least. properties: as the
    table has them now."""
    if int(properties.get(INTERVAL, DELTAS_OWN)) > every:
        quoted = location.replace("`", "``")
        spark.sql(f"alter table delta.`{quoted}` set tblproperties ('{INTERVAL}' = '{every}')")
