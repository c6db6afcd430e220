"""Compacts files of a table with Delta's own commands, for tables that only Delta can write.

They do not change rows (`dataChange` false for the feed), and each is one commit. If another writer
commits first, Delta commits after it, or gives up if the same files were changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.apply.runner import TasksDied
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.delta.log.durability import flush_files
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.schema import TableSchema
from mirrorlake.mirror.compaction.optimize import Join, Partition, Purge
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, Outcome
from mirrorlake.spark.errors import RAISED, fault, raised
from mirrorlake.spark.merge.statements import NewerVersion
from mirrorlake.spark.merge.strategy import LAST_VERSION, SETTINGS
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.thread_sessions import Sessions
from mirrorlake.spark.sql_text import quoted
from mirrorlake.storage.urls import is_url

BOUNDS = "spark.databricks.delta.optimize"
"""The session settings that determine which files Delta compacts; there is no other way."""

_SETTINGS = {**SETTINGS, "spark.sql.parser.escapedStringLiterals": "false"}


class SparkOptimizer:
    """An `Optimizer`: runs OPTIMIZE and REORG in its own sessions."""

    def __init__(self, spark: SparkSession, runner: SparkRunner) -> None:
        self._sessions, self._runner = Sessions(spark, _SETTINGS), runner

    def run(
        self, table: str, location: str, schema: TableSchema, command: Join | Purge
    ) -> Outcome | None:
        with self._sessions.active() as session:
            session.conf.unset(LAST_VERSION)
            try:
                with self._runner.tagged():
                    _run(session, location, schema, command)
            except RAISED as error:
                found = raised(error, table, NewerVersion.__name__)
                if isinstance(found, Conflicted):
                    return found
                return Failed(fault(error, table, "compacting"))
            except TasksDied as died:
                return Failed(worker_lost(table, str(died)))
            newest = session.conf.get(LAST_VERSION, None)
        if newest is None:
            return None
        if not is_url(location):  # uploaded objects are durable
            flush_files(Path(location), TableLog(location).actions(int(newest)))
        return Applied(int(newest))


def _run(session: SparkSession, location: str, schema: TableSchema, command: Join | Purge) -> None:
    # Files of a partition are merged up to this size.
    session.conf.set(f"{BOUNDS}.maxFileSize", str(command.rewrite.bytes))
    within = condition(schema, command.rewrite.partitions)
    match command:
        case Join(_reach, below, dead):
            session.conf.set(f"{BOUNDS}.minFileSize", str(below))
            session.conf.set(f"{BOUNDS}.maxDeletedRowsRatio", str(dead))
            builder = DeltaTable.forPath(session, location).optimize()
            (builder.where(within) if within else builder).executeCompaction().collect()
        case Purge():
            where = f"where {within}" if within else ""
            session.sql(f"reorg table delta.{quoted(location)} {where} apply (purge)").collect()


def condition(schema: TableSchema, partitions: Sequence[Partition]) -> str:
    """The partitions as SQL; empty for an unpartitioned table."""
    if not all(partitions):
        return ""
    return " or ".join(f"({_within(schema, partition)})" for partition in partitions)


def _within(schema: TableSchema, partition: Partition) -> str:
    conditions = []
    for physical, value in partition:
        column = schema.schema.columns[schema.physical.index(physical)]
        if value in {None, ""}:  # both are NULL in the log
            conditions.append(f"{quoted(column.name)} is null")
        else:
            text = str(value).replace("\\", "\\\\").replace("'", "\\'")
            conditions.append(f"{quoted(column.name)} = cast('{text}' as {column.type})")
    return " and ".join(conditions)
