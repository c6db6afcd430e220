"""The runner and the committer on Spark keep their contracts."""

from __future__ import annotations

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


class TestSparkCommitter(CommitterContract):
    @pytest.fixture
    def committer(self, spark: Spark) -> SparkCommitter:
        return SparkCommitter(spark.session)

    @pytest.fixture
    def tables(self, spark: Spark, store: LocalStore) -> SparkTables:
        return SparkTables(spark.session, store, committer=SparkCommitter(spark.session))
