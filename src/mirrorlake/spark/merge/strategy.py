"""The merge strategy: one `MERGE` or one append, through Delta's public interface only.

For tables that only Delta itself can write correctly, and for untested versions of Delta. The
resulting rows are still determined by us: tasks fold the batch, Spark looks up the existing rows
with its keys, and `apply/merge_actions.py` compares the two.

Exactly once. Delta's transaction identifier only refuses a number that is not larger: a batch of
files 1 to 5 would be accepted after one of 1 to 3. Therefore the source of each commit contains a
fence, a row that is computed inside Delta's transaction and fails when the table has a newer
version than the one on which the batch was opened. Delta detects later commits, because both have
the same application id. See docs/exactly-once.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorlake.apply.commit_metadata import commit_metadata
from mirrorlake.apply.merge_actions import MergeAction
from mirrorlake.apply.runner import TasksDied
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.apply.task.landed_rows import landed_paths
from mirrorlake.apply.task.merge import COUNT, KEYS, MergeTask
from mirrorlake.delta.log.durability import flush_files
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import MirrorlakeError, UnsupportedColumn, printable
from mirrorlake.landing.file_identity import Identity, first_changed
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed, Outcome
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.spark.errors import RAISED, damage, fault, raised
from mirrorlake.spark.merge.frames import MergeFrame, MergeFrames
from mirrorlake.spark.merge.statements import (
    MergeSource,
    NewerVersion,
    append,
    count,
    keys_between,
    look_up,
    merge,
)
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.thread_sessions import UTC, Sessions
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

MERGES = 2
"""How many tables are merged at once. Each `MERGE` is several jobs, which fill the cores."""

LAST_VERSION = "spark.databricks.delta.lastCommitVersionInSession"

SETTINGS = {
    **UTC,
    # Values as they are, also before 1582 and after 2262.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}


class Merge:
    """A `Strategy`: for each batch one `MERGE`, or one append if it only inserts."""

    def __init__(
        self, runner: SparkRunner, spark: SparkSession, store: Store, reached: CrashHook
    ) -> None:
        self._runner, self._sessions = runner, Sessions(spark, SETTINGS)
        self._store, self._reached = store, reached

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        with ThreadPoolExecutor(MERGES, thread_name_prefix="merge") as pool:
            return list(pool.map(lambda batch: self._apply(batch, before_commit), batches))

    def _apply(self, batch: OpenBatch, before_commit: Callable[[], None]) -> Outcome:
        table, schema = str(batch.step.table), batch.schema.schema
        try:
            with (
                self._sessions.active() as session,
                MergeFrames(session, schema, batch.key) as frames,
            ):
                return self._merged(session, frames, batch, before_commit)
        except MirrorlakeError as error:
            return Failed(error)
        except TasksDied as died:
            return Failed(worker_lost(table, str(died)))
        except RAISED as error:
            return Failed(fault(error, table, "merging"))

    def _merged(
        self,
        session: SparkSession,
        frames: MergeFrames,
        batch: OpenBatch,
        before_commit: Callable[[], None],
    ) -> Outcome:
        step = batch.step
        looked = self._look(session, frames, batch)
        for report in looked.reports:
            if report.error is not None:
                return Failed(report.error)
        self._reached(CrashPoint.BATCH_WRITTEN)
        if step.names and (file := first_changed(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = Counts.total(report.counts for report in looked.reports)
        read = [rows for report in looked.reports for rows in report.read]
        kinds = frozenset(kind for report in looked.reports for kind in report.kinds)
        before_commit()
        self._reached(CrashPoint.COMMIT_BEGUN)
        user_metadata = json.dumps(
            commit_metadata(step, batch.progress, counts, read, self._identity)
        )
        source = MergeSource(looked.rows, kinds, looked.reports[0].marks)
        outcome = self._committed(session, batch, source, user_metadata, counts)
        self._reached(CrashPoint.COMMITTED)
        return outcome

    # -- what is to be done -----------------------------------------------------------------------

    def _look(self, session: SparkSession, frames: MergeFrames, batch: OpenBatch) -> MergeFrame:
        """The merge actions of a batch."""
        tasks = list(self._tasks(batch))
        with self._runner.tagged():
            if batch.step.backfill:
                keys = batch.step.backfill.keys
                present = keys_between(session, batch, keys)
                tasks = [replace(tasks[0], keys=keys, present=present)]
            looked = frames.first_look(tasks)
            (first, *_others) = looked.reports
            if first.needs == COUNT:
                return frames.first_look([replace(tasks[0], gone=count(session, batch))])
            if first.needs == KEYS:
                found = look_up(session, batch, looked.rows, whole=first.whole)
                return frames.second_look(tasks[0], found)
        return looked

    def _tasks(self, batch: OpenBatch) -> Iterator[MergeTask]:
        """The batch as one task, or one task per file of a load, whose rows are all inserts."""
        step, rows = batch.step, batch.rows()
        landed = landed_paths(self._store, step.files)
        if step.is_load and not step.truncated and len(landed) > 1:
            yield from (MergeTask(rows, (file,)) for file in landed)
        else:
            yield MergeTask(
                rows, tuple(landed), step.truncated, skip_equal=step.skip_equal, soft=batch.soft
            )

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)

    # -- the commit -------------------------------------------------------------------------------

    def _committed(
        self,
        session: SparkSession,
        batch: OpenBatch,
        source: MergeSource,
        user_metadata: str,
        counts: Counts,
    ) -> Outcome:
        log = TableLog(batch.location, batch.options)
        if log.has(batch.version + 1):
            return Conflicted(f"another commit was made to the table after version {batch.version}")
        session.conf.unset(LAST_VERSION)
        is_append = source.kinds <= {MergeAction.INSERT} and not batch.step.truncated
        if not is_append and (shut := _unmergeable(batch)):
            return Failed(shut)
        try:
            with self._runner.tagged():
                (append if is_append else merge)(session, batch, source, user_metadata)
        except RAISED as error:
            damaged = damage(error, str(batch.step.table))
            if damaged and not log.has(batch.version + 1):  # not after the commit, by compaction
                return Failed(damaged)
            return raised(error, str(batch.step.table), NewerVersion.__name__)
        newest = session.conf.get(LAST_VERSION, None)
        if newest is None:  # Delta found our number, or a later one
            return Conflicted("the batch has been recorded in the meantime")
        version = _version(log, batch, int(newest))
        if not is_url(batch.location):
            flush_files(Path(batch.location), log.actions(version))
        return Applied(version, counts)


def _version(log: TableLog, batch: OpenBatch, newest: int) -> int:
    """The version of the batch's commit, which is an earlier one than the newest if Delta compacted
    files after it."""
    for version in range(batch.version + 1, newest):
        for action in log.actions(version):
            txn = action.get("txn") or {}
            if (txn.get("appId"), txn.get("version")) == (
                batch.progress.application,
                batch.step.last,
            ):
                return version
    return newest


def _unmergeable(batch: OpenBatch) -> UnsupportedColumn | None:
    """The error for a column whose name Delta's `MERGE` cannot handle when it writes change
    data."""
    name = next((name for name in batch.schema.schema.names if "`" in name), None)
    if name is None:
        return None
    return UnsupportedColumn(
        "Delta's MERGE cannot write a table that has a backtick in a column name",
        table=str(batch.step.table),
        column=name,
        hint="Set mirror.strategy to auto, or rename the column.",
    )
