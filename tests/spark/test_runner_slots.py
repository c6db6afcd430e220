"""How many tasks a job is planned for where executors come as they are needed."""

from __future__ import annotations

import pytest
from pyspark import SparkConf

from mirrorlake.spark.runner import ELASTIC_SLOTS, elastic_slots


@pytest.mark.parametrize(
    ("conf", "slots"),
    [
        ({}, 0),
        ({"enabled": "false", "maxExecutors": "8"}, 0),
        ({"enabled": "true", "maxExecutors": "3"}, 3),
        ({"enabled": "true", "maxExecutors": "100"}, ELASTIC_SLOTS),
        ({"enabled": "true"}, ELASTIC_SLOTS),
    ],
)
def test_executors_that_may_come_count(conf: dict[str, str], slots: int) -> None:
    found = SparkConf(loadDefaults=False)
    for name, value in conf.items():
        found.set(f"spark.dynamicAllocation.{name}", value)
    assert elastic_slots(found) == slots
    found.set("spark.executor.cores", "4").set("spark.task.cpus", "2")
    assert elastic_slots(found) == min(2 * slots, ELASTIC_SLOTS)
