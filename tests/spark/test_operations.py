"""The history of a table names what a commit did."""

from __future__ import annotations

import pytest

from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.conformance.mirrored import Mirrored
from tests.histories import Shape
from tests.spark import reading
from tests.spark.test_apply import SparkReader

pytestmark = pytest.mark.spark

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)


@pytest.mark.full
def test_operations_and_their_metrics_are_reported(spark: Spark, store: LocalStore) -> None:
    reader = SparkReader(spark.session, store)
    table = Mirrored(spark_engine(spark, store), store, reader, SHAPE, "Tables/told").create()
    table.apply([(Marker.INSERT, (1, "a")), (Marker.INSERT, (2, "b"))])
    table.apply([(Marker.UPDATE, (1, "c"))])
    table.apply([(Marker.DELETE, (2, None))])
    table.apply(truncated=True)
    table.apply([(Marker.INSERT, (3, "d"))])
    table.apply([(Marker.INSERT, (4, "e"))], truncated=True)
    history = reading.history(spark.session, store.location(table.path))
    operations = [entry["operation"] for entry in reversed(history)][1:]
    assert operations == ["WRITE", "MERGE", "MERGE", "TRUNCATE", "WRITE", "MERGE"]
    first = history[-2]
    assert first["operationMetrics"]["numOutputRows"] == "2"
    assert first["operationParameters"]["mode"] == "Append"
    assert table.rows() == [(4, "e")]
