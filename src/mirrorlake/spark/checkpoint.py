"""A checkpoint between two commits, by Delta itself, which cleans its log on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.mirror.faults import TableFault


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
