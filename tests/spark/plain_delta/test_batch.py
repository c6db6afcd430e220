"""How plain Delta reads a range of the feed by batch and SQL, and with which condition it refuses
one. The tables are made by hand, so that only reads take time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.spark.session.spark_session import Spark
from tests.feed.handmade_feed import DELETE, INSERT, UPDATE, FeedTable, time_of
from tests.spark.plain_delta.plain import (
    OUT_OF_RANGE,
    Change,
    changes_of,
    condition,
    dated,
    new_session,
    read,
    rows_of,
)

pytestmark = pytest.mark.spark

SECOND = [(2, "insert", 1), (2, "insert", 2)]
THIRD = [(3, "delete", 2), (3, "update_postimage", 1), (3, "update_preimage", 1)]
LATE = f"{time_of(4):%Y-%m-%d %H:%M:%S}"
MISSING, AFTER = (
    ("DELTA_MISSING_CHANGE_DATA", "KD002"),
    ("DELTA_TIMESTAMP_GREATER_THAN_COMMIT", "42816"),
)


@pytest.fixture(scope="module")
def session(spark: Spark) -> SparkSession:
    return new_session(spark)


@pytest.fixture(scope="module")
def lenient(spark: Spark) -> SparkSession:
    """A session in which a bound may lie after the last commit."""
    return new_session(spark, **{OUT_OF_RANGE: "true"})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> FeedTable:
    """Versions 0 to 3, a minute apart; the feed is on since version 1."""
    path = tmp_path_factory.mktemp("plain") / "orders.of a shop"
    table = FeedTable(path, **{"delta.enableChangeDataFeed": "false"})
    table.record(is_on=True)
    table.change((INSERT, (1, "a")), (INSERT, (2, "b")))
    table.change((UPDATE, (1, "c")), (DELETE, (2, None)))
    dated(table, range(4))
    return table


@pytest.fixture(scope="module")
def named(session: SparkSession, table: FeedTable) -> Iterator[str]:
    """The table in a database of the session's catalog."""
    session.sql("create database plain_feed")
    session.sql(f"create table plain_feed.orders using delta location '{table.path}'")
    yield "plain_feed.`orders`"
    session.sql("drop database plain_feed cascade")


def at(version: int, seconds: int = 0) -> str:
    return f"{time_of(version) + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S}"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(
            options, expected, id=f"{clauses} {n}", marks=pytest.mark.clause(*clauses.split())
        )
        for n, (clauses, options, expected) in enumerate(
            [
                ("CF-114 CF-025", {}, ("DELTA_NO_START_FOR_CDC_READ", "42601")),
                ("CF-029 CF-009 CF-113", {"startingVersion": 0}, MISSING),
                ("CF-029", {"startingTimestamp": at(0)}, MISSING),
                ("CF-034 CF-026", {"startingVersion": 1, "endingVersion": 2}, SECOND),
                ("CF-034 CF-026", {"startingVersion": 3, "endingVersion": 3}, THIRD),
                ("CF-036 CF-027 CF-113", {"startingVersion": 1}, SECOND + THIRD),
                ("CF-118", {"startingVersion": 2, "endingVersion": 50}, SECOND + THIRD),
                (
                    "CF-116 CF-037",
                    {"startingVersion": 50},
                    ("DELTA_CDC_START_VERSION_AFTER_LATEST", "22003"),
                ),
                (
                    "CF-115",
                    {"startingVersion": 3, "endingVersion": 1},
                    ("DELTA_INVALID_CDC_RANGE", "22003"),
                ),
                ("CF-117 CF-037", {"startingTimestamp": LATE}, AFTER),
                ("CF-117", {"startingVersion": 1, "endingTimestamp": LATE}, AFTER),
                ("CF-120", {"startingVersion": 3, "startingTimestamp": at(2)}, THIRD),
                ("CF-121", {"startingVersion": "x"}, ("DELTA_VERSION_INVALID", "42815")),
                ("CF-121", {"startingTimestamp": "soon"}, ("DELTA_TIMESTAMP_INVALID", "42816")),
                (
                    "CF-121",
                    {"startingVersion": 1, "versionAsOf": 2},
                    ("DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS", "0AKDC"),
                ),
                (
                    "CF-035 CF-028 CF-026",
                    {"startingTimestamp": at(2), "endingTimestamp": at(3) + ".000"},
                    SECOND + THIRD,
                ),
                ("CF-035", {"startingTimestamp": at(2), "endingTimestamp": at(3, -1)}, SECOND),
                ("CF-028", {"startingTimestamp": at(2, 1)}, THIRD),
                (
                    "CF-028",
                    {"startingTimestamp": f"{time_of(0) - timedelta(days=1):%Y-%m-%d}"},
                    MISSING,
                ),
            ]
        )
    ],
)
def test_a_range_by_options(
    session: SparkSession, table: FeedTable, options: dict[str, Any], expected: Any
) -> None:
    def act() -> list[Change]:
        return changes_of(read(session, table.path, **options))

    assert (act() if isinstance(expected, list) else condition(act)) == expected


