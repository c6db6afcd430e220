"""Internals that a newer Spark or Delta may lack: batches go on, or one error says why not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from py4j.java_gateway import JavaClass, JavaObject, JavaPackage, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mirrorlake.errors import SparkUnavailable, StorageUnavailable, UsageError
from mirrorlake.mirror.compaction import small_files
from mirrorlake.mirror.engine import Applied
from mirrorlake.mirror.steps import DropTable
from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session import jars, log_store, s3a, spark_session, workers
from mirrorlake.spark.session.internals import INTERNAL_MISSING
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.trial import guard
from mirrorlake.spark.trial import run as trial
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.urls import StorageLocation
from tests.conformance.mirrored import GENERATION, Mirrored
from tests.histories import Shape, counted
from tests.objects import S3Server
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

SHAPE = Shape.of(["id"], id=types.LONG, day=types.DATE)
OLD, NEW = date(1500, 2, 3), date(2026, 1, 1)

INSTEAD = {
    "_jsc": {"SparkContext.maxNumConcurrentTasks"},
    "resourceProfileManager": {"SparkContext.maxNumConcurrentTasks"},
    "maxNumConcurrentTasks": {"SparkContext.maxNumConcurrentTasks"},
    "pythonExec": set(),
    "_jsparkSession": {"SparkSession.setActiveSession", "DeltaLog.invalidateCache"},
    "SparkSession": {"SparkSession.setActiveSession"},
    "getActiveSession": {"SparkSession.setActiveSession"},
    "setActiveSession": {"SparkSession.setActiveSession"},
    "clearActiveSession": {"SparkSession.clearActiveSession"},
    "DeltaLog": {"DeltaLog.invalidateCache"},
    "invalidateCache": {"DeltaLog.invalidateCache"},
    "_jvm": {"SparkSession.setActiveSession", "DeltaLog.invalidateCache"},
}
"""By each internal that batches use by any strategy, or around them: what is reported missing."""

TOGETHER = [
    ("_jvm", "pythonExec"),
    ("_jsparkSession", "_jsc"),
    ("SparkSession", "resourceProfileManager"),
    ("getActiveSession", "DeltaLog"),
    ("setActiveSession", "invalidateCache"),
    ("clearActiveSession", "maxNumConcurrentTasks"),
]
"""Those that have nothing to do with each other, so that fewer tables are needed."""

Without = Callable[..., None]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Without:
    """Takes names from Java and from PySpark, for the code of mirrorlake alone: where it asks for
    one, py4j is asked for a name that nothing has, and answers as it does then."""

    def take(*names: str) -> None:
        def is_taken(name: str) -> bool:
            asks = sys._getframe(2).f_globals["__name__"]
            return name in names and asks.startswith("mirrorlake.")

        def of_java(found: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
            def get(self: Any, name: str) -> Any:
                return found(self, f"{name}OfNothing" if is_taken(name) else name)

            return get

        def of_python(self: Any, name: str) -> Any:
            if is_taken(name):
                raise AttributeError(name)
            return object.__getattribute__(self, name)

        for kind in (JavaObject, JavaClass, JavaPackage, JVMView):
            monkeypatch.setattr(kind, "__getattr__", of_java(kind.__getattr__))
        for kind in (SparkSession, SparkContext):
            monkeypatch.setattr(kind, "__getattribute__", of_python)

    return take


@pytest.fixture
def inactive(spark: Spark) -> Iterator[None]:
    """The thread of the test has no active session, so that one has to be cleared."""
    sessions = spark.session._jvm.org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.clearActiveSession()
    yield
    if before.isDefined():
        sessions.setActiveSession(before.get())


def missed(logs: list[Mapping[str, Any]]) -> set[str]:
    return {entry["internal"] for entry in logs if entry["event"] == INTERNAL_MISSING}


def lives(spark: Spark, store: LocalStore, *, compacts: bool = False) -> None:
    """A table that goes by merge is made, changed, made anew, compacted and dropped."""
    reader = SparkReader(spark.session, store)
    engine = spark_engine(spark, store, strategy=StrategySetting.MERGE)
    assert engine.slots >= 1
    table = Mirrored(engine, store, reader, SHAPE).create()
    table.apply([(Marker.INSERT, (n, OLD)) for n in range(4)])
    done = table.apply(
        [(Marker.UPDATE, (0, NEW)), (Marker.DELETE, (1, None)), (Marker.UPSERT, (9, OLD))]
    )
    assert dict(table.feed(done.version)) == {
        ("update_preimage", (0, OLD)): 1,
        ("update_postimage", (0, NEW)): 1,
        ("delete", (1, OLD)): 1,
        ("insert", (9, OLD)): 1,
    }
    assert counted(table.rows()) == counted([(0, NEW), (2, OLD), (3, OLD), (9, OLD)])
    # The metadata and the number of a commit are settings of the session that makes it.
    assert json.loads(reader.commit(table.path, done.version)["userMetadata"])
    assert spark_engine(spark, store).progress(table.path).recorded == 2
    table.recorded = 0
    table.create(replace=True, generation=GENERATION[::-1])
    table.apply([(Marker.INSERT, (7, OLD))])
    if compacts:
        table.apply([(Marker.INSERT, (8, OLD))])
        assert isinstance(table.compact(), Applied)
    assert counted(table.rows()) == counted([(7 + n, OLD) for n in range(1 + compacts)])
    engine.drop(DropTable(table.table, table.path, table.folder, GENERATION[::-1]))
    assert not store.list(table.path).files


def test_every_internal_is_taken_by_itself() -> None:
    assert sorted(chain(*TOGETHER)) == sorted(INSTEAD)


@pytest.mark.full
def test_a_table_lives_without_any_internal_of_spark(
    spark: Spark, store: LocalStore, without: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_files, "FANOUT", 2)
    monkeypatch.setattr(small_files, "SMALLEST", 2)
    without(*INSTEAD)
    with structlog.testing.capture_logs() as logs:
        lives(spark, store, compacts=True)
    assert missed(logs) == set().union(*INSTEAD.values()) - {"SparkSession.clearActiveSession"}


@pytest.mark.full
@pytest.mark.parametrize("names", TOGETHER, ids="-".join)
def test_a_table_lives_without_some_internals_of_spark(
    spark: Spark,
    store: LocalStore,
    without: Without,
    inactive: None,
    names: tuple[str, ...],
) -> None:
    without(*names)
    with structlog.testing.capture_logs() as logs:
        lives(spark, store)
    assert missed(logs) == set().union(*(INSTEAD[name] for name in names))


def test_slots_that_spark_does_not_tell_are_its_parallelism(spark: Spark, without: Without) -> None:
    told = SparkRunner(spark.session).slots
    without("maxNumConcurrentTasks")
    assert SparkRunner(spark.session).slots == told == spark.session.sparkContext.defaultParallelism


def test_direct_is_closed_where_its_sessions_cannot_be_active(
    spark: Spark, without: Without
) -> None:
    """A commit would have the metadata of another session."""
    without("setActiveSession")
    assert trial.fails(spark) == "the self-test of direct failed: Py4JError"


def test_direct_is_closed_where_delta_does_not_tell_its_version(
    spark: Spark, without: Without
) -> None:
    without("_jvm")
    assert "cannot be determined" in guard._other_jars(spark.session)


@pytest.mark.parametrize("name", ["_jvm", "addURL", "_jsc"])
def test_without_its_log_store_no_session_goes_on(
    spark: Spark, without: Without, name: str
) -> None:
    without(name)
    with pytest.raises(SparkUnavailable, match=r"can overwrite another.*set spark\.jars to it"):
        log_store.add(spark.session)


def test_a_spark_without_what_our_files_extend_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log_store.FILES in log_store.configuration().values()
    monkeypatch.setattr(jars, "is_tested", lambda: False)
    found = log_store.configuration()
    assert (log_store.FILES in found.values()) == (jars.spark_version() >= (4, 1))
    monkeypatch.setattr(log_store, "pyspark", SimpleNamespace(__path__=[str(tmp_path)]))
    assert log_store.FILES not in log_store.configuration().values()


def test_executors_are_checked_where_their_python_is_not_known(
    spark: Spark, without: Without
) -> None:
    assert workers.required_versions(spark.session) is None
    without("pythonExec")
    assert workers.required_versions(spark.session) == workers.versions()
    workers.check(spark.session)


def test_a_session_starts_and_ends_without_the_gateway(
    spark: Spark, without: Without, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark_session._has(spark.session, "io.delta.tables.DeltaTable")
    without("_jvm")
    assert spark_session._has(spark.session, "io.delta.tables.DeltaTable")
    monkeypatch.delattr(SparkContext, "_gateway")
    monkeypatch.setattr(spark_session, "_logs", [])
    spark_session.end_jvm()
    monkeypatch.undo()
    assert spark.session.range(3).count() == 3


@pytest.mark.parametrize("name", ["_jvm", "_jsc"])
def test_the_way_to_objects_is_tried_without_internals(
    spark: Spark, s3: S3Server, without: Without, name: str
) -> None:
    without(name)
    s3a.check(spark.session, StorageLocation(f"{s3.new_bucket()}/shop", s3.options))
    with pytest.raises(StorageUnavailable, match="cannot access"):
        s3a.check(spark.session, StorageLocation("s3://no-such-bucket/shop", s3.options))
    with pytest.raises(UsageError, match="cannot access gs:// URLs"):
        s3a.check(spark.session, StorageLocation("gs://bucket/shop"))
