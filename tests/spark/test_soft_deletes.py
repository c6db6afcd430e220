"""Soft deletes on the real Spark and Delta are those of the model, as Spark reads rows and feed."""

from __future__ import annotations

import pytest

from mirrorlake.mirror.strategy import StrategySetting
from mirrorlake.spark.engine import spark_engine
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.local import LocalStore
from tests.apply.test_soft_deletes import DEL, INS, TOLD, UPD, SoftTable, check_another_key
from tests.reference import Change
from tests.spark.test_apply import SparkReader

pytestmark = [pytest.mark.spark, pytest.mark.full]


@pytest.mark.parametrize("strategy", [StrategySetting.AUTO, StrategySetting.MERGE])
def test_rows_are_marked_and_cleared(
    spark: Spark, store: LocalStore, strategy: StrategySetting
) -> None:
    engine = spark_engine(spark, store, strategy=strategy)
    table = SoftTable(store, TOLD, engine=engine, reader=SparkReader(spark.session, store))
    table.apply([Change(INS, (n, "a", "1:1")) for n in range(6)], is_load=True, appends=True)
    table.apply([Change(DEL, (n, None, "2:1")) for n in (0, 1)], [Change(UPD, (2, "b", "2:2"))])
    table.apply([Change(INS, (0, "c", "3:1")), Change(DEL, (3, None, "3:2"))])
    table.truncate()
    table.apply([Change(INS, (1, "d", "5:1")), Change(INS, (9, "e", "5:2"))])
    check_another_key(SoftTable(store, TOLD, engine=engine, reader=table.mirrored.reader))
