"""The Spark session that both sides of a comparison share, started before anything is timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mirrorlake.spark.session import jars
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

MEMORY = "4g"
"""Twice the product's own default: a plain MERGE of the full size is slowed by less."""


@contextmanager
def session(packages: Sequence[str] = ()) -> Iterator[SparkSession]:
    """packages: coordinates of what a peer needs."""
    settings = SparkSettings(driver_memory=MEMORY)
    conf = {}
    if packages:
        found = jars.configuration(settings)["spark.jars.packages"]
        conf["spark.jars.packages"] = ",".join([found, *packages])
    with Spark.start(SparkSettings(driver_memory=MEMORY, conf=conf)) as spark:
        yield spark.session
