"""How Delta itself is asked: a statement or a read, and the condition by which it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.spark.errors import RAISED, conditions
from mirrorlake.spark.session.spark_session import Spark
from tests.feed.handmade_feed import FeedTable, time_of
from tests.spark import reading

ON = "delta.enableChangeDataFeed = true"
VECTORS = f"{ON}, delta.enableDeletionVectors = true"
OUT_OF_RANGE = "spark.databricks.delta.changeDataFeed.timestampOutOfRange.enabled"

Change = tuple[int, str, Any]
"""Version, change type and key of a row of the feed."""


def new_session(spark: Spark, **settings: str) -> SparkSession:
    """A session for small tables."""
    session = spark.session.newSession()
    for name, value in {**reading.SMALL, **settings}.items():
        session.conf.set(name, value)
    return session


class Plain:
    """A table at a path, written and read by Delta alone."""

    def __init__(
        self, session: SparkSession, path: Path, columns: str = "", told: str = ON
    ) -> None:
        self.session, self.path = session, path
        self.name = reading.sql_name(path)
        if columns:
            self.sql(f"create table {{}} ({columns}) using delta tblproperties ({told})")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """The rows of the last one. `{}` is the table."""
        found: list[tuple[Any, ...]] = []
        for statement in statements:
            found = rows_of(self.session.sql(statement.format(self.name)))
        return found

    @property
    def version(self) -> int:
        return TableLog(self.path).versions()[-1]

    def kinds(self, version: int) -> set[str]:
        """The kinds of files that a commit names: add, remove, cdc."""
        return {
            kind
            for action in TableLog(self.path).actions(version)
            for kind in ("add", "remove", "cdc")
            if kind in action
        }

    def frame(self, **options: Any) -> DataFrame:
        return read(self.session, self.path, **options)

    def feed(self, first: int = 0, last: int | None = None, key: str = "id") -> list[Change]:
        bounds = {"startingVersion": first, **({} if last is None else {"endingVersion": last})}
        return changes_of(self.frame(**bounds), key)


def read(session: SparkSession, path: Path, **options: Any) -> DataFrame:
    """A batch read of the feed."""
    reader = session.read.format("delta").option("readChangeFeed", "true").options(**options)
    return reader.load(str(path))


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.collect()]


def changes_of(frame: DataFrame, key: str = "id") -> list[Change]:
    return sorted(rows_of(frame.select("_commit_version", "_change_type", key)))


def condition(act: Callable[[], Any]) -> tuple[str, str]:
    """The condition and SQLSTATE by which Delta refuses an act; of several causes the innermost."""
    try:
        act()
    except RAISED as error:
        found = [(one.name, one.sqlstate) for one in conditions(error)]
        return found[-1] if found else (type(error).__name__, str(error))
    raise AssertionError("it was not refused")


def refused_as(act: Callable[[], Any]) -> type[Exception]:
    """The class by which Python gets a refusal."""
    try:
        act()
    except RAISED as error:
        return PySparkException if isinstance(error, PySparkException) else type(error)
    raise AssertionError("it was not refused")


def dated(table: FeedTable, versions: Sequence[int]) -> None:
    """Give the commits the times that they say, by which Delta goes."""
    for version in versions:
        moment = time_of(version).timestamp()
        os.utime(table.path / f"_delta_log/{version:020d}.json", (moment, moment))
