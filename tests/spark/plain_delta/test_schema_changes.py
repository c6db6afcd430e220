"""What plain Delta does with a feed whose table gets other columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from mirrorlake.spark.session.spark_session import Spark
from tests.spark.plain_delta.plain import ON, Plain, condition, new_session

pytestmark = pytest.mark.spark

MODE = "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"
CHANGED = ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE", "0AKDC")
UNFIT = ("DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_DATA_SCHEMA", "0AKDC")
MAPPED = f"{ON}, delta.columnMapping.mode = 'name'"


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


@pytest.fixture(scope="module")
def renamed(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Plain:
    """1 inserts, 2 adds a column, 3 inserts, 4 renames a column, 5 inserts, 6 drops one."""
    table = Plain(session, tmp_path_factory.mktemp("r") / "t", "id int, name string", MAPPED)
    table.sql(
        "insert into {} values (1, 'a')",
        "alter table {} add column more int",
        "insert into {} values (2, 'b', 5)",
        "alter table {} rename column name to title",
        "insert into {} values (3, 'c', 6)",
        "alter table {} drop column more",
    )
    return table


@pytest.mark.clause("CF-018", "CF-022", "CF-065", "CF-068", "CF-137")
def test_a_range_is_read_with_the_columns_of_its_end(renamed: Plain) -> None:
    assert renamed.kinds(4) == renamed.kinds(6) == set()  # no file is written anew
    for first, last, columns, rows in (
        (1, 3, ["id", "name", "more"], [(1, "a", None), (2, "b", 5)]),
        (5, 5, ["id", "title", "more"], [(3, "c", 6)]),
        (6, 6, ["id", "title"], []),
    ):
        frame = renamed.frame(startingVersion=first, endingVersion=last)
        assert frame.columns[:-3] == columns
        assert sorted(tuple(row)[:-3] for row in frame.collect()) == rows


@pytest.mark.clause("CF-066", "CF-067", "CF-135", "CF-137")
def test_a_range_with_a_renamed_column_is_refused(spark: Spark, renamed: Plain) -> None:
    assert condition(lambda: renamed.feed(1, 5)) == CHANGED
    assert condition(lambda: renamed.feed(5, 6)) == UNFIT
    latest = new_session(spark, **{MODE: "latest"})
    assert condition(lambda: Plain(latest, renamed.path).feed(1, 3))[0] in {CHANGED[0], UNFIT[0]}


@pytest.mark.clause("CF-136", "CF-135", "CF-066")
def test_a_wider_type_ends_a_range_of_a_batch_and_not_of_a_stream(
    session: SparkSession, tmp_path: Path
) -> None:
    told = f"{ON}, delta.enableTypeWidening = true"
    table = Plain(session, tmp_path / "t", "id int", told)
    table.sql(
        "insert into {} values (1)",
        "alter table {} alter column id type bigint",
        "insert into {} values (3000000000)",
    )
    assert condition(lambda: table.feed(1)) == UNFIT
    assert table.feed(3) == [(3, "insert", 3_000_000_000)]
    assert sorted(streamed(table, tmp_path / "checkpoint")) == [1, 3_000_000_000]


def streamed(table: Plain, checkpoint: Path, **options: str) -> list[int]:
    """The ids of all changes from version 1 on, as a stream gives them."""
    found: list[int] = []

    def take(rows: DataFrame, _number: int) -> None:
        found.extend(row.id for row in rows.collect())

    reader = table.session.readStream.format("delta").option("readChangeFeed", "true")
    reader = reader.options(startingVersion="1", **options)
    writer = reader.load(str(table.path)).writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return found


@pytest.mark.clause("CF-138")
def test_a_stream_over_a_renamed_column_needs_a_log_of_schemas(
    renamed: Plain, tmp_path: Path
) -> None:
    def run(**options: str) -> list[int]:
        return streamed(renamed, tmp_path / "checkpoint", **options)

    assert condition(run) == (
        "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
        "42KD4",
    )
    tracking = {"schemaTrackingLocation": str(tmp_path / "checkpoint/_schema_log")}
    told = [condition(lambda: run(**tracking)) for _ in range(2)]
    assert ("DELTA_STREAMING_METADATA_EVOLUTION", "22000") in told
