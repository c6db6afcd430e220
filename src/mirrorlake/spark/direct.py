"""The direct way: tasks read, fold, find and write; the driver commits what they hand back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from mirrorlake.errors import MirrorlakeError, printable
from mirrorlake.landing.identity import Identity, altered
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.engine import Conflicted, Counts, Failed, Outcome
from mirrorlake.mirror.receipt import receipt
from mirrorlake.model.change import Marker
from mirrorlake.model.seams import Point, Probe
from mirrorlake.spark import parting, task
from mirrorlake.spark.commit import Commit, Committer
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.refusals import RAISED, fault
from mirrorlake.spark.strategy import Begun
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import options_of

COMMITTERS = 4
"""Commits wait for the file system more than they compute."""


class Direct:
    """A `Strategy`: one Spark job carries the batches of many tables, one commit each."""

    def __init__(self, jobs: Jobs, committer: Committer, store: Store, probe: Probe) -> None:
        self._jobs, self._committer, self._store, self._probe = jobs, committer, store, probe

    def apply(
        self, batches: Sequence[Begun], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        threads = max(1, self._jobs.cores // max(1, len(batches)))
        specs = [list(self._specs(batch, threads)) for batch in batches]
        results = iter(self._jobs.run([spec for some in specs for spec in some]))
        found = [[next(results) for _ in some] for some in specs]
        self._read_whole(batches, found)
        self._probe(Point.BATCH_WRITTEN)
        with ThreadPoolExecutor(COMMITTERS, thread_name_prefix="commit") as pool:
            return list(
                pool.map(
                    lambda batch, some: self._commit(batch, some, before_commit), batches, found
                )
            )

    def _read_whole(self, batches: Sequence[Begun], found: list[list[task.TaskResult]]) -> None:
        """Do over, by one task each, the batches that were read in parts and touch rows."""
        again = [i for i, some in enumerate(found) if any(result.touches for result in some)]
        threads = max(1, self._jobs.cores // max(1, len(again)))
        specs = [spec for i in again for spec in self._specs(batches[i], threads, whole=True)]
        for i, result in zip(again, self._jobs.run(specs), strict=True):
            found[i] = [result]

    def _specs(self, batch: Begun, threads: int, *, whole: bool = False) -> Iterator[task.TaskSpec]:
        """The tasks of a batch: one, or several where rows touch nothing.

        Then there is one per file of a load, and for texts see `parting`.
        """
        step = batch.step
        place, options = self._store.location, options_of(self._store)
        landed = [
            task.LandedPath(str(file.name), place(file.path), file.size, file.text, options)
            for file in step.files
        ]
        alone = step.is_load and not step.truncated and not whole
        parted = None
        if step.default is Marker.INSERT and not step.truncated and not whole:
            parted = parting.groups(self._jobs, landed, is_load=step.is_load)
        groups = parted or ([(file,) for file in landed] if alone and landed else [tuple(landed)])
        for group in groups:
            yield task.TaskSpec(
                table=str(step.table),
                location=batch.location,
                schema=batch.schema,
                key=step.key,
                default=step.default,
                landed=group,
                truncate=step.truncated,
                files=() if alone or parted else batch.files,
                threads=max(1, threads // len(groups)),
                required=batch.progress.required,
                demands=step.demands,
                appends=parted is not None,
            )

    def _commit(
        self, batch: Begun, results: list[task.TaskResult], before_commit: Callable[[], None]
    ) -> Outcome:
        step = batch.step
        for result in results:
            if result.error is not None:
                return Failed(result.error)
        if step.names and (file := altered(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = _total(results)
        read = task.rows_of_files(results)
        try:
            before_commit()
            self._probe(Point.COMMIT_BEGUN)
            outcome = self._committer.commit(
                Commit(
                    location=batch.location,
                    version=batch.version,
                    application=batch.progress.application,
                    number=step.last,
                    actions=[action for result in results for action in result.actions],
                    counts=counts,
                    metadata=receipt(step, batch.progress, counts, read, self._identity),
                )
            )
            self._probe(Point.COMMITTED)
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