@pytest.mark.clause("CF-038", "CF-039", "CF-118")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingVersion": 50}, []),
        ({"startingTimestamp": LATE}, []),
        ({"startingVersion": 2, "endingVersion": 50}, SECOND + THIRD),
        ({"startingVersion": 3, "endingTimestamp": LATE}, THIRD),
    ],
    ids=["version", "time", "end version", "end time"],
)
def test_a_session_may_allow_bounds_after_the_last_commit(
    lenient: SparkSession, table: FeedTable, options: dict[str, Any], expected: list[Change]
) -> None:
    assert changes_of(read(lenient, table.path, **options)) == expected


def _in_sql() -> list[Any]:
    cases = [
        ("CF-030 CF-033", "table_changes('{n}', 1, 2)", SECOND),
        ("CF-031", f"table_changes('{{n}}', '{at(2)}', '{at(3)}')", SECOND + THIRD),
        ("CF-032", "table_changes('{n}', 3)", THIRD),
        ("CF-124", "table_changes_by_path('{p}', 1, 2)", SECOND),
        ("CF-124 CF-033", "table_changes('delta.`{p}`', 2)", SECOND + THIRD),
        (
            "CF-123",
            "table_changes('{n}', (select 1))",
            ("DELTA_CDC_NON_CONSTANT_ARGUMENT", "42K0H"),
        ),
        ("CF-123", "table_changes('{n}', null)", ("DELTA_CDC_READ_NULL_RANGE_BOUNDARY", "22004")),
        ("CF-029", "table_changes('{n}', 0)", MISSING),
    ]
    return [
        pytest.param(
            call, expected, id=f"{clauses} {n}", marks=pytest.mark.clause(*clauses.split())
        )
        for n, (clauses, call, expected) in enumerate(cases)
    ]


@pytest.mark.parametrize(("call", "expected"), _in_sql())
def test_a_range_in_sql(
    session: SparkSession, table: FeedTable, named: str, call: str, expected: Any
) -> None:
    def act() -> list[Change]:
        return changes_of(session.sql(f"select * from {call.format(n=named, p=table.path)}"))

    assert (act() if isinstance(expected, list) else condition(act)) == expected


@pytest.mark.clause("CF-123")
@pytest.mark.parametrize("arguments", ["", ", 1, 2, 3"], ids=["too few", "too many"])
def test_a_wrong_number_of_arguments(session: SparkSession, named: str, arguments: str) -> None:
    # PySpark asks for a text of the condition that Spark has not, and so names it in another one.
    with pytest.raises(Exception, match="INCORRECT_NUMBER_OF_ARGUMENTS"):
        session.sql(f"select * from table_changes('{named}'{arguments})")


@pytest.mark.clause("CF-141")
def test_the_changes_of_spark_4_2_are_off(session: SparkSession, named: str) -> None:
    asked = f"select * from {named} changes from version 1 to version 2"
    assert condition(lambda: rows_of(session.sql(asked)))[0] in {
        "UNSUPPORTED_FEATURE.CHANGE_DATA_CAPTURE",
        "PARSE_SYNTAX_ERROR",  # of Spark 4.1
    }


@pytest.mark.clause("CF-122")
def test_a_time_as_text_is_in_the_zone_of_the_session(spark: Spark, table: FeedTable) -> None:
    tokyo = new_session(spark, **{"spark.sql.session.timeZone": "Asia/Tokyo"})
    ahead = time_of(3) + timedelta(hours=9)
    text = f"{ahead:%Y-%m-%d %H:%M:%S}"
    assert changes_of(read(tokyo, table.path, startingTimestamp=text)) == THIRD
    # A TIMESTAMP is printed in the zone of the JVM, UTC here, and read in that of the session.
    call = f"table_changes_by_path('{table.path}', timestamp'{ahead:%Y-%m-%d %H:%M:%S}')"
    assert condition(lambda: rows_of(tokyo.sql(f"select * from {call}"))) == MISSING


