"""How plain Delta streams the feed: where a stream begins, what a batch is, and how it ends."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake import FeedError
from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.spark.errors import RAISED
from mirrorlake.spark.feed import feed_errors
from mirrorlake.spark.session.spark_session import Spark
from tests.docs.generate import DOCS
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable, time_of
from tests.spark.plain_delta.plain import (
    OUT_OF_RANGE,
    Change,
    condition,
    dated,
    new_session,
    rows_of,
)

pytestmark = pytest.mark.spark

NOT_FOUND = ("DELTA_VERSION_NOT_FOUND", "22003")


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


class Stream:
    """A stream over the feed of a table, which takes what there is and ends."""

    def __init__(self, session: SparkSession, table: FeedTable, checkpoint: Path) -> None:
        self._session, self._table, self.checkpoint = session, table, checkpoint

    def batches(self, **options: Any) -> list[list[Change]]:
        """The rows of each batch that has some."""
        found: list[list[Change]] = []

        def take(rows: DataFrame, _number: int) -> None:
            some = rows_of(rows.select("_commit_version", "_change_type", "id"))
            found.extend([sorted(some)] if some else [])

        reader = self._session.readStream.format("delta").option("readChangeFeed", "true")
        query = reader.options(**options).load(str(self._table.path)).writeStream
        query = query.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
        return found

    def refused(self, **options: Any) -> tuple[str, str]:
        return condition(lambda: self.batches(**options))


StreamOf = Callable[[FeedTable], Stream]


@pytest.fixture
def stream(session: SparkSession, tmp_path: Path) -> StreamOf:
    return lambda table: Stream(session, table, tmp_path / "checkpoint")


@pytest.fixture
def orders(tmp_path: Path) -> FeedTable:
    """Version 1 inserts the keys 1 and 2, version 2 changes both."""
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    return table


FIRST = [(1, "insert", 1), (1, "insert", 2)]
SECOND = [(2, "delete", 2), (2, "update_postimage", 1), (2, "update_preimage", 1)]


@pytest.mark.clause("CF-041", "CF-042", "CF-007", "CF-129", "CF-133", "CF-051")
def test_a_new_stream_begins_with_the_rows_of_the_table(
    orders: FeedTable, stream: StreamOf
) -> None:
    """As inserts of the version that they are of; then the changes come, and nothing twice."""
    reader = stream(orders)
    assert reader.batches() == [[(2, "insert", 1)]]
    orders.change((INSERT, (3, "d")))
    orders.change((DELETE, (1, None)))
    told = [change for batch in reader.batches() for change in batch]
    assert told == [(3, "insert", 3), (4, "delete", 1)]
    # A start means nothing to a checkpoint that has begun.
    assert reader.batches(startingVersion=0) == []


@pytest.mark.clause("CF-043", "CF-044", "CF-045", "CF-046", "CF-130", "CF-133")
def test_a_stream_begins_with_a_version(orders: FeedTable, stream: StreamOf) -> None:
    """A damaged checkpoint is left for a new one, which begins behind what the target has."""
    reader = stream(orders)
    assert reader.batches(startingVersion=1, endingVersion=1) == [FIRST + SECOND]
    (reader.checkpoint / "offsets/0").write_text("damaged")
    with pytest.raises(RAISED):
        reader.batches(startingVersion=2)
    shutil.rmtree(reader.checkpoint)
    assert reader.batches(startingVersion=2) == [SECOND]
    shutil.rmtree(reader.checkpoint)
    assert reader.batches(startingVersion="latest") == []


@pytest.mark.clause("CF-119", "CF-117", "CF-120", "CF-047", "CF-133")
def test_starts_that_are_refused(orders: FeedTable, stream: StreamOf) -> None:
    reader = stream(orders)
    dated(orders, range(3))
    late, early = (f"{time_of(version):%Y-%m-%d %H:%M:%S}" for version in (50, 1))
    assert reader.refused(startingVersion=50) == NOT_FOUND
    assert reader.refused(startingTimestamp=late)[0] == "DELTA_TIMESTAMP_GREATER_THAN_COMMIT"
    both = {"startingVersion": 1, "startingTimestamp": early}
    assert reader.refused(**both)[0] == "DELTA_STARTING_VERSION_AND_TIMESTAMP_BOTH_SET"
    # Of a checkpoint whose only batch is planned again, the start counts again.
    assert reader.batches(startingTimestamp=early) == [FIRST + SECOND]
    shutil.rmtree(reader.checkpoint / "commits")
    assert reader.refused(startingVersion=50) == NOT_FOUND
    # The log forgets the versions before its checkpoint.
    checkpoint.write(orders.path)
    for version in (0, 1):
        (orders.path / f"_delta_log/{version:020d}.json").unlink()
    shutil.rmtree(reader.checkpoint)
    assert reader.refused(startingVersion=1) == NOT_FOUND


@pytest.mark.clause("CF-048", "CF-050", "CF-131", "CF-051", "CF-177", "CF-072")
def test_a_limit_cuts_commits_of_plain_files_alone(tmp_path: Path, stream: StreamOf) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change(*((INSERT, (number, "a")) for number in range(2)))
    actions = [one for one in table.log.actions(1) if "add" in one]
    table.change((INSERT, (2, "b")))
    actions += [one for one in table.log.actions(2) if "add" in one]
    # A commit of two files, and one that changes rows of both.
    whole = FeedTable(tmp_path / "whole")
    shutil.copytree(table.path, whole.path, ignore=lambda *_: ["_delta_log"], dirs_exist_ok=True)
    whole.commit(actions)
    whole.change((UPDATE, (0, "c")), (UPDATE, (2, "c")))
    found = stream(whole).batches(startingVersion=0, maxFilesPerTrigger=1)
    assert found == [
        [(1, "insert", 0), (1, "insert", 1)],
        [(1, "insert", 2)],
        [(2, kind, key) for kind in ("update_postimage", "update_preimage") for key in (0, 2)],
    ]
    # What the recipe says of it: all versions below the newest one are whole.
    assert "can be cut by a limit" in (DOCS / "how-to/stream-the-changes.md").read_text()
    whole_feed = [one for batch in found for one in batch]
    collected: list[Change] = []
    for batch in found:
        collected += batch
        below = [one for one in collected if one[0] < collected[-1][0]]
        assert sorted(below) == sorted(one for one in whole_feed if one[0] < collected[-1][0])
    shutil.rmtree(tmp_path / "checkpoint")
    assert stream(whole).batches(startingVersion=0, maxBytesPerTrigger="1b") == found


@pytest.mark.clause("CF-049", "CF-132")
def test_what_is_excluded_by_its_path_is_lost(orders: FeedTable, stream: StreamOf) -> None:
    reader = stream(orders)
    assert reader.batches(startingVersion=0, excludeRegex="_change_data") == [FIRST]


@pytest.mark.clause("CF-134", "CF-167", "CF-168")
@pytest.mark.parametrize("cut", [[0, 1, 2, 3], [3]], ids=["beginning", "middle"])
def test_a_log_that_is_cut_under_a_stream_is_reported(
    session: SparkSession, orders: FeedTable, stream: StreamOf, cut: list[int]
) -> None:
    """The two conditions that the clause names were not seen with Delta 4.4.0."""
    reader = stream(orders)
    assert reader.batches(startingVersion=0) == [FIRST + SECOND]
    checkpoint.write(orders.path)
    for number in range(3, 6):
        orders.change((INSERT, (number, "d")))
    checkpoint.write(orders.path)
    for version in cut:
        (orders.path / f"_delta_log/{version:020d}.json").unlink()
    session._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    with (
        pytest.raises(FeedError) as refused,
        feed_errors(FeedRequest.of(str(orders.path), from_version=3)),
    ):
        reader.batches()
    assert refused.value.reason == "expired"
    assert refused.value.condition in {
        "DELTA_LOG_FILE_NOT_FOUND",
        "DELTA_VERSION_NOT_FOUND",
        "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    }


@pytest.mark.clause("CF-126", "CF-038")
def test_a_stream_is_not_bound_by_the_retention_and_may_wait(
    spark: Spark, tmp_path: Path, stream: StreamOf
) -> None:
    table = FeedTable(
        tmp_path / "orders", **{"delta.deletedFileRetentionDuration": "interval 30 minutes"}
    )
    table.change((INSERT, (1, "a")))
    dated(table, range(2))
    assert stream(table).batches(startingVersion=0) == [[(1, "insert", 1)]]
    lenient = new_session(spark, **{OUT_OF_RANGE: "true"})
    late = f"{time_of(50):%Y-%m-%d %H:%M:%S}"
    waiting = Stream(lenient, table, tmp_path / "waiting")
    assert waiting.batches(startingTimestamp=late) == []


@pytest.mark.clause("CF-111")
def test_the_sink_of_delta_records_its_batches_and_foreach_batch_does_not(
    session: SparkSession, orders: FeedTable, tmp_path: Path
) -> None:
    def write(rows: DataFrame, _number: int) -> None:
        rows.select("id").write.format("delta").mode("append").save(str(tmp_path / "batches"))

    reader = session.readStream.format("delta").load(str(orders.path)).select("id")
    for name in ("sink", "batches"):
        writer = reader.writeStream.trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint"))
        query = (
            writer.format("delta").start(str(tmp_path / name))
            if name == "sink"
            else writer.foreachBatch(write).start()
        )
        query.awaitTermination()
        recorded = TableLog(tmp_path / name).snapshot().transactions
        assert recorded == ({str(query.id): 0} if name == "sink" else {})
