"""Writes checkpoints between commits, so that no batch waits for one.

Our own writer is used when it knows every action of the log (`delta/log/checkpoint.py`), otherwise
Delta's, through a class that is not public. A table that uses only Delta's public interface gets a
checkpoint within a commit at an interval, which takes a second longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from pyspark.sql import SparkSession

from mirrorlake.delta.log.checkpoint import UnsupportedLog, write
from mirrorlake.delta.log.table_log import BrokenLog
from mirrorlake.mirror.faults import TableFault
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.spark.sql_text import quoted
from mirrorlake.storage.urls import is_url

log = structlog.get_logger()

LEFT_TO_DELTA = "checkpoint_left_to_delta"
INTERVAL = "delta.checkpointInterval"
DELTAS_OWN = 10
"""Delta's default interval."""

CLEAN_EVERY = 86_400.0
"""Seconds between two clean-ups of a log; Delta's retention is counted in days."""


class Checkpoints:
    """Writes checkpoints of the tables of one engine. Not thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        clock: Callable[[], float] = time.monotonic,
        reached: CrashHook = no_crash,
    ) -> None:
        self._spark, self._clock, self._reached = spark, clock, reached
        self._cleaned: dict[str, float] = {}

    def write(self, location: str) -> None:
        """Write a checkpoint of the newest version of the table at a location, and let Delta clean
        up its log. Raises TableFault."""
        now = self._clock()
        if is_url(location) or not self._ours(location):
            _by_delta(self._spark, location)
        elif now >= self._cleaned.get(location, now):
            self._cleaned[location] = now + CLEAN_EVERY
            delta = _delta_log(self._spark, location)
            none = self._spark._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
            delta.doLogCleanup(delta.update(False, none, none), none)

    def _ours(self, location: str) -> bool:
        try:
            write(Path(location), reached=self._reached)
        except UnsupportedLog as reason:
            log.info(LEFT_TO_DELTA, location=location, reason=str(reason))
            return False
        except (OSError, BrokenLog) as error:
            raise _failed(location, type(error).__name__) from error
        return True


def _by_delta(spark: SparkSession, location: str) -> None:
    """Have Delta write the checkpoint, which also cleans up the log. Delta only logs errors, so
    check afterwards that the checkpoint exists."""
    delta = _delta_log(spark, location)
    none = spark._jvm.scala.Option.empty()  # type: ignore[union-attr]  # noqa: SLF001
    snapshot = delta.update(False, none, none)
    version = snapshot.version()
    delta.checkpoint(snapshot, none)
    if version < 0 or not delta.checkpointExistsAtVersion(version):
        raise _failed(location, f"of version {version}")


def _delta_log(spark: SparkSession, location: str) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001
    logs = jvm.org.apache.spark.sql.delta.DeltaLog
    return logs.forTable(spark._jsparkSession, location)  # noqa: SLF001


def _failed(location: str, why: str) -> TableFault:
    return TableFault(
        f"no checkpoint was written: {why}",
        table=Path(location).name,
        hint="Spark's log may have details. It is retried after some more commits.",
    )


def leave_to_delta(
    spark: SparkSession, location: str, properties: Mapping[str, str], every: int
) -> None:
    """Have Delta write a checkpoint at least every `every` commits, within a commit. properties:
    the current ones of the table."""
    if int(properties.get(INTERVAL, DELTAS_OWN)) > every:
        table = f"delta.{quoted(location)}"
        spark.sql(f"alter table {table} set tblproperties ('{INTERVAL}' = '{every}')")
