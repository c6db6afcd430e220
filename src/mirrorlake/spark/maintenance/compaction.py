"""Files of tables rearranged between batches (CF-156).

Whoever may write a table may rearrange it, and nobody else: our own tasks the files of a table that
goes by `direct`, and Delta's own commands those of one that goes by `merge`, whose log is never
written through insides of Delta.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mirrorlake.apply.table_logs import TableLogs
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.table_log import Snapshot
from mirrorlake.delta.schema import TableSchema
from mirrorlake.errors import ForeignTable
from mirrorlake.mirror import compaction, optimize
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, Outcome
from mirrorlake.mirror.optimize import Join, Purge
from mirrorlake.mirror.progress import Progress, table_at
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.strategy import Choice, Way
from mirrorlake.model.seams import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.spark import task
from mirrorlake.spark.commit import Committer, Rearrangement
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.maintenance.optimize import Optimizer
from mirrorlake.spark.refusals import RAISED, fault
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import options_of

CLUSTERED = "clustering"
"""The table feature of liquid clustering: OPTIMIZE writes anew all that is not in a cluster of 100
GB, each time, and takes no bounds."""


Work = task.CompactSpec | Join | Purge
"""For our own tasks, or a command for Delta."""


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What to do with the files of a table, as they are at one version."""

    step: Compact
    location: str
    version: int
    schema: TableSchema
    work: Work


class Rearranger:
    """Chooses files of tables, and has them written anew. choice: by which way a table goes."""

    def __init__(
        self,
        optimizer: Optimizer,
        jobs: Jobs,
        committer: Committer,
        store: Store,
        logs: TableLogs,
        choice: Callable[[Progress], Choice],
        reached: CrashHook,
    ) -> None:
        self._optimizer, self._jobs, self._committer = optimizer, jobs, committer
        self._store, self._logs, self._choice, self._reached = store, logs, choice, reached

    def cost(self, path: str) -> int | None:
        """How much work there is now, in rows written anew; None when there is nothing to do."""
        chosen = self._chosen(Compact(TableId.parse(table_at(path)), path, ()))
        if chosen is None:
            return None
        if isinstance(chosen.work, task.CompactSpec):
            return compaction.rows_of(chosen.work.files)
        return chosen.work.reach.cost

    def rearrange(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        """Do what there is to do with each of these tables, each in a commit of its own."""
        found = [self._chosen(step) for step in steps]
        ours = [one.work for one in found if one and isinstance(one.work, task.CompactSpec)]
        results = iter(self._jobs.run(ours))
        if ours:
            self._reached(CrashPoint.FILES_COMPACTED)
        return [self._done(one, results, before_commit) if one else None for one in found]

    def _chosen(self, step: Compact) -> _Chosen | None:
        """What to do, on the newest version of the table."""
        try:
            with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
                if progress.unsupported or not progress.exists:
                    return None
                schema, version = schemas.parse(snapshot.metadata), snapshot.version
                location = self._store.location(step.path)
                work = self._work(step, snapshot, self._choice(progress), schema, location)
        except ForeignTable:
            return None  # its next batch says so
        return _Chosen(step, location, version, schema, work) if work else None

    def _work(
        self, step: Compact, snapshot: Snapshot, choice: Choice, schema: TableSchema, location: str
    ) -> Work | None:
        files = list(snapshot.files.values())
        if choice.refused or CLUSTERED in (snapshot.protocol.get("writerFeatures") or ()):
            return None
        if choice.way is Way.MERGE:
            return optimize.choose(files)
        chosen = compaction.choose(files)
        if not chosen:
            return None
        options = options_of(self._store, step.path)
        return task.CompactSpec(str(step.table), location, schema, step.key, chosen, options)

    def _done(
        self,
        chosen: _Chosen,
        results: Iterator[task.TaskResult],
        before_commit: Callable[[], None],
    ) -> Outcome | None:
        outcome: Outcome | None
        if isinstance(chosen.work, task.CompactSpec):
            outcome = self._committed(chosen, next(results), before_commit)
        else:
            outcome = self._optimized(chosen, chosen.work, before_commit)
        self._logs.changed(chosen.step.path)
        if isinstance(outcome, Applied):
            self._reached(CrashPoint.COMPACTION_COMMITTED)
        return outcome

    def _committed(
        self, chosen: _Chosen, result: task.TaskResult, before_commit: Callable[[], None]
    ) -> Outcome:
        if result.error is not None:
            return Failed(result.error)
        before_commit()
        commit = Rearrangement(chosen.location, chosen.version, result.actions)
        try:
            return self._committer.rearrange(commit)
        except RAISED as error:
            return Failed(fault(error, str(chosen.step.table), "rearranging"))

    def _optimized(
        self, chosen: _Chosen, command: Join | Purge, before_commit: Callable[[], None]
    ) -> Outcome | None:
        """Delta commits when it is done, and asks nobody: who may not commit now does not begin."""
        before_commit()
        table, path = str(chosen.step.table), chosen.step.path
        try:
            version = self._logs.progress(path).version
        except ForeignTable as error:
            return Failed(error)
        if version != chosen.version:
            return Conflicted(f"the table has moved on from version {chosen.version}")
        return self._optimizer.run(table, chosen.location, chosen.schema, command)
