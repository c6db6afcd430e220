"""The change feed as it is read without a JVM, of what we write and of what Delta does itself."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from mirrorlake.delta.log.table_log import BrokenLog
from mirrorlake.feed import change_files
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from mirrorlake.spark.session.spark_session import Spark
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import feed_of
from tests.delta.write.test_rewrite import apply, net_of, played
from tests.histories import SHAPES, Landing, Shape, histories
from tests.profiles import tries
from tests.reference import Change
from tests.spark import reading

SHAPE = Shape.of(["id"], id=types.LONG, name=types.STRING)
DAYS = Shape.of(["id"], id=types.LONG, day=types.DATE, name=types.STRING)
INSERT, UPDATE = Marker.INSERT, Marker.UPDATE


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "table", SHAPE.schema)


@settings(max_examples=tries(25, long=40))
@given(history=histories(SHAPES.values(), batches=4))
@pytest.mark.parametrize("mapped", [False, True])
def test_it_is_that_of_the_changes(history, mapped: bool) -> None:
    for table in played(history, mapped=mapped):
        newest = table.log.snapshot().version
        told = {version: table.feed(version) for version in range(newest + 1)}
        assert feed_of(table.path) == {version: one for version, one in told.items() if one}


@settings(max_examples=tries(20))
@given(history=histories([DAYS], batches=4))
def test_so_is_that_of_a_table_with_partitions(history) -> None:
    for table in played(history, mapped=True, partitions=["day"]):
        newest = table.log.snapshot().version
        assert feed_of(table.path, newest).get(newest, Counter()) == table.feed(newest)


def test_it_has_the_columns_of_the_table_and_three_more(table: HandmadeTable) -> None:
    apply(table, (INSERT, (1, "a")))
    (piece,) = change_files.read(table.path, 0)
    assert piece.schema == pa.schema(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "_change_type": pa.string(),
            "_commit_version": pa.int64(),
            "_commit_timestamp": pa.timestamp("us", "UTC"),
        }
    )


def test_a_commit_is_as_old_as_it_says(table: HandmadeTable) -> None:
    apply(table, (INSERT, (1, "a")))
    actions = [{"add": add} for add in table.files]
    table.commit(actions, timestamp=1_000, inCommitTimestamp=2_000)
    pieces = list(change_files.read(table.path, 2))
    assert [piece["_commit_timestamp"][0].as_py() for piece in pieces] == [
        datetime.fromtimestamp(2, UTC)
    ]


def test_a_range_ends_at_the_newest_version(table: HandmadeTable) -> None:
    for number in range(3):
        apply(table, (INSERT, (number, "a")))
    assert versions(table, 1, 2) == [1, 2]
    assert versions(table, 2) == versions(table, 2, 99) == [2, 3]
    assert versions(table, 4) == []


def versions(table: HandmadeTable, *bounds: int) -> list[int]:
    return [piece["_commit_version"][0].as_py() for piece in change_files.read(table.path, *bounds)]


def test_rows_that_are_older_than_a_column_have_none(table: HandmadeTable) -> None:
    apply(table, (INSERT, (1, "a")))
    wider = Shape.of(["id"], id=types.LONG, name=types.STRING, more=types.DOUBLE)
    metadata = HandmadeTable(table.path.parent / "wider", wider.schema).log.snapshot().metadata
    table.commit([{"metaData": metadata}])
    (piece,) = change_files.read(table.path, 1)
    assert piece.select(["id", "more"]).to_pylist() == [{"id": 1, "more": None}]


def test_what_is_not_there_is_an_error(table: HandmadeTable, tmp_path: Path) -> None:
    apply(table, (INSERT, (1, "a")))
    apply(table, (UPDATE, (1, "b")))
    with pytest.raises(FileNotFoundError, match="no table"):
        list(change_files.read(tmp_path / "nowhere", 0))
    for change in table.path.glob("_change_data/*"):
        change.unlink()
    with pytest.raises(FileNotFoundError, match="_change_data"):
        list(change_files.read(table.path, 2))
    table.log.commit_file(1).unlink()
    with pytest.raises((FileNotFoundError, BrokenLog)):
        list(change_files.read(table.path, 1))


def test_a_commit_must_say_when_it_was_made(table: HandmadeTable) -> None:
    table.log.commit_file(1).write_text('{"commitInfo": {"operation": "BY HAND"}}\n')
    with pytest.raises(BrokenLog, match="does not contain its time"):
        list(change_files.read(table.path, 1))


def test_a_removed_file_must_say_its_partition(tmp_path: Path) -> None:
    table = HandmadeTable(tmp_path / "days", DAYS.schema, partitions=["day"])
    file = (Change(INSERT, (1, None, "a")),)
    table.apply(net_of(DAYS, Landing((file,))))
    (add,) = table.files
    remove = {name: add[name] for name in ("path", "size", "dataChange")}
    table.commit([{"remove": remove}])
    with pytest.raises(BrokenLog, match="does not name the partition"):
        list(change_files.read(table.path, 2))


@pytest.mark.full
@pytest.mark.spark
def test_changes_that_delta_records_by_data_files_and_vectors_alone(
    spark: Spark, tmp_path: Path
) -> None:
    path = tmp_path / "table"
    named = reading.sql_name(path)
    properties = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'"
    made = f"(id bigint, day int) using delta partitioned by (day) tblproperties ({properties})"
    for statement in (
        f"create table {named} {made}",
        f"insert into {named} select id, int(id % 2) from range(20)",
        f"delete from {named} where id in (3, 4)",
        f"delete from {named} where id in (5, 7)",
        f"delete from {named} where day = 0",
        f"optimize {named}",
        f"restore table {named} to version as of 2",
    ):
        spark.session.sql(statement).collect()
    assert feed_of(path) == reading.feed(spark.session, path)
