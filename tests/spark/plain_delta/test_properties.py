"""How plain Delta switches the feed on, which columns it refuses, and what else a table says."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.spark.session.spark_session import Spark
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable
from tests.spark.plain_delta.plain import (
    ON,
    Plain,
    changes_of,
    condition,
    new_session,
    read,
    refused_as,
)
from tests.spark.reading import sql_name

pytestmark = pytest.mark.spark

DEFAULT = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


def features(path: Path) -> tuple[int, bool]:
    """The writer version, and whether the feed is a feature of the table."""
    protocol = TableLog(path).snapshot().protocol
    return protocol["minWriterVersion"], "changeDataFeed" in (protocol.get("writerFeatures") or ())


RESERVED = ("DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS", "42711")
ON_WRITE = ("RESERVED_CDC_COLUMNS_ON_WRITE", "42939")


@pytest.mark.clause("CF-010", "CF-089", "CF-011", "CF-012", "CF-005", "CF-006", "CF-009", "CF-190")
def test_four_ways_to_switch_the_feed_on(
    spark: Spark, session: SparkSession, tmp_path: Path
) -> None:
    created = Plain(session, tmp_path / "created", "id int")
    alias = Plain(session, tmp_path / "alias", "id int", "delta.enableChangeDataCapture = true")
    by_session = new_session(spark, **{DEFAULT: "true"})
    by_default = Plain(by_session, tmp_path / "default", "id int", "'a.b' = 'c'")
    archive = f"create table {sql_name(tmp_path / 'archive')} (_change_type string) using delta"
    assert condition(lambda: by_session.sql(archive)) == ON_WRITE
    altered = Plain(session, tmp_path / "altered", "id int", "'a.b' = 'c'")
    altered.sql("insert into {} values (1)")
    missing = "DELTA_MISSING_CHANGE_DATA"
    assert condition(lambda: altered.feed(1))[0] == missing
    altered.sql(f"alter table {{}} set tblproperties ({ON})")
    for table in (created, alias, by_default, altered):
        version, has_feature = features(table.path)
        assert version == 4 or has_feature
        assert table.feed(table.version) == []
    # What was written before is in no feed.
    assert condition(lambda: altered.feed(1))[0] == missing


@pytest.mark.clause("CF-013", "CF-092")
def test_a_table_with_a_reserved_column_has_no_feed(session: SparkSession, tmp_path: Path) -> None:
    table = Plain(session, tmp_path / "plain", "id int, _change_type string", "'a.b' = 'c'")
    feed = Plain(session, tmp_path / "feed", "id int")
    other = sql_name(tmp_path / "other")
    refused: list[tuple[Callable[[], Any], tuple[str, str]]] = [
        (
            lambda: session.sql(
                f"create table {other} (_commit_version int) using delta tblproperties ({ON})"
            ),
            RESERVED,
        ),
        (lambda: table.sql(f"alter table {{}} set tblproperties ({ON})"), RESERVED),
        (lambda: feed.sql("alter table {} add column _commit_timestamp timestamp"), ON_WRITE),
    ]
    for act, expected in refused:
        assert condition(act) == expected
        assert refused_as(act).__name__ == "Py4JJavaError"
    # Renamed first, the feed can be switched on.
    table.sql(
        "alter table {} set tblproperties (delta.columnMapping.mode = 'name')",
        "alter table {} rename column _change_type to kind",
        f"alter table {{}} set tblproperties ({ON})",
    )
    assert table.feed(table.version) == []


@pytest.mark.clause("CF-003", "CF-090", "CF-091")
def test_a_clone_has_a_feed_of_its_own(session: SparkSession, tmp_path: Path) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    table.change((INSERT, (2, "b")))
    clone = Plain(session, tmp_path / "clone")
    original = sql_name(table.path)
    clone.sql(f"create table {{}} shallow clone {original}")
    assert clone.feed() == [(0, "insert", 1), (0, "insert", 2)]
    assert changes_of(read(session, table.path, startingVersion=0)) == [
        (1, "insert", 1),
        (2, "insert", 2),
    ]
    deep = f"create table {sql_name(tmp_path / 'deep')} clone {original}"
    assert condition(lambda: session.sql(deep))[0] == "PARSE_SYNTAX_ERROR"


@pytest.mark.full
@pytest.mark.clause("CF-093")
def test_the_time_of_a_commit_may_be_in_the_commit(session: SparkSession, tmp_path: Path) -> None:
    """Then a copy of the table tells the same."""
    told = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001  (as Spark gives it)
    table = Plain(
        session, tmp_path / "orders", "id int", f"{ON}, delta.enableInCommitTimestamps = true"
    )
    table.sql("insert into {} values (1)")
    file = table.path / f"_delta_log/{1:020d}.json"
    actions = TableLog(table.path).actions(1)
    info = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    when = int(told.replace(tzinfo=UTC).timestamp() * 1000)
    said = str(info["inCommitTimestamp"])
    file.write_text(
        file.read_text().replace(f'"inCommitTimestamp":{said}', f'"inCommitTimestamp":{when}')
    )
    assert [row._commit_timestamp for row in table.frame(startingVersion=1).collect()] == [told]


@pytest.mark.clause("CF-101")
@pytest.mark.parametrize("log_days", [7, 6])
def test_files_are_not_kept_longer_than_the_log(
    session: SparkSession, tmp_path: Path, log_days: int
) -> None:
    told = (
        "delta.deletedFileRetentionDuration = 'interval 7 days', "
        f"delta.logRetentionDuration = 'interval {log_days} days'"
    )
    act = lambda: Plain(session, tmp_path / "t", "id int", told)  # noqa: E731
    if log_days == 7:
        assert act().version == 0
    else:
        assert "requirement failed" in condition(act)[1]


@pytest.mark.clause("CF-102", "CF-060", "CF-061", "CF-006", "CF-127")
def test_vacuum_goes_by_the_property_and_takes_every_old_change_file(
    session: SparkSession, tmp_path: Path
) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    table.change((UPDATE, (1, "b")))
    old = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    for file in table.path.glob("*/*.parquet"):
        os.utime(file, (old, old))
    plain = Plain(session, table.path)
    assert [kind for _v, kind, _key in plain.feed(2)] == ["update_postimage", "update_preimage"]
    # Of the newest version, and older than the property says, though not than the statement does.
    plain.sql("vacuum {} retain 100000 hours")
    assert list(table.path.glob("_change_data/*.parquet")) == []
    assert condition(lambda: plain.feed(2))[0] == "FAILED_READ_FILE.FILE_NOT_EXIST"


@pytest.mark.clause("CF-108", "CF-112")
def test_delta_rs_records_a_transaction_and_does_not_check_it(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1]})
    said = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("app", 3)])
    for _again in range(2):
        deltalake.write_deltalake(path, rows, mode="append", commit_properties=said)
    table = deltalake.DeltaTable(path)
    assert (table.version(), table.transaction_version("app")) == (1, 3)
    assert table.to_pyarrow_table().num_rows == 2
