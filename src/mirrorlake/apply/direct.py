"""The strategy `direct`: tasks read, fold, look up and write; the driver commits their actions."""

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
from mirrorlake.landing.file_identity import Identity, first_changed
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.compaction.small_files import files_to_join
from mirrorlake.mirror.engine import Conflicted, Counts, Failed, Outcome
from mirrorlake.model.change import Marker
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store

log = structlog.get_logger()

COMMITTERS = 4
"""Number of parallel commits, which mostly wait for the file system."""

TASKS_DIED = "tasks_died"


class Direct:
    """A `Strategy` that applies the batches of many tables in one job, with one commit per table.

    A batch that is too large for one task is spread over several tasks, in jobs of its own. joins:
    batches also join small files of their tables.
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
        # Never shut down, because each thread has a session of its own.
        self._pool = ThreadPoolExecutor(COMMITTERS, thread_name_prefix="commit")
        self._is_prepared = False

    def apply(
        self, batches: Sequence[OpenBatch], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        if batches and not self._is_prepared:
            self._is_prepared = True
            self._pool.submit(self._committer.prepare, batches[0].location)
        steps, slots = [batch.step for batch in batches], self._runner.slots
        # Not for partitioned tables: each task would write a file per partition.
        spread = [
            batch
            for batch in batches
            if not batch.schema.partitions and self._spread.suits(batch.step, steps, slots)
        ]
        found = {id(batch): self._spread_one(batch) for batch in spread}
        others = [batch for batch in batches if id(batch) not in found]
        found |= zip(map(id, others), self._run_batches(others), strict=True)
        self._reached(CrashPoint.BATCH_WRITTEN)
        return list(
            self._pool.map(
                lambda batch: self._commit(batch, found[id(batch)], before_commit), batches
            )
        )

    def _spread_one(self, batch: OpenBatch) -> list[BatchResult]:
        """Apply a batch in stages, or in one task if that is not possible."""
        try:
            result = self._spread.run(self._whole_task(batch, 1), batch.step.estimate.rows)
        except TasksDied as died:
            return [BatchResult(error=worker_lost(str(batch.step.table), str(died)))]
        if result is not None:
            return [result]
        (alone,) = self._run_batches([batch])
        return [replace(result, again=True) for result in alone]

    def _run_batches(self, batches: Sequence[OpenBatch]) -> list[list[BatchResult]]:
        """Apply each batch in one task, or in several if all rows are inserts.

        If a row turns out not to be an insert, the batch is applied again in one task.
        """
        if not batches:
            return []
        threads = self._runner.threads(len(batches))
        tasks = [list(self._tasks(batch, threads)) for batch in batches]
        results = iter(self._run([task for group in tasks for task in group]))
        found = [[next(results) for _ in group] for group in tasks]
        over = [
            index
            for index, group in enumerate(found)
            if any(result.not_append_only for result in group)
        ]
        again = self._run([self._whole_task(batches[index], threads) for index in over])
        for index, result in zip(over, again, strict=True):
            found[index] = [result]
        return found

    def _run(self, tasks: Sequence[BatchTask]) -> list[BatchResult]:
        """The results of tasks, in their order.

        If a task dies with its process, the whole job ends. Then the tasks of each table run again
        in a job of their own, one table after another; a table whose tasks die again gets an error.
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
        """The tasks of a batch: one, or several if all rows are inserts (`input_splits`)."""
        step = batch.step
        landed = landed_paths(self._store, step.files)
        split, takes = None, False
        looks_up = step.truncated or step.backfill or (step.marks and step.key)
        if step.default is Marker.INSERT and not looks_up:
            split = input_splits.split_inserts(self._runner, landed, is_load=step.is_load)
        if split:
            groups = split
        elif step.is_load and not step.truncated and landed:
            groups = input_splits.group_files(landed, self._runner.slots)
            takes = True
        else:
            yield self._whole_task(batch, threads)
            return
        for group in groups:
            yield BatchTask(
                rows=batch.rows(max(1, threads // len(groups))),
                location=batch.location,
                landed=group,
                truncate=False,
                files=(),
                appends=split is not None,
                takes=takes,
                options=batch.options,
            )

    def _whole_task(self, batch: OpenBatch, threads: int) -> BatchTask:
        return BatchTask(
            rows=batch.rows(threads),
            location=batch.location,
            landed=tuple(landed_paths(self._store, batch.step.files)),
            truncate=batch.step.truncated,
            files=in_columns(batch.files),
            joins=files_to_join(batch.files) if self._joins else (),
            options=batch.options,
            backfill=batch.step.backfill.keys if batch.step.backfill else None,
            skip_equal=batch.step.skip_equal,
            soft=batch.soft,
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
        # A file that was opened several times may have been replaced in the meantime.
        again = any(result.continues or result.again for result in results)
        if (step.names or again) and (file := first_changed(self._store, step.files)):
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
                creates=batch.creates,
            )
        )
        self._reached(CrashPoint.COMMITTED)
        return outcome

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)
