"""The engine on Spark: what a batch may rest on, and what became of it.

Progress is read from the log of the table; a strategy applies what fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import structlog

from mirrorlake.apply.table_logs import TableLogs
from mirrorlake.delta import schema as schemas
from mirrorlake.delta import tables as table_removal
from mirrorlake.delta.log.durability import flush_commit, flush_commits_since, flush_files
from mirrorlake.delta.log.table_log import Snapshot, TableLog
from mirrorlake.errors import ForeignTable, TableError
from mirrorlake.mirror.batch_limits import CHECKPOINT_EVERY
from mirrorlake.mirror.engine import (
    AlreadyApplied,
    Applied,
    Conflicted,
    Failed,
    Outcome,
    Unknown,
)
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.progress import Progress, table_at
from mirrorlake.mirror.refusals import closed
from mirrorlake.mirror.steps import (
    AddColumns,
    ApplyFiles,
    Compact,
    CreateTable,
    DropTable,
    SetKey,
)
from mirrorlake.mirror.strategy import Choice, Facts, Wanted, Way, way_of
from mirrorlake.model.landed import NamedBatch
from mirrorlake.model.seams import CrashHook, CrashPoint, no_crash
from mirrorlake.model.table import TableId
from mirrorlake.spark import tables
from mirrorlake.spark.commit import Committer
from mirrorlake.spark.direct import Direct
from mirrorlake.spark.jobs import Jobs
from mirrorlake.spark.maintenance.checkpoint import Checkpoints, leave_to_delta
from mirrorlake.spark.maintenance.compaction import Rearranger
from mirrorlake.spark.maintenance.optimize import Optimizer
from mirrorlake.spark.maintenance.vacuum import vacuum
from mirrorlake.spark.merge.merge_strategy import Merge
from mirrorlake.spark.refusals import refusals
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.strategy import Begun, Strategy
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import is_url, options_of

log = structlog.get_logger()

STRATEGY = "strategy_chosen"
PATIENCE = 30.0
"""Seconds for which what a table on objects says of itself is taken for granted: nobody else may
write it, and a batch begins with a look."""


class SparkEngine:
    """A `MirrorEngine` on a Spark session. `store` locates landed files and tables.

    wanted: the strategy that the project asks for; platform: why `direct` is not open in this
    session, in words; compaction: batches join small files on their way.
    """

    def __init__(
        self,
        spark: Spark,
        store: Store,
        reached: CrashHook = no_crash,
        *,
        wanted: Wanted = Wanted.AUTO,
        platform: str = "",
        jobs: Jobs | None = None,
        committer: Committer | None = None,
        compaction: bool = True,
    ) -> None:
        self._spark, self._store, self._reached = spark.session, store, reached
        self._jobs = jobs or Jobs(spark.session)
        self._committer = committer or Committer(spark.session)
        self._checkpoints = Checkpoints(spark.session)
        self._direct = Direct(self._jobs, self._committer, store, reached, joins=compaction)
        self._strategies: dict[Way, Strategy] = {
            Way.DIRECT: self._direct,
            Way.MERGE: Merge(self._jobs, spark.session, store, reached),
        }
        self._wanted, self._platform = wanted, platform
        self._told: set[tuple[str, str]] = set()
        self._applied: dict[str, int] = {}  # the version of the last batch that was flushed
        self._logs = TableLogs(
            lambda path: TableLog.below(store, path),
            lambda path: PATIENCE if is_url(store.location(path)) else 0.0,
        )
        self._rearranger = Rearranger(
            Optimizer(spark.session, self._jobs),
            self._jobs,
            self._committer,
            store,
            self._logs,
            self._way,
            reached,
        )

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return self._jobs.slots

    def progress(self, path: str) -> Progress:
        return self._logs.progress(path)

    def named_batches(self, path: str, after: int) -> Sequence[NamedBatch]:
        return self._logs.named_batches(path, after)

    def create(self, step: CreateTable) -> None:
        with refusals(step.table):
            if step.replace:
                self._logs.forget(step.path)
                tables.drop(self._spark, self._store, step.path)
            tables.create(self._spark, self._store.location(step.path), step)
        self._flush_commits_since(step.path, -1)
        self._reached(CrashPoint.TABLE_CREATED)

    def paths(self, known: Collection[str] = ()) -> Sequence[str]:
        return list(table_removal.delta_tables(self._store, known))

    def drop(self, step: DropTable) -> None:
        if self.progress(step.path).generation != step.generation:
            return
        self._logs.forget(step.path)
        with refusals(step.table):
            tables.put_aside(self._spark, self._store, step.path)
        self._reached(CrashPoint.TABLE_DROPPED)

    def vacuum(self, path: str, retention: timedelta, before_commit: Callable[[], None]) -> None:
        known = self.progress(path)
        with refusals(TableId.parse(table_at(path))):
            options = options_of(self._store, path)
            vacuum(self._spark, self._store.location(path), options, retention, before_commit)
        self._flush_commits_since(path, known.version)

    def add_columns(self, step: AddColumns) -> None:
        known = self.progress(step.path)
        with refusals(step.table):
            tables.add_columns(self._spark, self._store.location(step.path), step, known.schema)
        self._flush_commits_since(step.path, known.version)
        self._reached(CrashPoint.COLUMNS_ADDED)

    def set_key(self, step: SetKey) -> None:
        known = self.progress(step.path)
        with refusals(step.table):
            tables.set_key(self._spark, self._store.location(step.path), step)
        self._flush_commits_since(step.path, known.version)

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        found = [self._begun(step) for step in steps]
        for way in self._strategies:
            self._apply(way, found, before_commit)
        for step, outcome in zip(steps, found, strict=True):
            self._logs.changed(step.path)
            if isinstance(outcome, Applied):
                self._applied[step.path] = outcome.version
        return [
            self._read_back(step, outcome) if isinstance(outcome, Unknown) else _outcome(outcome)
            for step, outcome in zip(steps, found, strict=True)
        ]

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        found = self._rearranger.rearrange(steps, before_commit)
        for step, outcome in zip(steps, found, strict=True):
            if isinstance(outcome, Applied):
                self._flush_commit(step.path, outcome.version)
        return found

    def rearrangeable(self, path: str) -> int | None:
        return self._rearranger.cost(path)

    def checkpoint(self, path: str) -> None:
        progress, location = self.progress(path), self._store.location(path)
        with refusals(TableId.parse(table_at(path))):
            if self._way(progress).way is Way.MERGE:
                leave_to_delta(self._spark, location, progress.properties, CHECKPOINT_EVERY)
            else:
                self._checkpoints.write(location)
                self._committer.look(location)

    def make_durable(self, path: str, version: int) -> None:
        if self._applied.get(path) == version:  # what it names was flushed before
            self._flush_commit(path, version)
        else:  # nobody knows how far its writer came after it
            self._flush(path, version)
            self._applied[path] = version
        self._reached(CrashPoint.COMMIT_DURABLE)

    def cancel(self) -> None:
        """End our own jobs, and no others of the session."""
        self._jobs.cancel()

    def _apply(
        self, way: Way, found: list[Begun | Outcome], before_commit: Callable[[], None]
    ) -> None:
        """Put outcomes in the places of the batches that go by this way."""
        chosen = [
            (index, one)
            for index, one in enumerate(found)
            if isinstance(one, Begun) and one.choice.way is way
        ]
        if not chosen:
            return
        batches = [batch for _index, batch in chosen]
        outcomes = self._strategies[way].apply(batches, before_commit)
        for (index, batch), outcome in zip(chosen, outcomes, strict=True):
            found[index] = self._second_thoughts(batch, outcome)

    def _second_thoughts(self, batch: Begun, outcome: Outcome) -> Begun | Outcome:
        """A batch that met what the direct way did not expect goes by the plain one."""
        doubtful = isinstance(outcome, Failed) and isinstance(outcome.error, TableFault)
        able = batch.choice.way is Way.DIRECT and Way.MERGE in self._strategies
        if not (doubtful and able and self._wanted is Wanted.AUTO):
            return outcome
        assert isinstance(outcome, Failed)
        choice = replace(batch.choice, way=Way.MERGE, reason=outcome.error.what)
        self._tell(batch.step.table, choice)
        return replace(batch, choice=choice)

    def _begun(self, step: ApplyFiles) -> Begun | Outcome:
        """The batch on the newest version of its table; an outcome when it does not fit it.

        All is decided on one snapshot: what it has recorded is what the commit rests on.
        """
        try:
            with self._logs.snapshot(step.path, str(step.table)) as (snapshot, progress):
                return self._fitting(step, snapshot, progress)
        except ForeignTable as error:
            return Failed(error)

    def _fitting(self, step: ApplyFiles, snapshot: Snapshot, progress: Progress) -> Begun | Outcome:
        if progress.recorded >= step.last:
            return AlreadyApplied(progress.recorded)
        if progress.recorded != step.first - 1:
            return Conflicted(f"the table has recorded {progress.recorded}, not {step.first - 1}")
        if not progress.exists or progress.restored is not None or progress.unsupported:
            return Conflicted("the table is not what was planned for")
        choice = self._choice(step, progress)
        if shut := closed(str(step.table), choice):
            return Failed(shut)
        return Begun(
            choice,
            step,
            self._store.location(step.path),
            snapshot.version,
            progress,
            schemas.parse(snapshot.metadata),
            tuple(snapshot.files.values()),
            options_of(self._store, step.path),
        )

    def _choice(self, step: ApplyFiles, progress: Progress) -> Choice:
        """By which way a batch goes; told once for its table when it is not the direct one, unless
        that was told for all tables (`guard.CLOSED`)."""
        choice = self._way(progress, appends=step.appends)
        if choice.way is not Way.DIRECT and choice.reason != self._platform:
            self._tell(step.table, choice)
        return choice

    def _way(self, progress: Progress, *, appends: bool = False) -> Choice:
        return way_of(Facts(self._wanted, self._platform, progress.delegated, appends))

    def _tell(self, table: TableId, choice: Choice) -> None:
        if (str(table), choice.reason) not in self._told:
            self._told.add((str(table), choice.reason))
            log.info(STRATEGY, table=str(table), strategy=str(choice.way), reason=choice.reason)

    def _read_back(self, step: ApplyFiles, outcome: Unknown) -> Outcome:
        """A commit whose answer was lost: the table knows whether it happened."""
        self._logs.forget(step.path)
        try:
            progress = self.progress(step.path)
        except TableError as error:
            return Failed(error)
        if progress.recorded >= step.last:
            if progress.batch is not None:  # what follows rests on it, as on one that was answered
                self.make_durable(step.path, progress.batch.version)
            return AlreadyApplied(progress.recorded)
        log.warning("commit_unanswered", table=str(step.table), reason=outcome.reason)
        return outcome

    def _flush_commit(self, path: str, version: int) -> None:
        location = self._store.location(path)
        if not is_url(location):  # objects are durable as soon as they are there
            flush_commit(Path(location), version)

    def _flush_commits_since(self, path: str, version: int) -> None:
        """Make durable what Delta has committed for us beyond a version, and look at it."""
        self._logs.changed(path)
        location = self._store.location(path)
        if not is_url(location):
            flush_commits_since(Path(location), version)

    def _flush(self, path: str, version: int) -> None:
        location = self._store.location(path)
        if not is_url(location):
            flush_files(Path(location), TableLog(location).actions(version))
            flush_commit(Path(location), version)


def _outcome(found: Begun | Outcome) -> Outcome:
    assert not isinstance(found, Begun), "a batch went by no way"
    return found
