"""The change feed of a table as a frame, read by Delta within the range that we fixed.

Delta gets versions only, and both of them: it would cut a late end in silence, determine a missing
end at each run, and read times in the zone of the session (CF-118, CF-122, CF-125). Of the session
nothing is changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.errors import FeedError
from mirrorlake.feed import rows as by_key
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.ranges import SchemaRange
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import HINTS, FeedReason, reason_of
from mirrorlake.feed.widening import fits
from mirrorlake.spark.errors import RAISED, conditions
from mirrorlake.spark.sql_text import quoted

CAP = 200
"""Versions that one query of Delta reads at most, as the driver plans each of them."""

Frame: TypeAlias = DataFrame
Session: TypeAlias = SparkSession


def frame(feed: Feed, session: SparkSession, cap: int = CAP) -> DataFrame:
    """The rows of a feed, in no order. Raises FeedError, also when they have not one schema.

    What Delta finds out only while the frame is computed it raises by itself; `feed_errors` turns
    that into a FeedError.
    """
    feed.one_schema()
    for one in feed.ranges:
        if not fits(one.schema, feed.ranges[-1].schema):
            raise feed.request.refused(
                f"Delta does not unite versions {one.first} to {one.last} with the columns of "
                f"version {feed.last}",
                FeedReason.SCHEMA_CHANGED,
                hint="Leave out spark=, or read each range by itself.",
            )
    with feed_errors(feed.request):
        found = [part for one in feed.ranges for part in _parts(feed, session, one, cap)]
        if not found:
            return _empty(feed, session)
        whole = functools.reduce(lambda one, other: one.unionByName(other), found)
        arranged = _arranged(feed)
        if arranged is None:
            return whole
        return whole.groupBy("_commit_version").applyInArrow(arranged, whole.schema)


@contextmanager
def feed_errors(request: FeedRequest) -> Iterator[None]:
    """What Delta and Spark raise, as an error of the feed, by its condition."""
    try:
        yield
    except RAISED as error:
        raise feed_error(error, request) from error


def feed_error(error: Exception, request: FeedRequest) -> FeedError:
    """The error of the feed for what Delta or Spark raised, itself or as a cause."""
    condition, sqlstate = _condition(error)
    reason = reason_of(condition)
    return FeedError(
        f"Delta refused the read: {condition or type(error).__name__}",
        reason=reason,
        table=request.table,
        requested=str(request),
        hint=HINTS[reason],
        condition=condition,
        sqlstate=sqlstate,
    )


def _condition(error: Exception) -> tuple[str, str]:
    """The name of the condition and its SQLSTATE: the innermost that is known, or the first."""
    found = [*_conditions(error)]
    known = [one for one in found if reason_of(one[0]) != "other"]
    return (known or found or [("", "")])[-1 if known else 0]


def _conditions(error: Exception) -> Iterator[tuple[str, str]]:
    if isinstance(error, PySparkException) and (name := error.getCondition()):
        yield name, error.getSqlState() or ""
    yield from conditions(error)


def _parts(feed: Feed, session: SparkSession, one: SchemaRange, cap: int) -> Iterator[DataFrame]:
    """Queries of at most `cap` versions each."""
    for first in range(one.first, one.last + 1, cap):
        rows = _query(feed, session, first, min(first + cap - 1, one.last))
        yield rows.select(*map(quoted, feed.schema().names))


def _empty(feed: Feed, session: SparkSession) -> DataFrame:
    """No rows, with the columns of the feed."""
    rows = session.read.format("delta").load(feed.request.table).limit(0)
    kinds = zip(by_key.METADATA, ("string", "bigint", "timestamp"), strict=True)
    rows = rows.withColumns({name: functions.lit(None).cast(kind) for name, kind in kinds})
    return rows.select(*map(quoted, feed.schema().names))


def _query(feed: Feed, session: SparkSession, first: int, last: int) -> DataFrame:
    reader = session.read.format("delta").option("readChangeFeed", "true")
    bounded = reader.option("startingVersion", str(first)).option("endingVersion", str(last))
    return bounded.load(feed.request.table)


def _arranged(feed: Feed) -> Callable[[pa.Table], pa.Table] | None:
    """What is done to the rows of each commit."""
    request, key = feed.request, feed.key
    if not request.pair_updates and not request.skip_unchanged:
        return None

    def arranged(rows: pa.Table) -> pa.Table:
        if request.pair_updates:
            rows = by_key.paired(rows, key)
        return by_key.without_unchanged(rows, key) if request.skip_unchanged else rows

    return arranged
