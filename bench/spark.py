"""The Spark session that both sides of a comparison share, started before anything is timed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.settings import SparkSettings

MEMORY = "4g"
"""Twice the product's own default: a plain MERGE of the full size is slowed by less."""


@contextmanager
def session() -> Iterator[SparkSession]:
    with Spark.start(SparkSettings(driver_memory=MEMORY)) as spark:
        yield spark.session
