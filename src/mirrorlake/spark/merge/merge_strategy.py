"""The plain way: one `MERGE`, or one append, by the public interface of Delta and nothing else.

For tables that only Delta itself can write right, and for versions whose insides nobody looked at.
Everything that decides what becomes of a row is ours all the same: tasks fold the batch, Spark
looks up the rows that the table has of its keys, and `apply/merge_actions.py` compares the two.

Exactly once. Delta's record of an application refuses a number that is not larger, and no more: a
batch of files 1 to 5 would follow one of 1 to 3. So the source of each commit holds a fence, a row
that is computed inside Delta's transaction and fails when the table has a version beyond the one
that the batch was begun on. What comes later, Delta finds: both commits bear one application id.
See docs/exactly-once.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from mirrorlake.apply.commit_metadata import commit_metadata
from mirrorlake.apply.merge_actions import MergeAction
from mirrorlake.delta.log.durability import flush_files
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import MirrorlakeError, UnsupportedColumn, printable
from mirrorlake.landing.file_identity import Identity, altered
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed, Outcome
from mirrorlake.model.seams import CrashHook, CrashPoint
from mirrorlake.root import MERGING
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.merge import task
from mirrorlake.spark.merge.statements import MovedOn, Source, append, look_up, merge
from mirrorlake.spark.merge.task import MergeResult, MergeSpec
from mirrorlake.spark.refusals import RAISED, fault, raised
from mirrorlake.spark.session.thread_sessions import UTC, Sessions
from mirrorlake.spark.strategy import Begun
from mirrorlake.spark.task import TaskSpec, landed_paths
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
    """A `Strategy`: of each batch one `MERGE`, or one append if all it does is insert."""

    def __init__(self, jobs: Jobs, spark: SparkSession, store: Store, reached: CrashHook) -> None:
        self._jobs, self._sessions = jobs, Sessions(spark, SETTINGS)
        self._store, self._reached = store, reached
        self._cleared: set[str] = set()

    def apply(
        self, batches: Sequence[Begun], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        with ThreadPoolExecutor(MERGES, thread_name_prefix="merge") as pool:
            return list(pool.map(lambda batch: self._apply(batch, before_commit), batches))

    def _apply(self, batch: Begun, before_commit: Callable[[], None]) -> Outcome:
        folder = self._folder(batch)
        try:
            with self._sessions.active() as session:
                return self._merged(session, batch, self._store.location(folder), before_commit)
        except MirrorlakeError as error:
            return Failed(error)
        except RAISED as error:
            return Failed(fault(error, str(batch.step.table), "merging"))
        finally:
            self._store.delete_folder(folder)

    def _folder(self, batch: Begun) -> str:
        """Where the files of a batch lie meanwhile. What a crash has left there goes."""
        index = f"{MERGING}/{batch.step.path}"
        if index not in self._cleared:
            self._store.delete_folder(index)
            self._cleared.add(index)
        return f"{index}/{uuid.uuid4()}"

    def _merged(
        self, session: SparkSession, batch: Begun, folder: str, before_commit: Callable[[], None]
    ) -> Outcome:
        step = batch.step
        prepared = self._prepared(session, batch, folder)
        for part in prepared:
            if part.error is not None:
                return Failed(part.error)
        self._reached(CrashPoint.BATCH_WRITTEN)
        if step.names and (file := altered(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = sum_of([part.counts or Counts() for part in prepared])
        read = [rows for part in prepared for rows in part.read]
        source = Source(
            tuple(part.source for part in prepared if part.source),
            frozenset(action for part in prepared for action in part.does),
        )
        before_commit()
        self._reached(CrashPoint.COMMIT_BEGUN)
        said = json.dumps(commit_metadata(step, batch.progress, counts, read, self._identity))
        outcome = self._committed(session, batch, source, said, counts)
        self._reached(CrashPoint.COMMITTED)
        return outcome

    # -- what is to be done -------------------------------------------------------------------

    def _prepared(self, session: SparkSession, batch: Begun, folder: str) -> list[MergeResult]:
        """The acts of a batch as files, and what they come to."""
        specs = [MergeSpec(spec, folder) for spec in self._specs(batch)]
        results = self._jobs.map(task.run, specs)
        (first, *_) = results
        if len(results) > 1 or first.error is not None or first.source:
            return results
        (spec,) = specs
        if spec.batch.truncate:
            deleted = self._count(session, batch)
            return self._jobs.map(task.run, [MergeSpec(spec.batch, folder, deleted=deleted)])
        found = f"{folder}/found"
        self._look_up(session, batch, first, found)
        return self._jobs.map(task.run, [MergeSpec(spec.batch, folder, found)])

    def _count(self, session: SparkSession, batch: Begun) -> int:
        """The rows of the table."""
        with self._jobs.tagged():
            return session.read.format("delta").load(batch.location).count()

    def _look_up(
        self, session: SparkSession, batch: Begun, wanted: MergeResult, target: str
    ) -> None:
        with self._jobs.tagged():
            look_up(session, batch, wanted, target)

    def _specs(self, batch: Begun) -> Iterator[TaskSpec]:
        """The batch as one task, or one per file of a load, whose rows touch nothing."""
        step = batch.step
        landed = landed_paths(self._store, step.files)
        alone = step.is_load and not step.truncated and len(landed) > 1
        for group in [(file,) for file in landed] if alone else [tuple(landed)]:
            yield TaskSpec(
                table=str(step.table),
                location=batch.location,
                schema=batch.schema,
                key=step.key,
                default=step.default,
                landed=group,
                truncate=step.truncated,
                files=(),
                required=batch.progress.required,
                row_checks=step.row_checks,
            )

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)

    # -- the commit ---------------------------------------------------------------------------

    def _committed(
        self, session: SparkSession, batch: Begun, source: Source, said: str, counts: Counts
    ) -> Outcome:
        log = TableLog(batch.location, batch.options)
        if log.has(batch.version + 1):
            return Conflicted(f"the table has moved on from version {batch.version}")
        session.conf.unset(LAST_VERSION)
        rows = source.rows(session, batch)
        is_append = source.does <= {MergeAction.INSERT} and not batch.step.truncated
        if not is_append and (shut := _unmergeable(batch)):
            return Failed(shut)
        try:
            with self._jobs.tagged():
                (append if is_append else merge)(session, batch, source, rows, said)
        except RAISED as error:
            return raised(error, str(batch.step.table), MovedOn.__name__)
        newest = session.conf.get(LAST_VERSION, None)
        if newest is None:  # Delta has found our number, or a later one
            return Conflicted("the batch was recorded meanwhile")
        version = _version(log, batch, int(newest))
        if not is_url(batch.location):
            flush_files(Path(batch.location), log.actions(version))
        return Applied(version, counts)


def _version(log: TableLog, batch: Begun, newest: int) -> int:
    """The version that a batch made: that of the commit, or of an earlier one if Delta rearranged
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


def _unmergeable(batch: Begun) -> UnsupportedColumn | None:
    """A column under whose name Delta's `MERGE` finds no way to its change images."""
    name = next((name for name in batch.schema.schema.names if "`" in name), None)
    if name is None:
        return None
    return UnsupportedColumn(
        "Delta's MERGE cannot write a table with a backtick in the name of a column",
        table=str(batch.step.table),
        column=name,
        hint="Leave mirror.strategy at auto, or give the column another name.",
    )


def sum_of(counts: Sequence[Counts]) -> Counts:
    """What several tasks have counted, together."""
    return Counts(
        insert=sum(one.insert for one in counts),
        update=sum(one.update for one in counts),
        delete=sum(one.delete for one in counts),
        duplicates=sum(one.duplicates for one in counts),
    )
