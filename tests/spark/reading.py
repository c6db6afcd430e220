"""Tables as Spark sees them."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.spark.maintenance.vacuum import LISTING
from tests.histories import rows_of
from tests.reference import Row, plain

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Queries are not compiled, which takes longer than to run them on a few rows. The one session of
the tests is so, but not that of the long run, nor those of programs that tests start."""

SMALL = {
    **INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    LISTING: "1",
}
"""Without what helps with large tables only: it takes most of the time with small ones."""


def sql_name(path: str | Path) -> str:
    """A table as SQL names it."""
    return "delta.`" + str(path).replace("`", "``") + "`"


def table(session: SparkSession, path: str | Path) -> DataFrame:
    return session.read.format("delta").load(str(path))


def rows(session: SparkSession, path: str | Path) -> list[Row]:
    return rows_of(table(session, path).toArrow())


def exact(session: SparkSession) -> SparkSession:
    """A session in which filters and the feed have the newer types of Java: the older ones have no
    10 October 1582, and Spark then looks for another day."""
    session = session.newSession()
    for name, value in {**SMALL, "spark.sql.datetime.java8API.enabled": "true"}.items():
        session.conf.set(name, value)
    return session


def changes(session: SparkSession, path: str | Path, **options: Any) -> DataFrame:
    """The rows of the change feed. options: which versions, beside the first."""
    # Delta hands the feed on in Java's types.
    reader = exact(session).read.format("delta").option("readChangeFeed", "true")
    return reader.options(**{"startingVersion": 0, **options}).load(str(path))


def feed(
    session: SparkSession, path: str | Path, first: int = 0, last: int | None = None
) -> dict[int, Counter[tuple[str, Row]]]:
    """The change feed by version: how often each (change type, plain row)."""
    bounds = {"startingVersion": first, **({} if last is None else {"endingVersion": last})}
    read = changes(session, path, **bounds).toArrow()
    assert read.column_names[-3:] == ["_change_type", "_commit_version", "_commit_timestamp"]
    return _by_version(rows_of(read))


def rows_of_many(session: SparkSession, paths: Sequence[str]) -> list[list[Row]]:
    """The rows of each table, by one job for all that have the same columns."""
    return _of_many([table(session, path) for path in paths])


def feeds_of_many(
    session: SparkSession, paths: Sequence[str]
) -> list[dict[int, Counter[tuple[str, Row]]]]:
    """The change feed of each table, by one job for all that have the same columns."""
    found = _of_many([changes(session, path) for path in paths])
    return [_by_version(rows) for rows in found]


def _of_many(frames: Sequence[DataFrame]) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in frames]
    alike: dict[str, list[DataFrame]] = {}
    for number, frame in enumerate(frames):
        numbered = frame.select(functions.lit(number).alias("number of the table"), "*")
        alike.setdefault(str(frame.schema), []).append(numbered)
    for same in alike.values():
        for number, *row in rows_of(functools.reduce(DataFrame.unionAll, same).toArrow()):
            found[number].append(tuple(row))
    return found


def _by_version(rows: Sequence[Row]) -> dict[int, Counter[tuple[str, Row]]]:
    found: dict[int, Counter[tuple[str, Row]]] = {}
    for *row, kind, version, _time in rows:
        found.setdefault(version, Counter())[kind, plain(tuple(row))] += 1
    return found


def history(session: SparkSession, path: str | Path) -> list[dict[str, Any]]:
    """What was done to the table, newest first."""
    return [row.asDict() for row in session.sql(f"describe history {sql_name(path)}").collect()]
