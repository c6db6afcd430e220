"""The runner and the committer on Spark keep their contracts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from pyspark.cloudpickle import register_pickle_by_value, unregister_pickle_by_value

from mirrorlake.spark.committer import SparkCommitter
from mirrorlake.spark.runner import SparkRunner
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.tables import SparkTables
from mirrorlake.storage.local import LocalStore
from tests.conformance import runner as conformance
from tests.conformance.committer import CommitterContract
from tests.conformance.runner import RunnerContract

pytestmark = pytest.mark.spark


class TestSparkRunner(RunnerContract):
    @pytest.fixture
    def runner(self, spark: Spark) -> Iterator[SparkRunner]:
        """Executors cannot import the tests."""
        register_pickle_by_value(conformance)
        yield SparkRunner(spark.session)
        unregister_pickle_by_value(conformance)


def test_the_first_job_waits_for_the_worker_that_starts(spark: Spark) -> None:
    runner = SparkRunner(spark.session)
    runner.warm()
    warming = runner._warming
    assert warming is not None
    assert runner.run(abs, [-1]) == [1]
    assert not warming.is_alive()


def test_a_start_of_a_worker_that_fails_is_left_to_the_first_job(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirrorlake.spark.runner._import_tasks", time.sleep)  # of None
    runner = SparkRunner(spark.session)
    runner.warm()
    assert runner.run(abs, [-1]) == [1]


def test_threads_that_wait_for_the_worker_do_not_disturb_each_other() -> None:
    class Shared(SparkRunner):
        """Another thread always forgets the start between two looks."""

        _looks = 0

        @property
        def _warming(self) -> threading.Thread | None:
            self._looks += 1
            return started if self._looks == 1 else None

        @_warming.setter
        def _warming(self, _thread: threading.Thread | None) -> None:
            pass

    started = threading.Thread(target=int)
    started.start()
    object.__new__(Shared)._await_warm()
    assert not started.is_alive()


class TestSparkCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: Spark) -> SparkCommitter:
        return SparkCommitter(spark.session)

    @pytest.fixture
    def tables(self, spark: Spark, store: LocalStore) -> SparkTables:
        return SparkTables(spark.session, store)
