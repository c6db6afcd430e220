"""One Delta commit: actions that tasks have prepared, through Delta's own transaction.

This is Scala API that Delta calls internal; it is used for the tested pairs only. What must hold:

- The transaction is on the very version that the tasks have read, so that nothing another writer
  did is overlooked; the recorded number is that version's.
- The application id is registered as read, so that two commits under one id conflict.
- The operation is MERGE with its metrics, or OPTIMIZE: a "manual update" switches the incremental
  checksum off and makes every later commit slow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mirrorlake.mirror.engine import Applied, Conflicted, Counts, Outcome, Unknown
from mirrorlake.spark.refusals import CONFLICTS
from mirrorlake.spark.sessions import Sessions

USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True)
class Commit:
    """What the commit of a batch holds. version: of the table that the tasks have read."""

    location: str
    version: int
    application: str
    number: int
    actions: Sequence[str]
    counts: Counts
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """What a commit holds that leaves the rows as they are, and records nothing."""

    location: str
    version: int
    actions: Sequence[str]


class Committer:
    """Commits from several threads, each in a session of its own, because the metadata of a commit
    is a setting of the session."""

    def __init__(self, spark: SparkSession) -> None:
        self._sessions = Sessions(spark)

    def commit(self, commit: Commit) -> Outcome:
        """Commit a batch, if the table is still at the version that was read."""
        with self._sessions.active() as session:
            return self._committed(session, commit)

    def rearrange(self, commit: Rearrangement) -> Outcome:
        """Commit files in the place of others, if all of these are still there."""
        with self._sessions.active() as session:
            return self._rearranged(session, commit)

    def _committed(self, session: SparkSession, commit: Commit) -> Outcome:
        jvm: Any = session._jvm  # noqa: SLF001
        transaction = self._transaction(session, commit.location)
        found = transaction.snapshot().version()
        if found != commit.version:
            return Conflicted(f"the table is at version {found}, the batch read {commit.version}")
        transaction.readTxn().addOne(commit.application)
        transaction.readWholeTable()
        metrics = self._metrics(jvm, session, commit.counts)
        transaction.registerSQLMetrics(session._jsparkSession, metrics)  # noqa: SLF001
        actions = [*_parsed(jvm, commit.actions), _recorded(jvm, commit)]
        session.conf.set(USER_METADATA, json.dumps(commit.metadata))
        return _outcome(transaction, _sequence(jvm, actions), _merge(jvm), commit.counts)

    def _rearranged(self, session: SparkSession, commit: Rearrangement) -> Outcome:
        jvm: Any = session._jvm  # noqa: SLF001
        transaction = self._transaction(session, commit.location)
        found = transaction.snapshot().version()
        if found != commit.version:
            return Conflicted(f"the table is at version {found}, {commit.version} was read")
        session.conf.unset(USER_METADATA)
        actions = _sequence(jvm, _parsed(jvm, commit.actions))
        return _outcome(transaction, actions, _optimize(jvm), Counts())

    def _transaction(self, session: SparkSession, location: str) -> Any:
        jvm: Any = session._jvm  # noqa: SLF001
        none = jvm.scala.Option.empty()
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            session._jsparkSession,  # noqa: SLF001
            location,
        )
        return log.startTransaction(none, none)

    def _metrics(self, jvm: Any, session: SparkSession, counts: Counts) -> Any:
        metrics = getattr(jvm.org.apache.spark.sql.execution.metric, "SQLMetrics$").__getattr__(
            "MODULE$"
        )
        values = {
            "operationNumSourceRows": counts.insert + counts.update + counts.delete,
            "numTargetRowsInserted": counts.insert,
            "numTargetRowsUpdated": counts.update,
            "numTargetRowsDeleted": counts.delete,
        }
        named = jvm.java.util.HashMap()
        for name, value in values.items():
            metric = metrics.createMetric(session.sparkContext._jsc.sc(), name)  # noqa: SLF001
            metric.set(value)
            named.put(name, metric)
        return jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(named)


def _name(error: PySparkException | Py4JJavaError) -> str:
    """Delta's name of a condition, whether or not somebody translated it for Python."""
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.getClass().getSimpleName())
    return type(error).__name__


def _outcome(transaction: Any, actions: Any, operation: Any, counts: Counts) -> Outcome:
    try:
        version = transaction.commit(actions, operation)
    except (PySparkException, Py4JJavaError) as error:
        name = _name(error)
        return Conflicted(name) if name in CONFLICTS else Unknown(name)
    except (Py4JError, OSError) as error:
        return Unknown(type(error).__name__)
    return Applied(int(version), counts)


def _parsed(jvm: Any, actions: Sequence[str]) -> list[Any]:
    module = getattr(jvm.org.apache.spark.sql.delta.actions, "Action$").__getattr__("MODULE$")
    return [module.fromJson(action) for action in actions]


def _recorded(jvm: Any, commit: Commit) -> Any:
    now = jvm.scala.Some(int(time.time() * 1000))
    transaction = jvm.org.apache.spark.sql.delta.actions.SetTransaction
    return transaction(commit.application, commit.number, now)


def _merge(jvm: Any) -> Any:
    none, nothing = jvm.scala.Option.empty(), _sequence(jvm, [])
    operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Merge")
    return operation(none, none, none, none, nothing, nothing, nothing)


def _optimize(jvm: Any) -> Any:
    none, nothing = jvm.scala.Option.empty(), _sequence(jvm, [])
    operation = getattr(jvm.org.apache.spark.sql.delta, "DeltaOperations$Optimize")
    return operation(nothing, nothing, False, none, False)


def _sequence(jvm: Any, items: list[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)
