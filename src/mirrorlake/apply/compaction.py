"""Compaction of tables between batches (CF-156).

A table is compacted by the strategy that writes it: by our own tasks for `direct`, and by Delta's
commands for `merge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mirrorlake.apply.committer import Committer, CompactionCommit
from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.apply.task.compact import CompactResult, CompactTask, run_compact
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import ForeignTable
from mirrorlake.mirror.compaction import clustering, optimize
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.clustering import Clustering
from mirrorlake.mirror.compaction.optimize import Join, Purge
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, Outcome
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.strategy import Choice, StrategyName
from mirrorlake.mirror.table.progress import Progress, table_name
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

CLUSTERED = "clustering"
"""The table feature of liquid clustering. Such tables are not compacted: OPTIMIZE accepts no
parameters for them, and each run would rewrite everything that is not in a cluster of 100 GB."""

Files = Sequence[Mapping[str, Any]]
"""Add actions of files that our own tasks join."""

Work = Files | Clustering | Join | Purge


class Optimizer(Protocol):
    """Runs Delta's commands, which commit themselves."""

    def run(
        self, table: str, location: str, schema: TableSchema, command: Join | Purge
    ) -> Outcome | None:
        """Run a command. Returns None if Delta found nothing to do. Rows and change feed do not
        change, also after an error."""
        ...


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The compaction of one version of a table."""

    step: Compact
    location: str
    version: int
    schema: TableSchema
    key: tuple[str, ...]
    work: Work


class Compactor:
    """Compacts tables. choice: chooses the strategy of a table; optimizer: for tables of `merge`,
    which are not compacted without one."""

    def __init__(
        self,
        runner: Runner,
        committer: Committer,
        store: Store,
        logs: TableLogs,
        choice: Callable[[Progress], Choice],
        reached: CrashHook,
        optimizer: Optimizer | None = None,
    ) -> None:
        self._runner, self._committer, self._store = runner, committer, store
        self._logs, self._choice, self._reached = logs, choice, reached
        self._optimizer = optimizer

    def step(self, path: str) -> Compact | None:
        """The compaction that a table needs now; None if it needs none."""
        chosen = self._chosen(TableId.parse(table_name(path)), path)
        return chosen.step if chosen else None

    def clustering(self, path: str) -> Compact | None:
        """The clustering that pays for a table now; None if none does."""
        chosen = self._chosen(TableId.parse(table_name(path)), path, clusters=True)
        return chosen.step if chosen else None

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        """Compact each of these tables as needed now, each in a commit of its own."""
        found = [self._chosen(step.table, step.path, clusters=step.clusters) for step in steps]
        tasks = [
            CompactTask(
                str(chosen.step.table),
                chosen.location,
                chosen.schema,
                chosen.key,
                chosen.work.files if isinstance(chosen.work, Clustering) else chosen.work,
                self._store.options(chosen.step.path),
                chosen.work.into if isinstance(chosen.work, Clustering) else 0,
            )
            for chosen in found
            if chosen and not isinstance(chosen.work, Join | Purge)
        ]
        results = iter(self._run(tasks))
        if tasks:
            self._reached(CrashPoint.FILES_COMPACTED)
        return [self._done(chosen, results, before_commit) if chosen else None for chosen in found]

    def _run(self, tasks: Sequence[CompactTask]) -> list[CompactResult]:
        try:
            return self._runner.run(run_compact, tasks)
        except TasksDied as died:
            return [CompactResult(error=worker_lost(task.table, str(died))) for task in tasks]

    def _chosen(self, table: TableId, path: str, *, clusters: bool = False) -> _Chosen | None:
        """The compaction or the clustering of the newest version of a table."""
        try:
            with self._logs.snapshot(path, str(table)) as (snapshot, progress):
                if progress.unsupported or not progress.exists:
                    return None
                schema, version = schemas.parse(snapshot.metadata), snapshot.version
                choose = clustering_work if clusters else chosen_work
                work = choose(snapshot, self._choice(progress), progress.key)
        except ForeignTable:
            return None  # the next batch reports the error
        if not work or (isinstance(work, Join | Purge) and self._optimizer is None):
            return None
        step, location = described(table, path, work), self._store.location(path)
        return _Chosen(step, location, version, schema, progress.key, work)

    def _done(
        self,
        chosen: _Chosen,
        results: Iterator[CompactResult],
        before_commit: Callable[[], None],
    ) -> Outcome | None:
        outcome: Outcome | None
        if isinstance(chosen.work, Join | Purge):
            outcome = self._optimized(chosen, chosen.work, before_commit)
        else:
            outcome = self._committed(chosen, next(results), before_commit)
        self._logs.changed(chosen.step.path)
        if isinstance(outcome, Applied):
            self._reached(CrashPoint.COMPACTION_COMMITTED)
        return outcome

    def _committed(
        self, chosen: _Chosen, result: CompactResult, before_commit: Callable[[], None]
    ) -> Outcome:
        if result.error is not None:
            return Failed(result.error)
        before_commit()
        table = str(chosen.step.table)
        commit = CompactionCommit(table, chosen.location, chosen.version, result.actions)
        return self._committer.compact(commit)

    def _optimized(
        self, chosen: _Chosen, command: Join | Purge, before_commit: Callable[[], None]
    ) -> Outcome | None:
        """Run a command of Delta. It commits without calling `before_commit`, which is therefore
        called first."""
        assert self._optimizer is not None
        before_commit()
        table, path = str(chosen.step.table), chosen.step.path
        try:
            version = self._logs.progress(path).version
        except ForeignTable as error:
            return Failed(error)
        if version != chosen.version:
            return Conflicted(
                f"another commit was made to the table after version {chosen.version}"
            )
        return self._optimizer.run(table, chosen.location, chosen.schema, command)


def clustering_work(
    snapshot: TableSnapshot, choice: Choice, key: Sequence[str]
) -> Clustering | None:
    """The clustering of one version of a table by our own tasks; None if none pays."""
    if choice.refused or CLUSTERED in (snapshot.protocol.get("writerFeatures") or ()):
        return None
    schema = schemas.parse(snapshot.metadata)
    column = next((name for name in key if name not in schema.partitions), None)
    if column is None or choice.strategy is StrategyName.MERGE:
        return None
    return clustering.choose(list(snapshot.files.values()), schema.physical_of(column))


def chosen_work(
    snapshot: TableSnapshot,
    choice: Choice,
    key: Sequence[str],  # noqa: ARG001  (of clustering)
) -> Work | None:
    """The compaction of one version of a table; None or empty if it needs none."""
    files = list(snapshot.files.values())
    if choice.refused or CLUSTERED in (snapshot.protocol.get("writerFeatures") or ()):
        return None
    return (
        optimize.choose(files)
        if choice.strategy is StrategyName.MERGE
        else compaction.choose(files)
    )


def described(table: TableId, path: str, work: Work) -> Compact:
    """The step of a compaction."""
    match work:
        case Clustering():
            files = f"{len(work.files)} files, a key is in the bounds of {work.depth:.1f} of them"
            return Compact(table, path, work.rows, files, clusters=True, overlap=work.overlap)
        case Join():
            return Compact(table, path, work.rewrite.cost, "OPTIMIZE")
        case Purge():
            return Compact(table, path, work.rewrite.cost, "REORG ... APPLY (PURGE)")
        case _:
            return Compact(table, path, compaction.rows_of(work), f"{len(work)} files")
