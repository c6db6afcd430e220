"""The engine on Spark: one job carries the batches of many tables, one commit each.

Tasks read, fold, find and write; the driver commits. Progress is read from the log of the table.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from mirrorlake.errors import ForeignTable, MirrorlakeError, TableError, printable
from mirrorlake.lake import schema as schemas
from mirrorlake.lake.log import Snapshot, TableLog
from mirrorlake.landing import layout
from mirrorlake.landing.identity import Identity, altered
from mirrorlake.landing.scan import Landed
from mirrorlake.mirror.compaction import choose
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Conflicted,
    Counts,
    Failed,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.progress import (
    Progress,
    progress_of,
    read_named_batches,
    read_progress,
    snapshot_of,
    table_at,
)
from mirrorlake.mirror.receipt import receipt
from mirrorlake.mirror.steps import (
    AddColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    DropTable,
    SetKey,
)
from mirrorlake.model.landed import NamedBatch
from mirrorlake.model.seams import Point, Probe, no_probe
from mirrorlake.model.table import TableId
from mirrorlake.spark import tables, task
from mirrorlake.spark.commit import Commit, Committer, Rearrangement
from mirrorlake.spark.refusals import RAISED, fault, refusals
from mirrorlake.spark.session import Spark
from mirrorlake.spark.vacuum import vacuum
from mirrorlake.storage.local import flush_folder
from mirrorlake.storage.store import Store

log = structlog.get_logger()

COMMITTERS = 4
"""Commits wait for the file system more than they compute."""


@dataclass(slots=True)
class _Prepared:
    """A batch between its reading and its commit."""

    step: ApplyFiles
    progress: Progress
    version: int
    specs: list[task.TaskSpec]


@dataclass(slots=True)
class _Chosen:
    """Files between their choice and the commit that rearranges them."""

    location: str
    version: int
    specs: list[task.CompactSpec]


class SparkEngine:
    """A `MirrorEngine` on a Spark session. `store` locates landed files and tables."""

    def __init__(self, spark: Spark, store: Store, probe: Probe = no_probe) -> None:
        self._spark, self._store, self._probe = spark.session, store, probe
        self._committer = Committer(spark.session)
        self._logs: dict[str, TableLog] = {}
        self._tag = f"mirrorlake-{uuid.uuid4().hex[:12]}"

    def progress(self, path: str) -> Progress:
        return read_progress(self._log(path), table_at(path))

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return read_named_batches(self._log(path), table_at(path), after)

    def create(self, step: CreateTable) -> None:
        with refusals(step.table):
            if step.replace:
                self._log(step.path).forget()
                tables.drop(self._spark, self._store, step.path)
            tables.create(self._spark, self._store.location(step.path), step)
        self._probe(Point.TABLE_CREATED)

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        return list(layout.delta_tables(self._store, known))

    def drop(self, step: DropTable) -> None:
        if self.progress(step.path).generation != step.generation:
            return
        self._log(step.path).forget()
        with refusals(step.table):
            tables.put_aside(self._spark, self._store, step.path)
        self._probe(Point.TABLE_DROPPED)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        with refusals(TableId.parse(table_at(path))):
            vacuum(self._spark, self._store.location(path), retention, before_commit)

    def add_columns(self, step: AddColumns) -> None:
        known = self.progress(step.path).schema
        with refusals(step.table):
            tables.add_columns(self._spark, self._store.location(step.path), step, known)
        self._probe(Point.COLUMNS_ADDED)

    def set_key(self, step: SetKey) -> None:
        with refusals(step.table):
            tables.set_key(self._spark, self._store.location(step.path), step)

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        cores = self._spark.sparkContext.defaultParallelism
        threads = max(1, cores // max(1, len(steps)))
        begun = [self._begun(step, threads) for step in steps]
        prepared = [one for one in begun if isinstance(one, _Prepared)]
        results = iter(self._run([spec for batch in prepared for spec in batch.specs]))
        finished = [(batch, [next(results) for _ in batch.specs]) for batch in prepared]
        self._probe(Point.BATCH_WRITTEN)
        with ThreadPoolExecutor(COMMITTERS, thread_name_prefix="commit") as pool:
            committed = pool.map(lambda one: self._commit(one[0], one[1], before_commit), finished)
            return [next(committed) if isinstance(one, _Prepared) else one for one in begun]

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        chosen = [self._chosen(step) for step in steps]
        work = [spec for one in chosen if one for spec in one.specs]
        results = iter(self._run(work))
        if work:
            self._probe(Point.FILES_COMPACTED)
        return [
            self._rearranged(one, next(results), before_commit) if one else None for one in chosen
        ]

    def settle(self, path: str, version: int) -> None:
        location = Path(self._store.location(path))
        commit = self._log(path).commit_file(version)
        with commit.open("rb") as file:
            os.fsync(file.fileno())
        for folder in (commit.parent, location / "_change_data", location):
            if folder.exists():
                flush_folder(folder)
        self._probe(Point.COMMIT_DURABLE)

    def cancel(self) -> None:
        """End our own jobs, and no others of the session."""
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _log(self, path: str) -> TableLog:
        if path not in self._logs:
            self._logs[path] = TableLog(self._store.location(path))
        return self._logs[path]

    def _snapshot(self, path: str, table: str) -> Snapshot:
        return snapshot_of(self._log(path), table)

    def _begun(self, step: ApplyFiles, threads: int) -> _Prepared | Outcome:
        """The batch on the newest version of its table; an outcome when it does not fit it.

        All is decided on one snapshot: what it has recorded is what the commit rests on.
        """
        try:
            snapshot = self._snapshot(step.path, str(step.table))
        except ForeignTable as error:
            return Failed(error)
        progress = progress_of(snapshot)
        if progress.recorded >= step.last:
            return AlreadyApplied(progress.recorded)
        if progress.recorded != step.first - 1:
            return Conflicted(f"the table has recorded {progress.recorded}, not {step.first - 1}")
        if not progress.exists or progress.restored is not None or progress.unsupported:
            return Conflicted("the table is not what was planned for")
        specs = list(self._specs(step, progress.required, snapshot, threads))
        return _Prepared(step, progress, snapshot.version, specs)

    def _specs(
        self, step: ApplyFiles, required: tuple[str, ...], snapshot: Snapshot, threads: int
    ) -> Iterator[task.TaskSpec]:
        """The tasks of a batch: one, or one per file of a load, whose rows touch nothing."""
        landed = [
            task.LandedPath(str(file.name), self._store.location(file.path), file.size, file.text)
            for file in step.files
        ]
        alone = step.is_load and not step.truncated
        groups = [(file,) for file in landed] if alone and landed else [tuple(landed)]
        for group in groups:
            yield task.TaskSpec(
                table=str(step.table),
                location=self._store.location(step.path),
                schema=schemas.parse(snapshot.metadata),
                key=step.key,
                default=step.default,
                landed=group,
                truncate=step.truncated,
                files=() if alone else tuple(snapshot.files.values()),
                threads=threads,
                required=required,
                demands=step.demands,
            )

    def _chosen(self, step: Compact) -> _Chosen | None:
        """The files to rearrange, on the newest version of the table."""
        try:
            snapshot = self._snapshot(step.path, str(step.table))
        except ForeignTable:
            return None  # its next batch says so
        files = choose(list(snapshot.files.values()))
        if not files or progress_of(snapshot).unsupported:
            return None
        location = self._store.location(step.path)
        schema = schemas.parse(snapshot.metadata)
        spec = task.CompactSpec(str(step.table), location, schema, step.key, files)
        return _Chosen(location, snapshot.version, [spec])

    def _rearranged(
        self, chosen: _Chosen, result: task.TaskResult, before_commit: Callable[[], None]
    ) -> Outcome:
        if result.error is not None:
            return Failed(result.error)
        before_commit()
        try:
            outcome = self._committer.rearrange(
                Rearrangement(chosen.location, chosen.version, result.actions)
            )
        except RAISED as error:
            return Failed(fault(error, chosen.specs[0].table, "rearranging"))
        self._probe(Point.COMPACTION_COMMITTED)
        return outcome

    def _run(self, specs: Sequence[task.TaskSpec | task.CompactSpec]) -> list[task.TaskResult]:
        """One Spark job, a task per specification."""
        if not specs:
            return []
        context = self._spark.sparkContext
        context.addJobTag(self._tag)
        try:
            results: list[task.TaskResult] = (
                context.parallelize(specs, len(specs)).map(task.run).collect()
            )
        finally:
            context.removeJobTag(self._tag)
        return results

    def _commit(
        self,
        batch: _Prepared,
        results: list[task.TaskResult],
        before_commit: Callable[[], None],
    ) -> Outcome:
        step = batch.step
        for result in results:
            if result.error is not None:
                return Failed(result.error)
        if step.names and (file := altered(self._store, step.files)):
            return Conflicted(f"{printable(file.name)} changed while it was read")
        counts = _total(results)
        read = [rows for result in results for rows in result.read]
        try:
            before_commit()
            self._probe(Point.COMMIT_BEGUN)
            outcome = self._committer.commit(
                Commit(
                    location=self._store.location(step.path),
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
        if isinstance(outcome, Unknown):
            return self._read_back(step, outcome)
        return outcome

    def _identity(self, file: Landed) -> Identity | None:
        return Identity.of(self._store, file)

    def _read_back(self, step: ApplyFiles, outcome: Unknown) -> Outcome:
        """A commit whose answer was lost: the table knows whether it happened."""
        self._log(step.path).forget()
        try:
            recorded = self.progress(step.path).recorded
        except TableError as error:
            return Failed(error)
        if recorded >= step.last:
            return AlreadyApplied(recorded)
        log.warning("commit_unanswered", table=str(step.table), reason=outcome.reason)
        return outcome


def _total(results: Sequence[task.TaskResult]) -> Counts:
    return Counts(
        insert=sum(result.counts.insert for result in results),
        update=sum(result.counts.update for result in results),
        delete=sum(result.counts.delete for result in results),
        duplicates=sum(result.counts.duplicates for result in results),
    )
