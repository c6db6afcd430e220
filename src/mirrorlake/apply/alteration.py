"""Alters the columns of a table, in one commit that records the number of the altering file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from mirrorlake.apply.committer import BatchCommit, Committer
from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.apply.runner import Runner, TasksDied
from mirrorlake.apply.stages.shares import balanced
from mirrorlake.apply.task.alter import AlterResult, AlterTask, run_alter
from mirrorlake.apply.task.errors import worker_lost
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.table_log import TableSnapshot
from mirrorlake.delta.write.alter import ColumnAssignment
from mirrorlake.errors import UnsupportedTable
from mirrorlake.mirror.engine import Applied, Counts, Failed
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.steps import AlterColumns, RenameColumns
from mirrorlake.mirror.strategy import Choice, StrategyName
from mirrorlake.mirror.table.progress import (
    KEY_COLUMNS,
    RENAMED,
    REQUIRED,
    WHOLE_ROWS,
    Progress,
)
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.store import Store


class Alterer:
    """Alters columns of tables of the strategy `direct`. choice: chooses the strategy of a
    table."""

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
        """Execute the step. Returns the new version; None if the step was already done. Raises
        TableError."""
        with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
            if progress.altered >= step.number and not (step.types or step.dropped):
                return None
            found = self._work(step, snapshot, progress)
            version, described = snapshot.version, snapshot.metadata
        tasks, assigned = found
        if tasks:
            self._check(step, progress)
        results = self._run(tasks)
        for result in results:
            if result.error is not None:
                raise result.error
        self._reached(CrashPoint.COLUMNS_WRITTEN)
        changed = sum(result.changed for result in results)
        actions = [action for result in results for action in result.actions]
        if changed:  # otherwise there are no change files, and `dataChange` stays false
            actions = [_changing(action) for action in actions]
        if assigned.before != assigned.after or step.key is not None:
            metadata = schemas.altered(
                described, _types(step), step.dropped, _properties(step), widened=step.widened
            )
            actions.append(json.dumps({"metaData": metadata}))
        before_commit()
        metadata = _metadata(step, changed)
        return self._commit(step, version, progress.altering, actions, metadata, changed)

    def rename(self, step: RenameColumns, before_commit: Callable[[], None]) -> int | None:
        """Execute the step. Returns the new version; None if the step was already done. Raises
        TableError."""
        with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
            if progress.renamed_before >= step.number:
                return None
            version, described = snapshot.version, snapshot.metadata
        mapped = schemas.is_mapped(progress.properties)
        if not (mapped and {*step.names} <= {*progress.schema.names}):
            raise _overtaken(str(step.table))
        properties = _renamed_properties(step, progress)
        metadata = schemas.altered(described, {}, (), properties, step.names)
        before_commit()
        actions = [json.dumps({"metaData": metadata})]
        said = {"before_file": step.number, "columns": dict(step.names)}
        return self._commit(
            step, version, progress.renaming, actions, {"mirrorlake": 1, "renamed": said}
        )

    def _commit(
        self,
        step: AlterColumns | RenameColumns,
        version: int,
        application: str,
        actions: Sequence[str],
        metadata: Mapping[str, object],
        changed: int = 0,
    ) -> int:
        """Commit the number of a step on a version. changed: rows. Returns the new version."""
        outcome = self._committer.commit(
            BatchCommit(
                table=str(step.table),
                location=self._store.location(step.path),
                version=version,
                application=application,
                number=step.number,
                actions=actions,
                counts=Counts(update=changed),
                metadata=metadata,
                alters=True,
            )
        )
        self._logs.changed(step.path)
        if isinstance(outcome, Failed):
            raise outcome.error
        if not isinstance(outcome, Applied):
            # It may have been committed; the next plan reads the table again.
            raise _overtaken(str(step.table))
        return outcome.version

    def _check(self, step: AlterColumns, progress: Progress) -> None:
        choice = self._choice(progress)
        if choice.strategy is StrategyName.MERGE:
            raise UnsupportedTable(
                f"its columns {', '.join(step.columns)} were altered in the source, but only Delta "
                f"can write the table: {choice.reason}",
                table=str(step.table),
                hint=f"Run `mirrorlake reset {step.table}` to reload it.",
            )

    def _work(
        self, step: AlterColumns, snapshot: TableSnapshot, progress: Progress
    ) -> tuple[list[AlterTask], ColumnAssignment]:
        """The tasks to alter one version, of about equal size, and the new values."""
        before = schemas.parse(snapshot.metadata)
        after = schemas.parse(schemas.altered(snapshot.metadata, _types(step), step.dropped))
        assigned = ColumnAssignment(
            before, after, step.copied, step.filled, step.converted, step.widened
        )
        if not (assigned.copied or assigned.filled or assigned.retypes):
            return [], assigned  # dropped columns stay in the files
        files = list(snapshot.files.values())
        sizes = [int(add["size"]) for add in files]
        location, options = self._store.location(step.path), self._store.options(step.path)
        groups = balanced(files, sizes, self._runner.slots) if files else []
        table, key = str(step.table), progress.key if step.key is None else step.key
        tasks = [AlterTask(table, location, assigned, key, group, options) for group in groups]
        return tasks, assigned

    def _run(self, tasks: list[AlterTask]) -> list[AlterResult]:
        if not tasks:
            return []
        try:
            return self._runner.run(run_alter, tasks)
        except TasksDied as died:
            return [AlterResult(error=worker_lost(task.table, str(died))) for task in tasks]


def _types(step: AlterColumns) -> dict[str, str]:
    return {name: str(kind) for name, kind in step.types.items()}


def _properties(step: AlterColumns) -> dict[str, str]:
    if step.key is None:
        return {}
    whole_rows = json.dumps(step.whole_rows)
    return {KEY_COLUMNS: json.dumps(list(step.key)), WHOLE_ROWS: whole_rows}


def _overtaken(table: str) -> TableFault:
    return TableFault(
        "its columns could not be altered, because another writer committed first or the storage "
        "did not answer",
        table=table,
        hint="It is retried.",
    )


def _renamed_properties(step: RenameColumns, progress: Progress) -> dict[str, str]:
    """The properties that name columns, with the new names, and these."""
    found = {RENAMED: json.dumps(dict(step.names))}
    if progress.required:
        found[REQUIRED] = json.dumps([step.names.get(name, name) for name in progress.required])
    if step.key is not None:
        found[KEY_COLUMNS] = json.dumps([step.names.get(name, name) for name in step.key])
        found[WHOLE_ROWS] = json.dumps(step.whole_rows)
    return found


def _changing(action: str) -> str:
    """A file action with `dataChange` true."""
    found = json.loads(action)
    for kind in ("add", "remove"):
        if kind in found:
            found[kind]["dataChange"] = True
    return json.dumps(found)


def _metadata(step: AlterColumns, changed: int) -> dict[str, object]:
    """The `userMetadata` of the commit: the altered columns, and the file that follows."""
    key = {} if step.key is None else {"key": list(step.key)}
    return {
        "mirrorlake": 1,
        "altered": {"before_file": step.number, "columns": list(step.columns), **key},
        "rows": {"insert": 0, "update": changed, "delete": 0},
    }
