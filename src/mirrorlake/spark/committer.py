"""Commits actions that tasks have prepared, through Delta's own transaction.

This uses a Scala API that Delta considers internal; it is used for the tested pairs of versions
only. Requirements:

- The transaction starts at the exact version that the tasks have read, so that no other writer's
  commit is missed; the recorded number is that version's.
- The application id is registered as read, so that two commits with the same id conflict.
- The operation is one of `CommitOperation` with its metrics, or OPTIMIZE: a "manual update"
  disables the incremental checksum and makes every later commit slow.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, assert_never

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.apply.committer import BatchCommit, CommitOperation, CompactionCommit
from mirrorlake.delta.log.first_commit import is_begun
from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import TableFault
from mirrorlake.spark.errors import CONFLICTS, RAISED, fault, name_of
from mirrorlake.spark.session.thread_sessions import Sessions

DESCRIBED = ("schemaString", "partitionColumns", "configuration")
"""What of a table determines its files."""

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


class SparkCommitter:
    """A `Committer` through Delta's transaction. Each thread commits in its own session, because
    the metadata of a commit is a session setting."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._sessions = spark, Sessions(spark, for_internals=True)
        self._tips: dict[str, tuple[int, ...] | None] = {}

    @cached_property
    def _delta(self) -> _Delta:
        """Looked up at the first commit: with untested Delta internals, MERGE still works."""
        return _Delta(self._spark._jvm)  # noqa: SLF001

    def prepare(self, location: str) -> None:
        with suppress(*RAISED), self._sessions.active() as session:
            self._delta.transaction(session, location)

    def forget(self, location: str) -> None:
        self._tips.pop(location, None)

    def commit(self, commit: BatchCommit) -> Outcome:
        return self._attempted(commit, "committing")

    def compact(self, commit: CompactionCommit) -> Outcome:
        return self._attempted(commit, "compacting")

    def create(self, location: str, described: Mapping[str, Any]) -> None:
        """Commit version 0 of a table with this metaData action, unless a version exists.

        Spark SQL would do the same, but takes seconds to initialise.
        """
        with self._sessions.active() as session:
            transaction = self._delta.transaction(session, location)
            if transaction.readVersion() >= 0:
                return
            session.conf.unset(USER_METADATA)
            self._delta.describe(transaction, described)
            operation = self._delta.create_table(transaction.metadata(), with_rows=False)
            transaction.commit(self._delta.sequence([]), operation)

    def _attempted(self, commit: BatchCommit | CompactionCommit, doing: str) -> Outcome:
        try:
            with self._sessions.active() as session:
                outcome = self._committed(session, commit)
        except RAISED as error:
            return Failed(fault(error, commit.table, doing))
        if isinstance(outcome, Applied):
            self._tips[commit.location] = _tip(commit.location, outcome.version)
        return outcome

    def _committed(self, session: SparkSession, commit: BatchCommit | CompactionCommit) -> Outcome:
        transaction = self._transaction(session, commit.location, commit.version)
        found = transaction.snapshot().version()
        if found != commit.version:
            return Conflicted(
                f"the table is at version {found}, but version {commit.version} was read"
            )
        actions = self._delta.actions(commit.actions)
        if isinstance(commit, CompactionCommit):
            session.conf.unset(USER_METADATA)
            operation, counts = self._delta.optimize, Counts()
        else:
            transaction.readTxn().addOne(commit.application)
            if commit.creates is None:
                transaction.readWholeTable()
            elif not is_begun(commit.location):
                return Conflicted("its folder was removed")
            elif not self._delta.describe(transaction, commit.creates):
                return Failed(_described_otherwise(commit.table))
            counts = commit.counts
            operation, metrics = self._delta.described(session, transaction, commit, actions)
            transaction.registerSQLMetrics(session._jsparkSession, metrics)  # noqa: SLF001
            actions.append(self._delta.recorded(commit.application, commit.number))
            session.conf.set(USER_METADATA, json.dumps(commit.metadata))
        return _outcome(transaction, self._delta.sequence(actions), operation, counts)

    def _transaction(self, session: SparkSession, location: str, version: int) -> Any:
        """A transaction on the newest version of the table. Delta lists the log for it, which takes
        a third of a commit; this is skipped if the log still ends with our last commit."""
        tip = self._tips.pop(location, None)
        if tip is not None and tip == _tip(location, version):
            known = self._delta.transaction(session, location, known=True)
            if known.snapshot().version() == version:
                return known
        return self._delta.transaction(session, location)


def _tip(location: str, version: int) -> tuple[int, ...] | None:
    """The identity of the last commit file of a local table, if it is that of `version`."""
    log = Path(location, "_delta_log")
    try:
        facts = (log / f"{version:020d}.json").stat()
        if (log / f"{version + 1:020d}.json").exists():
            return None
    except OSError:
        return None
    return version, facts.st_dev, facts.st_ino, facts.st_mtime_ns


