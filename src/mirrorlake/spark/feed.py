"""The change feed of a table as a DataFrame, read by Delta within a fixed range.

Delta always gets both versions: it would silently clip a late end, resolve a missing end at each
execution, and interpret times in the session's time zone (CF-118, CF-122, CF-125). The session is
not changed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.delta.log.table_log import Action
from mirrorlake.errors import FeedError
from mirrorlake.feed import rows as by_key
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.ranges import SchemaRange
from mirrorlake.feed.reader import Feed
from mirrorlake.feed.reasons import HINTS, FeedReason, reason_of
from mirrorlake.feed.widening import fits
from mirrorlake.spark.errors import RAISED, RaisedCondition, conditions
from mirrorlake.spark.sql_text import quoted

CAP = 200
"""Maximum number of versions in one Delta query, because the driver plans each of them (CF-175)."""

SCANNED = 10
"""The weight of a version with deletion vectors and without change files, which Delta scans
individually (CF-128)."""

Frame: TypeAlias = DataFrame
Session: TypeAlias = SparkSession


def frame(feed: Feed, session: SparkSession, cap: int = CAP) -> DataFrame:
    """The rows of a feed, in no order. Raises FeedError, also when they do not have a single
    schema.

    Errors that Delta detects only while the frame is computed are raised by Delta; `feed_errors`
    translates them to FeedError.
    """
    feed.one_schema()
    for part in feed.ranges:
        if not fits(part.schema, feed.ranges[-1].schema):
            raise feed.request.refused(
                f"Delta does not unite versions {part.first} to {part.last} with the columns of "
                f"version {feed.last}",
                FeedReason.SCHEMA_CHANGED,
                hint="Leave out spark=, or read each range by itself.",
            )
    with feed_errors(feed.request):
        found = [query for part in feed.ranges for query in _parts(feed, session, part, cap)]
        if not found:
            return _empty(feed, session)
        whole = functools.reduce(lambda left, right: left.unionByName(right), found)
        arranged = _arranged(feed)
        if arranged is None:
            return whole
        return whole.groupBy("_commit_version").applyInArrow(arranged, whole.schema)


@contextmanager
def feed_errors(request: FeedRequest) -> Iterator[None]:
    """Translates exceptions of Delta and Spark to errors of the feed, by their condition."""
    try:
        yield
    except RAISED as error:
        raise feed_error(error, request) from error


def feed_error(error: Exception, request: FeedRequest) -> FeedError:
    """The error of the feed for an exception of Delta or Spark, or one of its causes."""
    raised = _condition(error)
    reason = reason_of(raised.name, is_before_oldest=_is_before_oldest(raised))
    return FeedError(
        f"Delta refused the read: {raised.name or type(error).__name__}",
        reason=reason,
        table=request.table,
        requested=str(request),
        hint=HINTS[reason],
        condition=raised.name,
        sqlstate=raised.sqlstate,
    )


def _condition(error: Exception) -> RaisedCondition:
    """The innermost known condition, else the first one."""
    found = [*conditions(error), RaisedCondition("", "", {})]
    known = [condition for condition in found if reason_of(condition.name) != FeedReason.OTHER]
    return known[-1] if known else found[0]


def _is_before_oldest(raised: RaisedCondition) -> bool:
    """Whether a version that was not found is before the available ones (CF-168)."""
    versions = [raised.parameters.get(name, "") for name in ("userVersion", "earliest")]
    return all(version.isdecimal() for version in versions) and int(versions[0]) < int(versions[1])


def _parts(feed: Feed, session: SparkSession, part: SchemaRange, cap: int) -> Iterator[DataFrame]:
    """Queries of at most `cap` versions each, in version order."""
    for first, last in spans(feed, part, cap):
        rows = _query(feed, session, first, last)
        yield rows.select(*map(quoted, feed.schema().names))


def spans(feed: Feed, part: SchemaRange, cap: int) -> Iterator[tuple[int, int]]:
    """The first and the last version of each query."""
    first, cost = part.first, 0
    for version in range(part.first, part.last + 1):
        own = SCANNED if _is_scanned(feed.history.actions(version)) else 1
        if cost + own > cap and version > first:
            yield first, version - 1
            first, cost = version, 0
        cost += own
    yield first, part.last


def _is_scanned(actions: Sequence[Action]) -> bool:
    files = (action.get("add") or action.get("remove") or {} for action in actions)
    has_vectors = any(file.get("deletionVector") for file in files)
    return has_vectors and not any("cdc" in action for action in actions)


def _empty(feed: Feed, session: SparkSession) -> DataFrame:
    """No rows, with the columns of the feed."""
    rows = session.read.format("delta").load(feed.request.table).limit(0)
    kinds = zip(METADATA, ("string", "bigint", "timestamp"), strict=True)
    rows = rows.withColumns({name: functions.lit(None).cast(kind) for name, kind in kinds})
    return rows.select(*map(quoted, feed.schema().names))


def _query(feed: Feed, session: SparkSession, first: int, last: int) -> DataFrame:
    reader = session.read.format("delta").option("readChangeFeed", "true")
    bounded = reader.option("startingVersion", str(first)).option("endingVersion", str(last))
    return bounded.load(feed.request.table)


def _arranged(feed: Feed) -> Callable[[pa.Table], pa.Table] | None:
    """The function that is applied to the rows of each commit."""
    request, key = feed.request, feed.key
    if not request.pair_updates and not request.skip_unchanged:
        return None

    def arranged(rows: pa.Table) -> pa.Table:
        if request.pair_updates:
            rows = by_key.paired(rows, key)
        return by_key.without_unchanged(rows, key) if request.skip_unchanged else rows

    return arranged
