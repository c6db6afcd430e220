"""A subscription whose changes are read by Delta, as frames of whole commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self, TypeAlias

from pyspark.sql import DataFrame, SparkSession, functions

from mirrorlake.feed.rows import METADATA
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.snapshot import SNAPSHOT, FeedSnapshot
from mirrorlake.feed.subscriptions.subscription import Subscription
from mirrorlake.spark.feed import CAP, feed_errors, frame
from mirrorlake.spark.sql_text import quoted

Session: TypeAlias = SparkSession


@dataclass(frozen=True, slots=True)
class FrameDelivery:
    """Versions `first` to `last` of a table, each with all its changes, or the snapshot of `last`.

    frame: the rows, in no order; those of a snapshot have the `_change_type` `snapshot`. position:
    to be stored by a consumer with its effect, such as the version of a Delta transaction;
    schema_changes: the versions that changed the columns of the table since the delivery before.
    """

    first: int
    last: int
    is_snapshot: bool
    frame: DataFrame
    position: FeedPosition
    schema_changes: tuple[int, ...]


class SparkSubscription:
    """As `Subscription`, with frames of up to `versions` versions. Nothing in the session is
    changed."""

    def __init__(
        self, subscription: Subscription, session: SparkSession, versions: int = CAP
    ) -> None:
        self.subscription, self.versions, self._session = subscription, versions, session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another process read under this name."""
        self.subscription.close()

    def __iter__(self) -> Iterator[FrameDelivery]:
        """What is there now. The position behind each is stored when the next one is asked for.

        Raises as `Subscription`; what Delta finds out only while a frame is computed it raises by
        itself.
        """
        for one in self.subscription.ranges(self.versions):
            content = one.content
            rows = (
                _snapshot(content, self._session)
                if isinstance(content, FeedSnapshot)
                else frame(content, self._session)
            )
            yield FrameDelivery(
                one.first, one.last, one.is_snapshot, rows, one.position, one.schema_changes
            )

    def follow(self, wait: Callable[[float], bool], seconds: float) -> Iterator[FrameDelivery]:
        """As iterating, and then what comes."""
        while True:
            yield from self
            if wait(seconds):
                return

    def reseed(self) -> None:
        """Begin again with a snapshot of the table that is there now (CF-182)."""
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
