"""The direct way: tasks read, fold, find and write; the driver commits what they hand back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from mirrorlake.apply.commit_metadata import commit_metadata
from mirrorlake.errors import MirrorlakeError, printable
from mirrorlake.landing.file_identity import Identity, altered
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.compaction import taken_along
from mirrorlake.mirror.engine import Conflicted, Counts, Failed, Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.change import Marker
from mirrorlake.model.seams import CrashHook, CrashPoint
from mirrorlake.spark import parting, task
from mirrorlake.spark.commit import Commit, Committer
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.refusals import RAISED, fault
from mirrorlake.spark.spread import Spread
from mirrorlake.spark.strategy import Begun
from mirrorlake.spark.waves import Waves, together
from mirrorlake.storage.store import Store

COMMITTERS = 4
"""Commits wait for the file system more than they compute."""


class Direct:
    """A `Strategy`: one Spark job carries the batches of many tables, one commit each.

    A batch that is too large for one task is spread over many, in further jobs. joins: batches join
    small files of their tables on their way.
    """

    def __init__(
        self,
        jobs: Jobs,
        committer: Committer,
        store: Store,
        reached: CrashHook,
        spread: Spread | None = None,
        *,
        joins: bool = True,
    ) -> None:
        self._jobs, self._committer, self._store, self._reached = jobs, committer, store, reached
        self._spread, self._joins = spread or Spread(store, reached), joins
        # For as long as there are batches: each thread has a session of its own.
        self._pool = ThreadPoolExecutor(COMMITTERS, thread_name_prefix="commit")

    def apply(
        self, batches: Sequence[Begun], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        slots = self._jobs.slots
        steps = [batch.step for batch in batches]
        found = together(
            [
                self._spreading(batch, steps, slots)
                # Each task would write a file for each partition that it meets.
                if not batch.schema.partitions and self._spread.suits(batch.step, steps, slots)
                else self._alone(batch, len(batches))
                for batch in batches
            ],
            self._jobs.run,
        )
        self._reached(CrashPoint.BATCH_WRITTEN)
        return list(
            self._pool.map(
                lambda batch, some: self._commit(batch, some, before_commit), batches, found
            )
        )

    def _spreading(
        self, batch: Begun, steps: Sequence[ApplyFiles], slots: int
    ) -> Waves[list[task.TaskResult]]:
        """The batch on many tasks; on one, if that cannot be."""
        (spec,) = self._specs(batch, 1, whole=True)
        as_crew = self._spread.is_for_crew(batch.step, steps, slots)
        results = yield from self._spread.waves(spec, slots, as_crew=as_crew)
        if results is None:
            alone = yield from self._alone(batch, 1)
            results = [replace(result, again=True) for result in alone]
        return results

    def _alone(self, batch: Begun, batches: int) -> Waves[list[task.TaskResult]]:
        """The batch beside so many others: on one task, or on several where its rows touch nothing.

        It is done over by one task when they touch something after all.
        """
        threads = self._jobs.threads(batches)
        results = yield list(self._specs(batch, threads))
        if any(result.touches for result in results):
            results = yield list(self._specs(batch, threads, whole=True))
        return results

    def _specs(self, batch: Begun, threads: int, *, whole: bool = False) -> Iterator[task.TaskSpec]:
        """The tasks of a batch: one, or several where rows touch nothing.

        Then they are parted as `parting` says.
        """
        step = batch.step
        landed = task.landed_paths(self._store, step.files)
        alone = step.is_load and not step.truncated and not whole
        parted = None
        if step.default is Marker.INSERT and not step.truncated and not whole:
            parted = parting.groups(self._jobs, landed, is_load=step.is_load)
        is_whole = not (alone or parted)
        groups = parted or [tuple(landed)]
        if alone and not parted and landed:
            groups = parting.together(landed, self._jobs.slots)
        for group in groups:
            yield task.TaskSpec(
                table=str(step.table),
                location=batch.location,
                schema=batch.schema,
                key=step.key,
                default=step.default,
                landed=group,
                truncate=step.truncated,
                files=batch.files if is_whole else (),
                threads=max(1, threads // len(groups)),
                required=batch.progress.required,
                row_checks=step.row_checks,
                appends=parted is not None,
                joins=taken_along(batch.files) if is_whole and self._joins else (),
                options=batch.options,
            )

    def _commit(
        self, batch: Begun, results: list[task.TaskResult], before_commit: Callable[[], None]
    ) -> Outcome:
        step = batch.step
        for result in results:
            if result.error is not None:
                return Failed(result.error)
        # A file that is opened by one task after another may have been replaced meanwhile.
        again = any(result.continues or result.again for result in results)
        if (step.names or again) and (file := altered(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = _total(results)
        read = task.rows_of_files(results)
        try:
            before_commit()
            self._reached(CrashPoint.COMMIT_BEGUN)
            outcome = self._committer.commit(
                Commit(
                    location=batch.location,
                    version=batch.version,
                    application=batch.progress.application,
                    number=step.last,
                    actions=[action for result in results for action in result.actions],
                    counts=counts,
                    metadata=commit_metadata(step, batch.progress, counts, read, self._identity),
                )
            )
            self._reached(CrashPoint.COMMITTED)
        except MirrorlakeError as error:
            return Failed(error)
        except RAISED as error:
            return Failed(fault(error, str(step.table), "committing"))
        return outcome

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)


def _total(results: Sequence[task.TaskResult]) -> Counts:
    return Counts(
        insert=sum(result.counts.insert for result in results),
        update=sum(result.counts.update for result in results),
        delete=sum(result.counts.delete for result in results),
        duplicates=sum(result.counts.duplicates for result in results),
    )
