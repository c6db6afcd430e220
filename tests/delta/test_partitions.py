"""Tables with partition columns are written and searched as others are."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mirrorlake.delta.log import checkpoint
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.delta.partitions import NULL_TEXTS, NullText, candidates, split
from mirrorlake.delta.schema import parse
from mirrorlake.delta.write import data_files
from mirrorlake.delta.write.compact import compact
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.strategy import PLAIN
from mirrorlake.model import types
from mirrorlake.model.change import Marker
from tests.delta.handmade import HandmadeTable, metadata
from tests.delta.lookup_ways import Way, forced
from tests.delta.readers import (
    feed_by_delta_rs,
    rows_by_delta_rs,
    rows_by_duckdb,
    rows_by_view,
)
from tests.delta.write.test_rewrite import net_of, played
from tests.histories import Landing, Shape, counted, histories
from tests.profiles import tries
from tests.reference import Change, Row

INSERT, UPDATE, DELETE, UPSERT = Marker.INSERT, Marker.UPDATE, Marker.DELETE, Marker.UPSERT
SHAPE = Shape.of(
    ["region", "id"], id=types.LONG, region=types.STRING, day=types.DATE, note=types.STRING
)


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[tuple[Shape, list[Landing]], list[str]]:
    """A history, and some columns of its table, in any order, that it may be partitioned by."""
    shape, landings = draw(histories())
    rows = [change.row for landing in landings for change in landing.changes]
    may = [
        column.name
        for index, column in enumerate(shape.schema)
        if (column.type.name in PLAIN or column.type.name == "decimal")
        and all(row[index] != "" for row in rows)
    ]
    assume(may)
    chosen = draw(st.lists(st.sampled_from(may), min_size=1, unique=True))
    assume(len(chosen) < len(shape.schema))
    return (shape, landings), chosen


@pytest.mark.full
@settings(max_examples=tries(100))
@given(drawn=partitioned(), way=st.sampled_from(Way), mapped=st.booleans())
def test_rows_and_feed_of_a_history_are_those_of_its_changes(drawn, way, mapped) -> None:
    history, columns = drawn
    with forced(way):
        for _table in played(history, mapped=mapped, partitions=columns):
            pass


@settings(max_examples=tries(20))
@given(drawn=partitioned())
def test_other_readers_see_the_same(drawn) -> None:
    history, columns = drawn
    for table in played(history, mapped=False, partitions=columns):
        assert counted(rows_by_delta_rs(table.path)) == counted(table.rows())
        assert counted(rows_by_duckdb(table.path)) == counted(table.rows())
        assert counted(rows_by_view(table.path)) == counted(table.rows())
        versions = range(1, table.log.snapshot().version + 1)
        ours = {version: feed for version in versions if (feed := table.feed(version))}
        assert feed_by_delta_rs(table.path) == ours


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "table", SHAPE.schema, partitions=["region"])


def applied(table: HandmadeTable, *changes: tuple[int, Row]) -> None:
    file = tuple(Change(marker, row) for marker, row in changes)
    table.apply(net_of(SHAPE, Landing((file,))))


def row(number: int, region: str | None, note: str = "a") -> Row:
    return number, region, None, note


def test_a_row_that_changes_its_partition_is_deleted_and_inserted(tmp_path: Path) -> None:
    shape = Shape.of(["id"], id=types.LONG, region=types.STRING)
    table = HandmadeTable(tmp_path / "t", shape.schema, partitions=["region"])
    table.apply(net_of(shape, Landing(((Change(INSERT, (1, "a")), Change(INSERT, (2, "a"))),))))
    table.apply(net_of(shape, Landing(((Change(UPDATE, (1, "b")),),))))
    assert sorted(table.rows()) == [(1, "b"), (2, "a")]
    assert table.feed(2) == {("update_preimage", (1, "a")): 1, ("update_postimage", (1, "b")): 1}
    assert sorted(add["partitionValues"]["region"] for add in table.files) == ["a", "b"]


def test_all_rows_of_a_partition_that_is_a_key_have_it(tmp_path: Path) -> None:
    shape = Shape.of(["region"], region=types.STRING, note=types.STRING)
    table = HandmadeTable(tmp_path / "t", shape.schema, partitions=["region"])
    for number in range(3):
        changes = [Change(INSERT, (region, f"{number}")) for region in ("a", "b")]
        table.apply(net_of(shape, Landing((tuple(changes),))))
    table.apply(net_of(shape, Landing(((Change(UPSERT, ("a", "only")),),))))
    assert sorted(table.rows()) == [("a", "only"), ("b", "0"), ("b", "1"), ("b", "2")]
    table.apply(net_of(shape, Landing(((Change(DELETE, ("b", None)),),))))
    assert table.rows() == [("a", "only")]


@pytest.mark.parametrize("way", Way)
def test_the_partition_value_in_the_log_takes_precedence(table: HandmadeTable, way: Way) -> None:
    """Some writers keep the values in their files as well."""
    with forced(way):
        rows = SHAPE.arrow([row(n, "elsewhere") for n in range(4)])
        add = data_files.write_data(table.path, rows, ["id"], {"region": "a"})
        table.commit([{"add": add}])
        applied(table, (UPDATE, row(1, "a", "new")), (DELETE, row(2, "elsewhere")))
    left = [row(0, "a"), row(1, "a", "new"), row(2, "a"), row(3, "a")]
    assert counted(table.rows()) == counted(left)


def test_only_files_of_matching_partitions_are_candidates(table: HandmadeTable) -> None:
    applied(table, *((INSERT, row(n, region)) for region in ("a", "b", None) for n in (1, 100)))
    for region in ("a", None):
        keys = pa.table({"region": pa.array([region], pa.string()), "id": [1]})
        (found,) = candidates(table.files, table.schema, keys)
        assert found["partitionValues"] == {"region": region}
    keys = pa.table({"region": ["a"], "id": [1_000]})
    assert candidates(table.files, table.schema, keys) == []


def test_files_are_joined_within_their_partition(table: HandmadeTable) -> None:
    for number in range(compaction.SMALLEST):
        applied(table, *((INSERT, row(number, region)) for region in ("a", None)))
    before = counted(table.rows())
    table.commit(compact(table.path, compaction.choose(table.files), table.schema, SHAPE.key))
    assert {add["partitionValues"]["region"] for add in table.files} == {"a", None}
    assert len(table.files) == 2
    assert compaction.choose(table.files) == ()
    assert counted(table.rows()) == before


@pytest.mark.full
def test_files_stay_few_in_many_partitions_that_are_written_together(table: HandmadeTable) -> None:
    for number in range(3 * compaction.SMALLEST):
        applied(table, *((INSERT, row(number, f"{region}")) for region in range(10)))
        if chosen := compaction.choose(table.files):
            table.commit(compact(table.path, chosen, table.schema, SHAPE.key))
        most = Counter(add["partitionValues"]["region"] for add in table.files).most_common(1)
        assert most[0][1] <= compaction.SMALLEST


def test_a_batch_joins_the_small_files_of_each_partition(table: HandmadeTable) -> None:
    for number in range(compaction.FANOUT):
        regions = ("a", "b") if number else ("a", "b", "c")
        applied(table, *((INSERT, row(number, region)) for region in regions))
    taken = Counter(
        add["partitionValues"]["region"] for add in compaction.files_to_join(table.files)
    )
    assert taken == {"a": compaction.FANOUT, "b": compaction.FANOUT}


def test_a_batch_joins_no_more_files_of_many_partitions_than_of_one() -> None:
    one = {"size": 1_000, "stats": '{"numRecords": 10}'}
    files = [
        {**one, "path": f"{region}-{n}", "partitionValues": {"region": f"{region}"}}
        for region in range(100)
        for n in range(compaction.FANOUT + region % 3)
    ]
    taken = compaction.files_to_join(files)
    assert len(taken) <= compaction.JOINED_FILES
    counts = Counter(add["partitionValues"]["region"] for add in files)
    assert {counts[add["partitionValues"]["region"]] for add in taken} == {compaction.FANOUT + 2}


def test_chunked_rows_are_split_by_partition() -> None:
    rows = SHAPE.arrow([row(n, f"{n % 3}") for n in range(9)])
    chunked = pa.concat_tables([rows.slice(n, 2) for n in range(0, 9, 2)])
    schema = parse(metadata(SHAPE.schema, partitions=["region"]))
    found = {values["region"]: some["id"].to_pylist() for values, some in split(chunked, schema)}
    assert found == {"0": [0, 3, 6], "1": [1, 4, 7], "2": [2, 5, 8]}


def test_a_date_outside_the_calendar_is_not_written() -> None:
    schema = parse(metadata(SHAPE.schema, partitions=["day"]))
    for days in (2_932_897, -719_529):
        day = pa.array([days], pa.int32()).cast(pa.date32())
        rows = SHAPE.arrow([row(1, "a")]).set_column(2, "day", day)
        with pytest.raises((ValueError, OverflowError)):
            list(split(rows, schema))


def test_a_checkpoint_keeps_the_values_and_those_that_are_null(table: HandmadeTable) -> None:
    applied(table, (INSERT, row(1, "a")), (INSERT, row(1, None)))
    files = table.files
    checkpoint.write(table.path)
    for commit in (table.path / "_delta_log").glob("*.json"):
        commit.unlink()
    found = list(TableLog(table.location).snapshot().files.values())
    assert [add["partitionValues"] for add in found] == [add["partitionValues"] for add in files]
    assert {"region": None} in [add["partitionValues"] for add in found]


def test_a_decimal_is_written_with_all_its_digits(tmp_path: Path) -> None:
    small = types.decimal(38, 18)
    shape = Shape.of(["id"], id=types.LONG, part=small)
    table = HandmadeTable(tmp_path / "t", shape.schema, partitions=["part"])
    values = [Decimal(0).scaleb(-18), Decimal(-1).scaleb(-18), Decimal("1.5"), None]
    table.apply(net_of(shape, Landing((tuple(Change(INSERT, one) for one in enumerate(values)),))))
    texts = [add["partitionValues"]["part"] for add in table.files]
    assert texts == ["0.000000000000000000", "-0.000000000000000001", "1.500000000000000000", None]
    assert counted(table.rows()) == counted(enumerate(values))
    assert counted(rows_by_delta_rs(table.path)) == counted(enumerate(values))


@pytest.mark.parametrize("text", NULL_TEXTS)
def test_a_text_that_delta_reads_as_null_is_refused(table: HandmadeTable, text: str) -> None:
    with pytest.raises(NullText, match="region"):
        applied(table, (INSERT, row(1, text)))
    assert list(split(SHAPE.arrow([]), table.schema)) == []
