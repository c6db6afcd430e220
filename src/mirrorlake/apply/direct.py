"""The direct strategy: tasks read, fold, look up and write; the driver commits their actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import structlog

from mirrorlake.apply import input_splits
from mirrorlake.apply.commit_metadata import commit_metadata
from mirrorlake.apply.committer import BatchCommit, Committer
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.apply.stages.spread import Spread, SpreadSettings
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.apply.task.batch import BatchResult, BatchTask, rows_of_files, run_batch
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.apply.task.landed_rows import landed_paths
from mirrorlake.apply.task_packing import packed
from mirrorlake.delta.file_list import in_columns
from mirrorlake.errors import MirrorlakeError, printable
from mirrorlake.landing.file_identity import Identity, altered
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.compaction.small_files import taken_along
from mirrorlake.mirror.engine import Conflicted, Counts, Failed, Outcome
from mirrorlake.model.change import Marker
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store

log = structlog.get_logger()

COMMITTERS = 4
"""Commits wait for the file system more than they compute."""

TASKS_DIED = "tasks_died"


class Direct:
    """A `Strategy`: one job carries the batches of many tables, one commit each.

    A batch that is too large for one task goes in stages, in jobs of its own. joins: batches join
    small files of their tables on their way.
    """

    def __init__(
        self,
        runner: Runner,
        committer: Committer,
        store: Store,
        reached: CrashHook,
        spread: SpreadSettings | None = None,
        *,
        joins: bool = True,
    ) -> None:
        self._runner, self._committer, self._store = runner, committer, store
        self._reached, self._joins = reached, joins
        self._spread = Spread(runner, reached, spread)
        # For as long as there are batches: each thread has a session of its own.
        self._pool = ThreadPoolExecutor(COMMITTERS, thread_name_prefix="commit")

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        steps, slots = [batch.step for batch in batches], self._runner.slots
        # Each task of a partitioned table would write a file for each partition that it meets.
        spread = [
            batch
            for batch in batches
            if not batch.schema.partitions and self._spread.suits(batch.step, steps, slots)
        ]
        found = {id(batch): self._spread_one(batch) for batch in spread}
        others = [batch for batch in batches if id(batch) not in found]
        found |= zip(map(id, others), self._together(others), strict=True)
        self._reached(CrashPoint.BATCH_WRITTEN)
        return list(
            self._pool.map(
                lambda batch: self._commit(batch, found[id(batch)], before_commit), batches
            )
        )

    def _spread_one(self, batch: OpenBatch) -> list[BatchResult]:
        """The batch in stages; in one task, if that cannot be."""
        try:
            result = self._spread.run(self._whole(batch, 1))
        except TasksDied as died:
            return [BatchResult(error=worker_lost(str(batch.step.table), str(died)))]
        if result is not None:
            return [result]
        (alone,) = self._together([batch])
        return [replace(result, again=True) for result in alone]

    def _together(self, batches: Sequence[OpenBatch]) -> list[list[BatchResult]]:
        """The results of batches, each in one task, or in several where all rows are inserts.

        One of which some row is none after all is then done by one task.
        """
        threads = self._runner.threads(len(batches))
        tasks = [list(self._tasks(batch, threads)) for batch in batches]
        results = iter(self._run([task for some in tasks for task in some]))
        found = [[next(results) for _ in some] for some in tasks]
        over = [
            index
            for index, some in enumerate(found)
            if any(result.not_append_only for result in some)
        ]
        again = self._run([self._whole(batches[index], threads) for index in over])
        for index, result in zip(over, again, strict=True):
            found[index] = [result]
        return found

    def _run(self, tasks: Sequence[BatchTask]) -> list[BatchResult]:
        """The results of tasks, in their order.

        A task that dies with its process ends the job of all. Then each table has a job of its own,
        once and one after another, so that none dies of a neighbour; a table whose tasks die alone
        gets that as its error.
        """
        try:
            return self._runner.run(run_batch, tasks, packed(tasks, self._runner.slots))
        except TasksDied as died:
            tables = dict.fromkeys(task.table for task in tasks)
            log.warning(TASKS_DIED, tables=len(tables), reason=str(died))
            if len(tables) == 1:
                return [BatchResult(error=worker_lost(task.table, str(died))) for task in tasks]
        found: dict[int, BatchResult] = {}
        for table in tables:
            own = [index for index, task in enumerate(tasks) if task.table == table]
            found |= zip(own, self._run([tasks[index] for index in own]), strict=True)
        return [found[index] for index in range(len(tasks))]

    def _tasks(self, batch: OpenBatch, threads: int) -> Iterator[BatchTask]:
        """The tasks of a batch: one, or several where all rows are inserts (`input_splits`)."""
        step = batch.step
        landed = landed_paths(self._store, step.files)
        split = None
        if step.default is Marker.INSERT and not (step.truncated or step.backfill):
            split = input_splits.groups(self._runner, landed, is_load=step.is_load)
        if split:
            groups = split
        elif step.is_load and not step.truncated and landed:
            groups = input_splits.together(landed, self._runner.slots)
        else:
            yield self._whole(batch, threads)
            return
        for group in groups:
            yield BatchTask(
                rows=batch.rows(max(1, threads // len(groups))),
                location=batch.location,
                landed=group,
                truncate=False,
                files=(),
                appends=split is not None,
                options=batch.options,
            )

    def _whole(self, batch: OpenBatch, threads: int) -> BatchTask:
        return BatchTask(
            rows=batch.rows(threads),
            location=batch.location,
            landed=tuple(landed_paths(self._store, batch.step.files)),
            truncate=batch.step.truncated,
            files=in_columns(batch.files),
            joins=taken_along(batch.files) if self._joins else (),
            options=batch.options,
            backfill=batch.step.backfill.keys if batch.step.backfill else None,
        )

    def _commit(
        self,
        batch: OpenBatch,
        results: list[BatchResult],
        before_commit: Callable[[], None],
    ) -> Outcome:
        step = batch.step
        for result in results:
            if result.error is not None:
                return Failed(result.error)
        # A file that is opened by one task after another may have been replaced meanwhile.
        again = any(result.continues or result.again for result in results)
        if (step.names or again) and (file := altered(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = Counts.total(result.counts for result in results)
        read = rows_of_files(results)
        try:
            before_commit()
        except MirrorlakeError as error:
            return Failed(error)
        self._reached(CrashPoint.COMMIT_BEGUN)
        outcome = self._committer.commit(
            BatchCommit(
                table=str(step.table),
                location=batch.location,
                version=batch.version,
                application=batch.progress.application,
                number=step.last,
                actions=[action for result in results for action in result.actions],
                counts=counts,
                metadata=commit_metadata(step, batch.progress, counts, read, self._identity),
                truncated=step.truncated,
            )
        )
        self._reached(CrashPoint.COMMITTED)
        return outcome

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)
