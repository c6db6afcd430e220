"""A Structured Streaming query over the feed of a table. It is restarted when Spark ends it
although it can continue (CF-185)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeAlias

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.errors import FeedError
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reasons import FeedReason
from mirrorlake.feed.subscriptions.record import FeedPosition
from mirrorlake.feed.subscriptions.stream import (
    FeedStreamRecord,
    FeedStreamRecords,
    complete_at,
    stream_metadata,
)
from mirrorlake.feed.subscriptions.subscription import Subscription
from mirrorlake.spark.errors import RAISED, conditions
from mirrorlake.spark.feed import feed_error, feed_errors

log = structlog.get_logger()

STREAM_RESTARTED = "stream_restarted"
CANNOT_CONTINUE = "DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION"
LOOK = 1
"""Seconds between two checks of a query."""

Frame: TypeAlias = DataFrame
Session: TypeAlias = SparkSession


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Limits of batches.

    max_files, max_bytes: approximate, per batch (CF-048).
    seconds: between two batches.
    accept_schema_change: the version of a schema change (a renamed, dropped or retyped column) that
        the target is ready for.
    """

    max_files: int | None = None
    max_bytes: str | None = None
    seconds: float = 0.0
    accept_schema_change: int | None = None

    def options(self) -> dict[str, str]:
        """As options of Delta."""
        accepted = self.accept_schema_change
        kinds = ("Rename", "Drop", "TypeChange")
        named = {f"allowSourceColumn{kind}": accepted for kind in kinds}
        limits = {"maxFilesPerTrigger": self.max_files, "maxBytesPerTrigger": self.max_bytes}
        return {name: str(value) for name, value in (named | limits).items() if value is not None}


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """One batch.

    number: of Spark; starts at 0 again after a recovery.
    position: after the last version that the target has completely with this batch, None while it
        receives the snapshot.
    options: for the writer of a Delta table, which then has each batch once and records its
        progress.
    """

    number: int
    position: FeedPosition | None
    options: dict[str, str]


Write: TypeAlias = Callable[[DataFrame, StreamBatch], None]


class FeedStream:
    """A stream with the name of a subscription. restarts: how often it was restarted."""

    def __init__(
        self,
        subscription: Subscription,
        session: SparkSession,
        write: Write,
        records: FeedStreamRecords,
        record: FeedStreamRecord,
        request: FeedRequest,
        table_log: TableLog,
        limits: StreamLimits,
    ) -> None:
        self.subscription, self.restarts = subscription, 0
        self._session, self._write, self._request = session, write, request
        self._records, self._record, self._limits = records, record, limits
        self._log, self._raised = table_log, list[Exception]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the name for other processes."""
        self.subscription.close()

    def run(self, stop: threading.Event | None = None, *, available_now: bool = False) -> None:
        """Pass batches to `write` until `stop` is set, or with `available_now` all that are
        available.

        Raises FeedError, LeaseLost, and what `write` raises.
        """
        ended = stop or threading.Event()
        with self.subscription.renewing():
            while self._has_begun(ended, available_now=available_now):
                try:
                    self._run(ended, available_now=available_now)
                except FeedError as error:
                    if error.reason is not FeedReason.RESTART_NEEDED:
                        raise
                    self.restarts += 1
                    name, condition = self.subscription.name, error.condition
                    log.info(STREAM_RESTARTED, stream=name, condition=condition)
                else:
                    return

    def _has_begun(self, ended: threading.Event, *, available_now: bool) -> bool:
        """Wait for the first version, which Delta requires to exist."""
        start = self._record.start
        while start is not None and self.subscription.latest() < start:
            if available_now or ended.wait(LOOK):
                return False
            self.subscription.check()
        return True

    def _run(self, ended: threading.Event, *, available_now: bool) -> None:
        self._raised.clear()
        with feed_errors(self._request):
            query = self._started(available_now=available_now)
        try:
            while not query.awaitTermination(LOOK):
                self.subscription.check()
                if ended.is_set():
                    return
        except RAISED as error:
            raise self._why(error) from error
        finally:
            query.stop()

    def _started(self, *, available_now: bool) -> StreamingQuery:
        checkpoint = self._records.checkpoint(self.subscription.name, self._record.number)
        options = {
            "readChangeFeed": "true",
            "schemaTrackingLocation": f"{checkpoint}/_schema_log",
            **self._limits.options(),
        }
        if self._record.start is not None:
            options["startingVersion"] = str(self._record.start)
        reader = self._session.readStream.format("delta").options(**options)
        writer = reader.load(self._request.table).writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", checkpoint)
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._limits.seconds} seconds").start()

    def _batch(self, rows: DataFrame, number: int) -> None:
        name = self.subscription.name
        try:
            self.subscription.check()
            offset = self._records.offset(name, self._record.number, number)
            complete = complete_at(offset, self._log)
            table_id = self.subscription.record.table_id
            position = None if complete is None else FeedPosition(table_id, complete)
            query_id = self._records.query_id(name, self._record.number)
            options = {
                "txnAppId": f"mirrorlake-stream/{query_id}",
                "txnVersion": str(number),
                "userMetadata": stream_metadata(name, position),
            }
            self._write(rows, StreamBatch(number, position, options))
            if complete is not None:
                self.subscription.passed(complete)
        except Exception as error:
            self._raised.append(error)
            raise

    def _why(self, error: Exception) -> Exception:
        """The error that ended a query: what `write` raised, or an error of the feed."""
        if self._raised:
            return self._raised[0]
        found = feed_error(error, self._request)
        if any(condition.name == CANNOT_CONTINUE for condition in conditions(error)):
            found.condition = CANNOT_CONTINUE
            found.hint = (
                "The cause names columns that were renamed, dropped or changed, and a version. "
                "Change the target, and pass accept_schema_change= with that version."
            )
        return found
