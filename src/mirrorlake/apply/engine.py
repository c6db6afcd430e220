"""The engine: opens batches on a version of their tables, chooses their strategies, and returns
their outcomes.

Progress is read from the log of the table. A `Runner` runs tasks, a `Committer` commits, and
`TableDefinitions` creates and changes tables: on Spark or in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from mirrorlake.apply.alteration import Alterer
from mirrorlake.apply.committer import Committer
from mirrorlake.apply.compaction import Compactor, Optimizer
from mirrorlake.apply.direct import Direct
from mirrorlake.apply.logs.table_logs import TableLogs
from mirrorlake.apply.runner import Runner
from mirrorlake.apply.stages.spread import SpreadSettings
from mirrorlake.apply.strategy import OpenBatch, Strategy
from mirrorlake.apply.table_definitions import TableDefinitions, key_property, log_created
from mirrorlake.apply.task.errors import storage_error
from mirrorlake.delta import schema as schemas
from mirrorlake.delta.log.durability import flush_commit, flush_commits_since, flush_files
from mirrorlake.delta.log.first_commit import begin, end
from mirrorlake.delta.log.table_log import TableLog, TableSnapshot
from mirrorlake.delta.tables import delta_tables
from mirrorlake.errors import MirrorlakeError, TableError
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.steps import (
    AddColumns,
    AlterColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    DropTable,
    RenameColumns,
    SetKey,
)
from mirrorlake.mirror.strategy import (
    Choice,
    StrategyFacts,
    StrategyName,
    StrategySetting,
    choose_strategy,
)
from mirrorlake.mirror.table.progress import Progress, progress_in
from mirrorlake.mirror.table.refusals import strategy_refusal
from mirrorlake.model.crash_points import CrashHook, CrashPoint, no_crash
from mirrorlake.model.landed import NamedBatch
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url

log = structlog.get_logger()

STRATEGY = "strategy_chosen"
PROGRESS_MAX_AGE = 30.0
"""Seconds for which the progress of a table on object storage is cached: no other process may write
the table, and a batch always reads the log."""


class Engine:
    """A `MirrorEngine`.

    store: locates landed files and tables; merge, optimizer: Delta's MERGE and its commands for
    compaction, if there is a Spark; strategy: the setting; platform: why `direct` is not
    possible here, as text; compaction: batches also join small files.
    """

    def __init__(
        self,
        store: Store,
        runner: Runner,
        committer: Committer,
        tables: TableDefinitions,
        *,
        merge: Strategy | None = None,
        optimizer: Optimizer | None = None,
        reached: CrashHook = no_crash,
        strategy: StrategySetting = StrategySetting.AUTO,
        platform: str = "",
        compaction: bool = True,
        spread: SpreadSettings | None = None,
    ) -> None:
        self._store, self._runner, self._committer = store, runner, committer
        self._tables, self._reached = tables, reached
        self._strategies: dict[StrategyName, Strategy] = {
            StrategyName.DIRECT: Direct(runner, committer, store, reached, spread, joins=compaction)
        }
        if merge is not None:
            self._strategies[StrategyName.MERGE] = merge
        self._strategy, self._platform = strategy, platform
        self._logged: set[tuple[str, str]] = set()
        self._applied: dict[str, int] = {}  # by path: the version whose files are flushed
        self._logs = TableLogs(
            lambda path: TableLog.below(store, path),
            lambda path: PROGRESS_MAX_AGE if is_url(store.location(path)) else 0.0,
        )
        self._compactor = Compactor(
            runner, committer, store, self._logs, self._choose, reached, optimizer
        )
        self._alterer = Alterer(runner, committer, store, self._logs, self._choose, reached)

    @property
    def slots(self) -> int:
        return self._runner.slots

    def cancel(self) -> None:
        """Cancel the running tasks."""
        self._runner.cancel()

    # -- tables -----------------------------------------------------------------------------------

    def progress(self, path: str) -> Progress:
        return self._logs.progress(path)

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return self._logs.named_batches(path, after)

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        return list(delta_tables(self._store, known))

    def creates_with_batch(self, step: CreateTable) -> bool:
        try:
            return self._new_metadata(step, self._choose(Progress())) is not None
        except OSError as error:
            raise storage_error(str(step.table), error) from error

    def create(self, step: CreateTable) -> None:
        if step.replace:
            self._logs.forget(step.path)
        try:
            self._tables.create(step)
        except OSError as error:
            raise storage_error(str(step.table), error) from error
        self._flush_commits_since(step.path, -1)
        self._reached(CrashPoint.TABLE_CREATED)

    def add_columns(self, step: AddColumns) -> None:
        known = self.progress(step.path)
        self._tables.add_columns(step, known)
        self._flush_commits_since(step.path, known.version)
        self._reached(CrashPoint.COLUMNS_ADDED)

    def rename_columns(self, step: RenameColumns, before_commit: Callable[[], None]) -> None:
        version = self._alterer.rename(step, before_commit)
        if version is not None:
            self._flush_commit(step.path, version)
            self._reached(CrashPoint.COLUMNS_RENAMED)

    def alter_columns(self, step: AlterColumns, before_commit: Callable[[], None]) -> None:
        version = self._alterer.alter(step, before_commit)
        if version is not None:
            self._flush_commit(step.path, version)
            self._reached(CrashPoint.COLUMNS_ALTERED)

    def set_key(self, step: SetKey) -> None:
        self.set_properties(step.path, key_property(step))

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        known = self.progress(path)
        self._tables.set_properties(path, properties)
        self._flush_commits_since(path, known.version)
        self._reached(CrashPoint.PROPERTIES_SET)

    def drop(self, step: DropTable) -> None:
        if self.progress(step.path).generation != step.generation:
            return
        self._logs.forget(step.path)
        self._tables.put_aside(step.path)
        self._reached(CrashPoint.TABLE_DROPPED)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        known = self.progress(path)
        self._reached(CrashPoint.VACUUM_BEGUN)
        self._tables.vacuum(path, retention, before_commit)
        self._flush_commits_since(path, known.version)
        self._reached(CrashPoint.VACUUM_DONE)

    def checkpoint(self, path: str) -> None:
        progress = self.progress(path)
        self._tables.checkpoint(path, progress, self._choose(progress).strategy)
        self._committer.forget(self._store.location(path))

    # -- batches ----------------------------------------------------------------------------------

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        found = [self._open(step, before_commit) for step in steps]
        for strategy in self._strategies:
            self._apply(strategy, found, before_commit)
        for step, outcome in zip(steps, found, strict=True):
            self._logs.changed(step.path)
            if isinstance(outcome, Applied):
                self._applied[step.path] = outcome.version
        return [
            self._read_back(step, outcome) if isinstance(outcome, Unknown) else _outcome(outcome)
            for step, outcome in zip(steps, found, strict=True)
        ]

    def make_durable(self, path: str, version: int) -> None:
        if self._applied.get(path) == version:  # its files were flushed when they were written
            self._flush_commit(path, version)
        else:  # its writer may have ended before it flushed
            self._flush(path, version)
            self._applied[path] = version
        if version <= 1:  # its own, or that of a process that ended after its first commit
            end(self._store, path)
        self._reached(CrashPoint.COMMIT_DURABLE)

    # -- compaction -------------------------------------------------------------------------------

    def compaction(self, path: str) -> Compact | None:
        return self._compactor.step(path)

    def clustering(self, path: str) -> Compact | None:
        return self._compactor.clustering(path)

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        found = self._compactor.compact(steps, before_commit)
        for step, outcome in zip(steps, found, strict=True):
            if isinstance(outcome, Applied):
                self._flush_commit(step.path, outcome.version)
        return found

    # -- strategies -------------------------------------------------------------------------------

    def _apply(
        self,
        strategy: StrategyName,
        found: list[OpenBatch | Outcome],
        before_commit: Callable[[], None],
    ) -> None:
        """Apply the batches of this strategy, and replace them by their outcomes."""
        chosen = [
            (index, batch)
            for index, batch in enumerate(found)
            if isinstance(batch, OpenBatch) and batch.choice.strategy is strategy
        ]
        if not chosen:
            return
        batches = [batch for _index, batch in chosen]
        outcomes = self._strategies[strategy].apply(batches, before_commit)
        for (index, batch), outcome in zip(chosen, outcomes, strict=True):
            found[index] = self._fall_back(batch, outcome, before_commit)

    def _fall_back(
        self, batch: OpenBatch, outcome: Outcome, before_commit: Callable[[], None]
    ) -> OpenBatch | Outcome:
        """A batch that `direct` failed to apply with an internal error is applied by `merge`."""
        doubtful = isinstance(outcome, Failed) and isinstance(outcome.error, TableFault)
        able = (
            batch.choice.strategy is StrategyName.DIRECT and StrategyName.MERGE in self._strategies
        )
        able = able and batch.schema.feed is not schemas.FeedMode.REPLACE
        if not (doubtful and able and self._strategy is StrategySetting.AUTO):
            return outcome
        assert isinstance(outcome, Failed)
        choice = replace(batch.choice, strategy=StrategyName.MERGE, reason=outcome.error.what)
        self._log_strategy(batch.step.table, choice)
        if batch.creates is None:
            return replace(batch, choice=choice)
        created = self._create_and_open(batch.step, before_commit)
        return replace(created, choice=choice) if isinstance(created, OpenBatch) else created

    def _open(self, step: ApplyFiles, before_commit: Callable[[], None]) -> OpenBatch | Outcome:
        """Open a batch on the newest version of its table; an outcome if it does not follow the
        recorded progress.

        All decisions use the same snapshot, on whose version the batch commits.
        """
        try:
            with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
                if step.creates is None or progress.exists:
                    return self._open_on(step, snapshot, progress)
            choice = self._choose(progress, appends=step.appends)
            described = self._new_metadata(step.creates, choice)
            if described is not None:
                begin(self._store, step.path)
        except TableError as error:
            return Failed(error)
        except OSError as error:
            return Failed(storage_error(str(step.table), error))
        if described is None:
            return self._create_and_open(step, before_commit)
        return self._open_new(step, choice, described)

    def _new_metadata(self, step: CreateTable, choice: Choice) -> Mapping[str, Any] | None:
        """As `TableDefinitions.metadata_of`, where we write the table. Raises OSError."""
        is_direct = choice.strategy is StrategyName.DIRECT
        return self._tables.metadata_of(step) if is_direct else None

    def _open_new(
        self, step: ApplyFiles, choice: Choice, described: Mapping[str, Any]
    ) -> OpenBatch:
        """Open a batch on no version of its table, which it creates."""
        new = TableSnapshot(metadata=dict(described))
        progress = progress_in(replace(new, version=0), str(step.table))
        opened = self._opened(choice, step, new, replace(progress, version=new.version))
        return replace(opened, creates=described)

    def _create_and_open(
        self, step: ApplyFiles, before_commit: Callable[[], None]
    ) -> OpenBatch | Outcome:
        assert step.creates is not None
        try:
            before_commit()
            self.create(step.creates)
            log_created(step.creates)
        except MirrorlakeError as error:
            return Failed(error)
        return self._open(replace(step, creates=None), before_commit)

    def _open_on(
        self, step: ApplyFiles, snapshot: TableSnapshot, progress: Progress
    ) -> OpenBatch | Outcome:
        if step.creates is not None and progress.generation != step.creates.generation:
            return Conflicted("another writer created the table after the step was planned")
        if progress.recorded >= step.last:
            return AlreadyApplied(progress.recorded)
        if progress.recorded != step.first - 1:
            return Conflicted(f"the table has recorded {progress.recorded}, not {step.first - 1}")
        if not progress.exists or progress.restored is not None or progress.unsupported:
            return Conflicted("the table changed after the step was planned")
        choice = self._choose(progress, appends=step.appends)
        # Logged once per table, unless the reason is the one that is logged for all tables.
        if choice.strategy is not StrategyName.DIRECT and choice.reason != self._platform:
            self._log_strategy(step.table, choice)
        opened = self._opened(choice, step, snapshot, progress)
        refusal = strategy_refusal(str(step.table), choice, feed=opened.schema.feed)
        return Failed(refusal) if refusal else opened

    def _opened(
        self, choice: Choice, step: ApplyFiles, snapshot: TableSnapshot, progress: Progress
    ) -> OpenBatch:
        return OpenBatch(
            choice,
            step,
            self._store.location(step.path),
            snapshot.version,
            progress,
            schemas.parse(snapshot.metadata),
            tuple(snapshot.files.values()),
            self._store.options(step.path),
        )

    def _choose(self, progress: Progress, *, appends: bool = False) -> Choice:
        return choose_strategy(
            StrategyFacts(self._strategy, self._platform, progress.delegated, appends)
        )

    def _log_strategy(self, table: TableId, choice: Choice) -> None:
        if (str(table), choice.reason) not in self._logged:
            self._logged.add((str(table), choice.reason))
            log.info(
                STRATEGY, table=str(table), strategy=str(choice.strategy), reason=choice.reason
            )

    def _read_back(self, step: ApplyFiles, outcome: Unknown) -> Outcome:
        """The outcome of a commit with an unknown result, by the recorded progress."""
        self._logs.forget(step.path)
        try:
            progress = self.progress(step.path)
        except TableError as error:
            return Failed(error)
        if progress.recorded >= step.last:
            if progress.batch is not None:  # later steps depend on it
                self.make_durable(step.path, progress.batch.version)
            return AlreadyApplied(progress.recorded)
        log.warning("commit_unanswered", table=str(step.table), reason=outcome.reason)
        return outcome

    # -- durability: objects are durable as soon as they exist ------------------------------------

    def _flush_commit(self, path: str, version: int) -> None:
        location = self._store.location(path)
        if not is_url(location):
            flush_commit(Path(location), version)

    def _flush_commits_since(self, path: str, version: int) -> None:
        """Flush the commits that Delta made after a version, and read the log again next time."""
        self._logs.changed(path)
        location = self._store.location(path)
        if not is_url(location):
            flush_commits_since(Path(location), version)

    def _flush(self, path: str, version: int) -> None:
        location = self._store.location(path)
        if not is_url(location):
            flush_files(Path(location), TableLog(location).actions(version))
            flush_commit(Path(location), version)


def _outcome(found: OpenBatch | Outcome) -> Outcome:
    assert not isinstance(found, OpenBatch), "a batch was executed by no strategy"
    return found
