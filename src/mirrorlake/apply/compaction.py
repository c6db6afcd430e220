"""Compaction of tables between batches (CF-156).

Whoever may write a table may compact it, and nobody else: our own tasks the files of a table that
goes by `direct`, and Delta's own commands those of one that goes by `merge`, whose log is never
written through insides of Delta.
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
from mirrorlake.mirror.compaction import optimize
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.optimize import Join, Purge
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, Outcome
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.strategy import Choice, Way
from mirrorlake.mirror.table.progress import Progress, table_at
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

CLUSTERED = "clustering"
"""The table feature of liquid clustering: OPTIMIZE writes anew all that is not in a cluster of 100
GB, each time, and takes no bounds."""

Files = Sequence[Mapping[str, Any]]
"""Add actions of files to write anew together by our own tasks."""

Work = Files | Join | Purge


class Optimizer(Protocol):
    """Runs Delta's own commands, each in a commit of Delta's."""

    def run(
        self, table: str, location: str, schema: TableSchema, command: Join | Purge
    ) -> Outcome | None:
        """Run a command; None when Delta found nothing to do. Whatever goes wrong, rows and feed
        are what they were."""
        ...


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What to do with the files of a table, as they are at one version."""

    step: Compact
    location: str
    version: int
    schema: TableSchema
    key: tuple[str, ...]
    work: Work


class Compactor:
    """Chooses files of tables, and has them written anew. choice: by which strategy a table goes;
    optimizer: for those of `merge`, which are left alone without one."""

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
        """What there is to do now; None for nothing."""
        chosen = self._chosen(TableId.parse(table_at(path)), path)
        return chosen.step if chosen else None

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        """Do what there is to do now with each of these tables, each in a commit of its own."""
        found = [self._chosen(step.table, step.path) for step in steps]
        tasks = [
            CompactTask(
                str(one.step.table),
                one.location,
                one.schema,
                one.key,
                one.work,
                self._store.options(one.step.path),
            )
            for one in found
            if one and not isinstance(one.work, Join | Purge)
        ]
        results = iter(self._run(tasks))
        if tasks:
            self._reached(CrashPoint.FILES_COMPACTED)
        return [self._done(one, results, before_commit) if one else None for one in found]

    def _run(self, tasks: Sequence[CompactTask]) -> list[CompactResult]:
        try:
            return self._runner.run(run_compact, tasks)
        except TasksDied as died:
            return [CompactResult(error=worker_lost(task.table, str(died))) for task in tasks]

    def _chosen(self, table: TableId, path: str) -> _Chosen | None:
        """What to do, on the newest version of the table."""
        try:
            with self._logs.snapshot(path, str(table)) as (snapshot, progress):
                if progress.unsupported or not progress.exists:
                    return None
                schema, version = schemas.parse(snapshot.metadata), snapshot.version
                work = chosen_work(snapshot, self._choice(progress))
        except ForeignTable:
            return None  # its next batch says so
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
        """Delta commits when it is done, and asks nobody: who may not commit now does not begin."""
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


def chosen_work(snapshot: TableSnapshot, choice: Choice) -> Work | None:
    """What to do with the files of a table at one version; nothing when all is well."""
    files = list(snapshot.files.values())
    if choice.refused or CLUSTERED in (snapshot.protocol.get("writerFeatures") or ()):
        return None
    return optimize.choose(files) if choice.way is Way.MERGE else compaction.choose(files)


def described(table: TableId, path: str, work: Work) -> Compact:
    """The step of some work."""
    match work:
        case Join():
            return Compact(table, path, work.reach.cost, "OPTIMIZE")
        case Purge():
            return Compact(table, path, work.reach.cost, "REORG ... APPLY (PURGE)")
        case _:
            return Compact(table, path, compaction.rows_of(work), f"{len(work)} files")