@pytest.mark.clause("CF-018", "CF-019", "CF-020", "CF-021", "CF-093", "CF-001")
def test_the_columns_of_the_feed(session: SparkSession, table: FeedTable) -> None:
    frame = read(session, table.path, startingVersion=2)
    assert [(name, kind) for name, kind in frame.dtypes] == [
        ("id", "bigint"),
        ("name", "string"),
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]
    # Without in-commit timestamps the time is that of the file of the commit.
    when = {version: time_of(version).replace(tzinfo=None) for version in (2, 3)}
    assert sorted(rows_of(frame)) == sorted(
        [
            (1, "a", "insert", 2, when[2]),
            (2, "b", "insert", 2, when[2]),
            (1, "a", "update_preimage", 3, when[3]),
            (1, "c", "update_postimage", 3, when[3]),
            (2, "b", "delete", 3, when[3]),
        ]
    )


@pytest.mark.clause("CF-125")
def test_a_frame_without_an_end_gives_more_rows_later(
    session: SparkSession, tmp_path: Path
) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    frame = read(session, table.path, startingVersion=0)
    assert frame.count() == 1
    table.change((INSERT, (2, "b")))
    assert frame.count() == 2


@pytest.mark.clause("CF-113", "CF-005")
def test_a_range_over_versions_without_the_feed_is_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    table.record(is_on=False)
    table.change((INSERT, (2, "b")))
    on = table.record(is_on=True)
    table.change((INSERT, (3, "c")))
    assert condition(lambda: read(session, table.path, startingVersion=1).collect()) == MISSING
    assert changes_of(read(session, table.path, startingVersion=on)) == [(5, "insert", 3)]


@pytest.mark.clause("CF-126")
def test_versions_older_than_the_retention_of_files_are_refused(
    session: SparkSession, tmp_path: Path
) -> None:
    """Though nothing was vacuumed."""
    table = FeedTable(
        tmp_path / "orders", **{"delta.deletedFileRetentionDuration": "interval 30 minutes"}
    )
    table.change((INSERT, (1, "a")))
    table.change((INSERT, (2, "b")))
    dated(table, range(3))
    beyond = (
        "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
        "0AKDC",
    )
    assert condition(lambda: read(session, table.path, startingVersion=1).collect()) == beyond
    reader = session.read.format("delta").option("versionAsOf", 1)
    assert condition(lambda: reader.load(str(table.path)).collect()) == beyond


@pytest.mark.clause("CF-127", "CF-119")
def test_what_vacuum_or_the_clean_up_of_the_log_took_away(
    session: SparkSession, tmp_path: Path
) -> None:
    table = FeedTable(tmp_path / "orders")
    table.change((INSERT, (1, "a")))
    table.change((UPDATE, (1, "b")))
    for file in table.path.glob("_change_data/*"):
        file.unlink()
    act = lambda: read(session, table.path, startingVersion=2).collect()  # noqa: E731
    assert condition(act)[0] == "FAILED_READ_FILE.FILE_NOT_EXIST"


@pytest.mark.clause("CF-128")
def test_each_version_with_vectors_alone_is_a_scan(session: SparkSession, tmp_path: Path) -> None:
    def scans(*, with_files: bool) -> int:
        table = FeedTable(tmp_path / f"orders-{with_files}")
        table.change(*((INSERT, (number, "a")) for number in range(10)))
        for number in range(3):
            table.change((DELETE, (number, None)))
            if not with_files:
                _without_change_files(table)
        rows = read(session, table.path, startingVersion=2)
        return str(rows._jdf.rdd().toDebugString()).count("FileScanRDD")

    assert scans(with_files=False) - scans(with_files=True) >= 2


def _without_change_files(table: FeedTable) -> None:
    """As a DELETE of Delta commits, which leaves the feed to the deletion vectors."""
    version = table.log.versions()[-1]
    file = table.path / f"_delta_log/{version:020d}.json"
    lines = [line for line in file.read_text().splitlines() if '"cdc"' not in line]
    file.write_text("\n".join(lines) + "\n")