class _Delta:
    """Lookups of the Delta and Scala objects that a commit needs.

    Each part of a name like `org.apache.spark` is one request to the JVM, which takes as long as
    the commit itself: each name is looked up once.
    """

    def __init__(self, jvm: Any) -> None:
        delta = jvm.org.apache.spark.sql.delta
        self._log = delta.DeltaLog
        self._action = getattr(delta.actions, "Action$").__getattr__("MODULE$")
        self._recorded = delta.actions.SetTransaction
        self._python = jvm.org.apache.spark.api.python.PythonUtils
        self._none, self._some = jvm.scala.Option.empty(), jvm.scala.Some
        metric = jvm.org.apache.spark.sql.execution.metric
        self._metric = getattr(metric, "SQLMetrics$").__getattr__("MODULE$")
        self._map = jvm.java.util.HashMap
        self._local = threading.local()
        none, nothing = self._none, self.sequence([])
        merge = getattr(delta, "DeltaOperations$Merge")
        write = getattr(delta, "DeltaOperations$Write$").__getattr__("MODULE$")
        optimize = getattr(delta, "DeltaOperations$Optimize")
        self._create_table = getattr(delta, "DeltaOperations$CreateTable")
        self._update_schema = getattr(delta, "DeltaOperations$UpdateSchema")
        self._operations = {
            CommitOperation.MERGE: merge(none, none, none, none, nothing, nothing, nothing),
            CommitOperation.WRITE: write.apply(
                jvm.org.apache.spark.sql.SaveMode.Append, *_defaults(write, 2)
            ),
            CommitOperation.TRUNCATE: getattr(delta, "DeltaOperations$Truncate")(),
        }
        self.optimize = optimize(nothing, nothing, False, none, False)

    def create_table(self, metadata: Any, *, with_rows: bool) -> Any:
        return self._create_table(metadata, False, with_rows, self._none)

    def describe(self, transaction: Any, described: Mapping[str, Any]) -> bool:
        """Let a transaction create the table with this metaData action. Returns whether Delta
        creates it so: a session can have properties for new tables."""
        transaction.deltaLog().createLogDirectoriesIfNotExists()
        (metadata,) = self.actions([json.dumps({"metaData": described})])
        transaction.updateMetadataForNewTable(metadata)
        committed = json.loads(transaction.metadata().json())["metaData"]
        return all(_parsed(committed, name) == _parsed(described, name) for name in DESCRIBED)

    def transaction(self, session: SparkSession, location: str, *, known: bool = False) -> Any:
        """A transaction on the newest version of a table; known: on the newest version that this
        session has read."""
        log = self._log.forTable(session._jsparkSession, location)  # noqa: SLF001
        seen = self._some(log.unsafeVolatileSnapshot()) if known else self._none
        return log.startTransaction(self._none, seen)

    def actions(self, texts: Sequence[str]) -> list[Any]:
        return [self._action.fromJson(text) for text in texts]

    def recorded(self, application: str, number: int) -> Any:
        return self._recorded(application, number, self._some(int(time.time() * 1000)))

    def sequence(self, items: list[Any]) -> Any:
        return self._python.toSeq(items)

    def described(
        self, session: SparkSession, transaction: Any, commit: BatchCommit, actions: Sequence[Any]
    ) -> tuple[Any, Any]:
        """The operation of this thread's commit, and its metrics. The metrics are reused for later
        commits with the same operation. actions: those of the commit, of Delta."""
        operation, values = commit.operation, _metrics(commit)
        if not hasattr(self._local, operation):
            context = session.sparkContext._jsc.sc()  # noqa: SLF001
            metrics = {name: self._metric.createMetric(context, name) for name in values}
            named = self._map()
            for name, metric in metrics.items():
                named.put(name, metric)
            setattr(self._local, operation, (metrics, self._python.toScalaMap(named)))
        metrics, named = getattr(self._local, operation)
        for name, value in values.items():
            metrics[name].set(value)
        if operation is CommitOperation.CREATE:
            return self.create_table(transaction.metadata(), with_rows=True), named
        if operation is CommitOperation.UPDATE_SCHEMA:
            before = transaction.metadata()
            described = zip(commit.actions, actions, strict=True)
            after = [action for text, action in described if text.startswith('{"metaData"')]
            return self._update_schema(before.schema(), (after or [before])[-1].schema()), named
        return self._operations[operation], named


def _parsed(described: Mapping[str, Any], name: str) -> Any:
    return json.loads(described[name]) if name == "schemaString" else described[name]


def _described_otherwise(table: str) -> TableFault:
    return TableFault(
        "Delta would create the table with other columns or properties than its files have",
        table=table,
        hint="It is retried. If it recurs, report it with the settings of the Spark session.",
    )


def _metrics(commit: BatchCommit) -> dict[str, int]:
    """The metrics under Delta's names."""
    counts = commit.counts
    match commit.operation:
        case CommitOperation.WRITE | CommitOperation.CREATE:
            return {"numFiles": commit.number_of("add"), "numOutputRows": counts.insert}
        case CommitOperation.TRUNCATE:
            return {"numRemovedFiles": commit.number_of("remove")}
        case CommitOperation.UPDATE_SCHEMA:
            return {}
        case CommitOperation.MERGE:
            return {
                "operationNumSourceRows": counts.insert + counts.update + counts.delete,
                "numTargetRowsInserted": counts.insert,
                "numTargetRowsUpdated": counts.update,
                "numTargetRowsDeleted": counts.delete,
            }
        case other:
            assert_never(other)


def _defaults(companion: Any, first: int) -> list[Any]:
    """The defaults of a case class from parameter `first` on; their number differs between
    releases."""
    defaults: list[Any] = []
    while True:
        try:
            default = getattr(companion, f"apply$default${first + len(defaults)}")()
        except Py4JError:
            return defaults
        defaults.append(default)


def _outcome(transaction: Any, actions: Any, operation: Any, counts: Counts) -> Outcome:
    try:
        version = transaction.commit(actions, operation)
    except (PySparkException, Py4JJavaError) as error:
        name = name_of(error)
        return Conflicted(name) if name in CONFLICTS else Unknown(name)
    except (Py4JError, OSError) as error:
        return Unknown(type(error).__name__)
    return Applied(int(version), counts)
