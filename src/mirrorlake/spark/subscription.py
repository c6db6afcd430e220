"""A subscription whose changes Delta reads, as DataFrames of whole commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.delta.feed_columns import METADATA
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT, FeedSnapshot
from mirrorlake.feed.subscriptions.subscription import Subscription
from mirrorlake.spark.feed import CAP, feed_errors, frame
from mirrorlake.spark.sql_text import quoted

Session: TypeAlias = SparkSession


@dataclass(frozen=True, slots=True)
class FrameDelivery:
    """Versions `first` to `last` of a table, each with all its changes, or the snapshot of `last`.

    frame: the rows, in no order; those of a snapshot have the `_change_type` `snapshot`.
    position: for the consumer to store together with its effect, for example as the version of a
        Delta transaction.
    schema_changes: the versions that changed the columns since the previous delivery.
    """

    first: int
    last: int
    is_snapshot: bool
    frame: DataFrame
    position: FeedPosition
    schema_changes: tuple[int, ...]


class SparkSubscription:
    """Like `Subscription`, with frames of up to `versions` versions. The session is not changed."""

    def __init__(
        self, subscription: Subscription, session: SparkSession, versions: int = CAP
    ) -> None:
        self.subscription, self.versions, self._session = subscription, versions, session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the name for other processes."""
        self.subscription.close()

    def __iter__(self) -> Iterator[FrameDelivery]:
        """The available changes. The position after each delivery is stored when the next one is
        requested.

        Raises as `Subscription` does; errors that Delta detects only while a frame is computed are
        raised by Delta.
        """
        for part in self.subscription.ranges(self.versions):
            content = part.content
            rows = (
                _snapshot(content, self._session)
                if isinstance(content, FeedSnapshot)
                else frame(content, self._session)
            )
            yield FrameDelivery(
                part.first, part.last, part.is_snapshot, rows, part.position, part.schema_changes
            )

    def follow(self, wait: Callable[[float], bool], seconds: float) -> Iterator[FrameDelivery]:
        """Like iterating, and then new changes as they arrive."""
        while True:
            yield from self
            if wait(seconds):
                return

    def reseed(self) -> None:
        """Start again with a snapshot of the current table (CF-182)."""
        self.subscription.reseed()


def _snapshot(found: FeedSnapshot, session: SparkSession) -> DataFrame:
    with feed_errors(found.request):
        reader = session.read.format("delta").option("versionAsOf", str(found.version))
        rows = reader.load(found.request.table)
        values = (
            functions.lit(SNAPSHOT),
            functions.lit(found.version).cast("bigint"),
            functions.timestamp_millis(functions.lit(int(found.time.timestamp() * 1000))),
        )
        rows = rows.withColumns(dict(zip(METADATA, values, strict=True)))
        return rows.select(*map(quoted, found.schema.names))
