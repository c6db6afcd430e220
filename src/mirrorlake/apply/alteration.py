"""Altering the columns of a table, in one commit that records for which file it was done."""

from __future__ import annotations

import json
from collections.abc import Callable

from mirrorlake.apply.committer import BatchCommit, Committer
from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.apply.stages.shares import balanced
from mirrorlake.apply.task.alter import AlterResult, AlterTask, run_alter
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.write.alter import Assigned
from mirrorlake.errors import UnsupportedTable
from mirrorlake.mirror.engine import Applied, Counts, Failed
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.steps import AlterColumns
from mirrorlake.mirror.strategy import Choice, Way
from mirrorlake.mirror.table.progress import Progress
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store


class Alterer:
    """Rewrites tables that our own tasks may write. choice: by which strategy a table goes."""

    def __init__(
        self,
        runner: Runner,
        committer: Committer,
        store: Store,
        logs: TableLogs,
        choice: Callable[[Progress], Choice],
        reached: CrashHook,
    ) -> None:
        self._runner, self._committer, self._store = runner, committer, store
        self._logs, self._choice, self._reached = logs, choice, reached

    def alter(self, step: AlterColumns, before_commit: Callable[[], None]) -> int | None:
        """Do the step. Returns the version that it made; None when it was done before. Raises
        TableError."""
        with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
            if progress.altered >= step.number and not step.types:
                return None
            self._check(step, progress)
            found = self._work(step, snapshot, progress)
            version, described = snapshot.version, snapshot.metadata
        tasks, assigned = found
        results = self._run(tasks)
        for result in results:
            if result.error is not None:
                raise result.error
        self._reached(CrashPoint.COLUMNS_WRITTEN)
        changed = sum(result.changed for result in results)
        actions = [action for result in results for action in result.actions]
        if changed:  # the change files tell which rows; without them the files change nothing
            actions = [_changing(action) for action in actions]
        if assigned.widens:
            types = {name: str(kind) for name, kind in step.types.items()}
            actions.append(json.dumps({"metaData": schemas.retyped(described, types)}))
        before_commit()
        outcome = self._committer.commit(
            BatchCommit(
                table=str(step.table),
                location=self._store.location(step.path),
                version=version,
                application=progress.altering,
                number=step.number,
                actions=actions,
                counts=Counts(update=changed),
                metadata=_metadata(step, changed),
            )
        )
        self._logs.changed(step.path)
        if isinstance(outcome, Failed):
            raise outcome.error
        if not isinstance(outcome, Applied):
            # It may have happened; the next look at the table tells.
            raise TableFault(
                "its columns could not be altered, because another writer was faster or the "
                "storage gave no answer",
                table=str(step.table),
                hint="It is retried.",
            )
        return outcome.version

    def _check(self, step: AlterColumns, progress: Progress) -> None:
        choice = self._choice(progress)
        if choice.way is Way.MERGE:
            raise UnsupportedTable(
                f"its columns {', '.join(step.columns)} were altered in the source, and only Delta "
                f"itself may write the table: {choice.reason}",
                table=str(step.table),
                hint=f"Run `mirrorlake reset {step.table}` to reload it.",
            )

    def _work(
        self, step: AlterColumns, snapshot: TableSnapshot, progress: Progress
    ) -> tuple[list[AlterTask], Assigned]:
        """What is to be done on one version, in tasks of about the same size."""
        types = {name: str(kind) for name, kind in step.types.items()}
        before = schemas.parse(snapshot.metadata)
        after = schemas.parse(schemas.retyped(snapshot.metadata, types)) if types else before
        assigned = Assigned(before, after, step.copied, step.filled)
        files = list(snapshot.files.values())
        sizes = [int(add["size"]) for add in files]
        location, options = self._store.location(step.path), self._store.options(step.path)
        groups = balanced(files, sizes, self._runner.slots) if files else []
        table = str(step.table)
        tasks = [
            AlterTask(table, location, assigned, progress.key, group, options) for group in groups
        ]
        return tasks, assigned

    def _run(self, tasks: list[AlterTask]) -> list[AlterResult]:
        if not tasks:
            return []
        try:
            return self._runner.run(run_alter, tasks)
        except TasksDied as died:
            return [AlterResult(error=worker_lost(task.table, str(died))) for task in tasks]


def _changing(action: str) -> str:
    """An action of a file, as one that changes data."""
    found = json.loads(action)
    for kind in ("add", "remove"):
        if kind in found:
            found[kind]["dataChange"] = True
    return json.dumps(found)


def _metadata(step: AlterColumns, changed: int) -> dict[str, object]:
    """The commit's userMetadata: no batch, and which columns were altered before which file."""
    return {
        "mirrorlake": 1,
        "altered": {"before_file": step.number, "columns": list(step.columns)},
        "rows": {"insert": 0, "update": changed, "delete": 0},
    }
