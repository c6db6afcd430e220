"""The change feed as Spark reads it within our range, and as it is read without a JVM."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorlake import FeedError, read_feed, subscribe
from mirrorlake.feed.bounds import FeedRequest
from mirrorlake.feed.reasons import REASONS, reason_of
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from mirrorlake.spark.feed import feed_errors, frame, spans
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.spark.subscription import FrameDelivery
from tests.feed.handmade_feed import DELETE, INSERT, SHAPE, FeedTable
from tests.histories import rows_of
from tests.profiles import some
from tests.spark import reading
from tests.spark.plain_delta.plain import new_session

pytestmark = pytest.mark.spark

PROPERTIES = (
    "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', "
    "'delta.enableInCommitTimestamps' = 'true', 'mirrorlake.keyColumns' = '[\"id\"]'"
)


@pytest.fixture(scope="module")
def table(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("feed") / "orders"
    named = reading.sql_name(path)
    for statement in (
        f"create table {named} (id bigint, name string) using delta tblproperties ({PROPERTIES})",
        f"insert into {named} values (1, 'a'), (2, 'b'), (3, null)",
        f"update {named} set name = 'c' where id = 1",
        f"delete from {named} where id = 2",
        f"update {named} set name = name where id = 3",
        f"optimize {named}",
        f"insert into {named} values (2, 'again')",
    ):
        session.sql(statement).collect()
    return path


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(rows_of(rows))


@pytest.mark.clause("CF-163", "CF-179")
@pytest.mark.parametrize("options", some([{}, {"skip_unchanged": True}]), ids=str)
def test_both_readers_give_the_same_rows(
    session: SparkSession, table: Path, options: dict[str, Any]
) -> None:
    before = session.conf.getAll
    for bounds in ({"from_version": 0}, {"from_version": 2, "to_version": 4}, {"from_version": 50}):
        ours = read_feed(table, **bounds, **options)
        rows = counted(ours.to_arrow())
        theirs = read_feed(table, spark=session, **bounds, **options)
        assert theirs.columns == ours.schema().names
        assert counted(theirs.toArrow()) == rows
        assert counted(frame(ours, session, cap=2).toArrow()) == rows
    assert session.conf.getAll == before


@pytest.mark.clause("CF-220")
def test_all_readers_give_the_same_rows(session: SparkSession, table: Path, tmp_path: Path) -> None:
    ours = read_feed(table, from_version=1, to_version=6).to_arrow()
    names = ours.column_names
    batch = read_feed(table, spark=session, from_version=1, to_version=6)
    sql = session.sql(f"select * from table_changes_by_path('{table}', 1, 6)")
    options = {"readChangeFeed": "true", "startingVersion": "1"}
    stream = session.readStream.format("delta").options(**options).load(str(table))
    target, checkpoint = str(tmp_path / "streamed"), str(tmp_path / "checkpoint")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start(target).awaitTermination()
    streamed = session.read.parquet(target)
    rs = deltalake.DeltaTable(str(table)).load_cdf(starting_version=1, ending_version=6)
    assert counted(ours)
    for frame_ in (batch, sql, streamed):
        assert counted(frame_.select(*names).toArrow()) == counted(ours)
    assert counted(pa.table(rs.read_all()).select(names[:-1])) == counted(ours.select(names[:-1]))


@pytest.mark.full
@pytest.mark.clause("CF-165", "CF-169")
def test_what_delta_raises_is_an_error_of_the_feed(session: SparkSession, table: Path) -> None:
    request = FeedRequest.of(str(table), from_version=0)
    raised = {}
    for start, end in ((50, None), (3, 1), ("x", None)):
        reader = session.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", start)
        with pytest.raises(FeedError) as refused, feed_errors(request):
            (reader.option("endingVersion", end) if end else reader).load(str(table)).collect()
        assert refused.value.__cause__ is not None
        raised[refused.value.condition] = (refused.value.reason, refused.value.sqlstate)
    assert raised == {
        "DELTA_CDC_START_VERSION_AFTER_LATEST": ("beyond_latest", "22003"),
        "DELTA_INVALID_CDC_RANGE": ("invalid_range", "22003"),
        "DELTA_VERSION_INVALID": ("invalid_argument", "42815"),
    }
    found = read_feed(table, spark=session, from_version=2, to_version=2)
    hidden = [(file, file.with_suffix(".hidden")) for file in table.glob("_change_data/*.parquet")]
    for file, aside in hidden:
        file.rename(aside)
    try:
        with pytest.raises(FeedError) as refused, feed_errors(request):
            found.collect()
        assert refused.value.reason == "expired"
        assert refused.value.condition == "FAILED_READ_FILE.FILE_NOT_EXIST"
    finally:
        for file, aside in hidden:
            aside.rename(file)


def test_spark_unites_no_columns_that_do_not_fit(session: SparkSession, tmp_path: Path) -> None:
    small = Schema.of([Column("id", types.INTEGER), Column("name", types.STRING)])
    table = FeedTable(tmp_path / "t", small)
    table.describe(SHAPE.schema)
    with pytest.raises(FeedError, match="does not unite versions 0 to 0"):
        read_feed(table.path, spark=session, from_version=0, on_schema_change="unite")


@pytest.mark.clause("CF-175")
def test_versions_that_delta_scans_by_themselves_count_more(tmp_path: Path) -> None:
    replaced = {"mirrorlake.apply": "replace"}
    for properties, expected in (
        ({}, [(0, 19), (20, 24)]),
        (replaced, [(0, 2), (3, 4), (5, 6), (7, 8)]),
    ):
        table = FeedTable(tmp_path / f"t{len(properties)}", **properties)
        table.change(*((INSERT, (number, "a")) for number in range(30)))
        for number in range(23):
            table.change((DELETE, (number, None)))
        feed = read_feed(table.path, from_version=0)
        assert list(spans(feed, feed.ranges[0], 20))[: len(expected)] == expected


@pytest.mark.clause("CF-166", "CF-168")
def test_each_condition_has_its_reason() -> None:
    assert reason_of("DELTA_VERSION_NOT_FOUND") == "beyond_latest"
    assert reason_of("DELTA_VERSION_NOT_FOUND", is_before_oldest=True) == "expired"
    assert reason_of("SOMETHING_ELSE") == "other"
    assert {str(reason) for reason in REASONS.values()} >= {"not_recorded", "reserved_column"}


@pytest.mark.full
@pytest.mark.clause("CF-176")
def test_a_subscription_gives_frames_of_whole_commits(
    tmp_path: Path, session: SparkSession
) -> None:
    table = FeedTable(tmp_path / "Tables/orders")
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))

    def content(delivery: FrameDelivery) -> tuple[bool, int, list[tuple[Any, ...]]]:
        rows = delivery.frame.select("_change_type", "_commit_version", "id").collect()
        return delivery.is_snapshot, delivery.last, sorted(map(tuple, rows))

    with subscribe("audit", table.path, spark=session) as subscription:
        assert [content(delivery) for delivery in subscription] == [
            (True, 1, [("snapshot", 1, 1), ("snapshot", 1, 2)])
        ]
        for number in (3, 4, 5):
            table.change((INSERT, (number, "c")))
        subscription.versions = 2
        assert [content(delivery) for delivery in subscription] == [
            (False, 3, [("insert", 2, 3), ("insert", 3, 4)]),
            (False, 4, [("insert", 4, 5)]),
        ]
    with subscribe("audit", table.path) as subscription:
        assert list(subscription) == []


@pytest.mark.full
def test_a_target_that_holds_its_position_gets_each_change_once(
    tmp_path: Path, session: SparkSession
) -> None:
    table = FeedTable(tmp_path / "Tables/orders")
    target = str(tmp_path / "archive")
    after = None
    for number, is_killed in enumerate([True, False, True]):
        table.change((INSERT, (number, "a")))
        with subscribe("a", table.path, spark=session, after=after, start=0) as changes:
            for delivery in changes:
                writer = delivery.frame.write.format("delta").mode("append")
                writer.option("userMetadata", str(delivery.position)).save(target)
                if is_killed:
                    break
        after = session.sql(f"describe history delta.`{target}` limit 1").first().userMetadata
    rows = session.read.format("delta").load(target).select("id").collect()
    assert sorted(row.id for row in rows) == [0, 1, 2]
