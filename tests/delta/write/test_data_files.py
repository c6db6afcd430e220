"""Statistics of new files: bounds that hold every value, in words that the log has for them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.lookup.page_checksums import DamagedPage
from mirrorlake.delta.write import data_files
from tests.histories import INFINITY, NAN, SHAPES, VALUES


def stats_of(folder: Path, rows: pa.Table, keys: list[str] | None = None) -> dict[str, Any]:
    """The statistics as a reader of the log gets them."""
    add = data_files.write_data(folder, rows, keys or [])
    return json.loads(add["stats"], parse_float=Decimal)


def bounds(folder: Path, values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    stats = stats_of(folder, pa.table({"c": pa.array(values, kind)}))
    return stats["minValues"].get("c"), stats["maxValues"].get("c")


def test_rows_and_nulls_are_counted(tmp_path: Path) -> None:
    stats = stats_of(tmp_path, pa.table({"a": [1, None, 3], "b": [None, None, "x"]}))
    assert (stats["numRecords"], stats["nullCount"]) == (3, {"a": 1, "b": 2})


def test_bounds_of_a_new_file_are_tight(tmp_path: Path) -> None:
    assert stats_of(tmp_path, pa.table({"a": [1]}))["tightBounds"] is True


@pytest.mark.parametrize(
    ("values", "kind", "low", "high"),
    [
        ([3, None, -(2**63)], pa.int64(), -(2**63), 3),
        ([1.5, -2.5], pa.float64(), Decimal("-2.5"), Decimal("1.5")),
        ([date(2026, 3, 1), date(1, 1, 1)], pa.date32(), "0001-01-01", "2026-03-01"),
        (["b", "a"], pa.string(), "a", "b"),
        (["", "\U0010ffff"], pa.string(), "", "\U0010ffff"),
    ],
)
def test_bounds_are_the_smallest_and_the_largest_value(
    tmp_path: Path, values, kind, low, high
) -> None:
    assert bounds(tmp_path, values, kind) == (low, high)


def test_a_decimal_keeps_all_its_digits(tmp_path: Path) -> None:
    values = [Decimal("-99999999999999999999999999.999999999999"), Decimal("0.000000000001")]
    assert bounds(tmp_path, values, pa.decimal128(38, 12)) == tuple(values)


def test_a_decimal_is_a_number_and_not_a_text(tmp_path: Path) -> None:
    rows = pa.table({"c": pa.array([Decimal("0.000000000001")], pa.decimal128(38, 12))})
    assert '"minValues":{"c":0.000000000001}' in data_files.write_data(tmp_path, rows, [])["stats"]


@given(st.lists(st.text(max_size=80), min_size=1, max_size=5))
def test_a_truncated_text_is_still_a_bound(values: list[str]) -> None:
    stats = data_files.statistics(pa.table({"c": values}), [])
    low, high = stats["minValues"]["c"].encode(), stats["maxValues"]["c"].encode()
    assert all(low <= value.encode() <= high for value in values)


def test_a_long_text_is_truncated(tmp_path: Path) -> None:
    low, high = bounds(tmp_path, ["x" * 1_000], pa.string())
    assert (low, high) == ("x" * 32, "x" * 32 + "\U0010ffff")


def test_a_long_text_of_largest_characters_is_below_its_bound(tmp_path: Path) -> None:
    value = "\U0010ffff" * 40
    _low, high = bounds(tmp_path, [value], pa.string())
    assert high is None or high >= value


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ((2026, 3, 29, 1, 30, 0, 123456), "2026-03-29T01:30:00.123Z", "2026-03-29T01:30:00.124Z"),
        ((2026, 3, 29, 1, 30, 0, 123000), "2026-03-29T01:30:00.123Z", "2026-03-29T01:30:00.123Z"),
        ((1883, 11, 18, 12, 0, 0, 1), "1883-11-18T12:00:00.000Z", "1883-11-18T12:00:00.001Z"),
        ((1, 1, 1), "0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
    ],
)
def test_timestamps_are_widened_to_milliseconds(tmp_path: Path, value, low, high) -> None:
    values = [datetime(*value, tzinfo=UTC)]
    assert bounds(tmp_path, values, pa.timestamp("us", "UTC")) == (low, high)


def test_the_last_timestamp_of_the_calendar_has_a_bound(tmp_path: Path) -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    _low, high = bounds(tmp_path, [last], pa.timestamp("us", "UTC"))
    assert high == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us", "UTC")])
def test_dates_outside_the_calendar_have_no_bounds(tmp_path: Path, kind) -> None:
    far = 2**30 if pa.types.is_date(kind) else 2**60
    values = pa.array([0, far], pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    stats = stats_of(tmp_path, pa.table({"c": values}))
    assert ("c" in stats["minValues"], "c" in stats["maxValues"]) == (False, False)


@pytest.mark.parametrize("value", [NAN, INFINITY, -INFINITY])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_non_finite_numbers_have_no_bounds(tmp_path, value, kind) -> None:
    assert bounds(tmp_path, [1.0, value], kind) == (None, None)


@given(st.sampled_from(list(SHAPES.values())), st.data())
def test_statistics_are_json_of_finite_numbers(shape, data) -> None:
    row = st.tuples(*(st.sampled_from(VALUES[column.type.name]) for column in shape.schema))
    rows = data.draw(st.lists(row, max_size=5))
    stats = json.loads(
        data_files._json(data_files.statistics(shape.arrow(rows), list(shape.key))),
        parse_constant=pytest.fail,
    )
    for value in [*stats["minValues"].values(), *stats["maxValues"].values()]:
        assert not isinstance(value, float) or math.isfinite(value)


@pytest.mark.parametrize("kind", [pa.bool_(), pa.binary()])
def test_values_without_an_order_have_no_bounds(tmp_path: Path, kind: pa.DataType) -> None:
    value = True if pa.types.is_boolean(kind) else b"a"
    assert bounds(tmp_path, [value], kind) == (None, None)


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path: Path) -> None:
    stats = stats_of(tmp_path, pa.table({"c": pa.nulls(2, pa.int64())}))
    assert (stats["nullCount"], stats["minValues"]) == ({"c": 2}, {})


def test_the_key_has_statistics_wherever_it_is(tmp_path: Path) -> None:
    wide = pa.table({f"c{i}": [i] for i in range(50)})
    stats = stats_of(tmp_path, wide, ["c49"])
    assert len(stats["minValues"]) == data_files.STATISTICS
    assert stats["minValues"]["c49"] == 49


def test_a_text_is_written_without_escapes_that_readers_misread(tmp_path: Path) -> None:
    add = data_files.write_data(tmp_path, pa.table({"𠀀": ["𠀀"]}), [])
    assert '"minValues":{"𠀀":"𠀀"}' in add["stats"]


def test_a_file_with_deleted_rows_keeps_its_bounds_as_wide(tmp_path: Path) -> None:
    value = Decimal("0.12345678901234567890")
    rows = pa.table({"c": pa.array([value], pa.decimal128(38, 20))})
    add = data_files.write_data(tmp_path, rows, [])
    again = data_files.deleted_from(add, {"storageType": "u"}, 1)
    stats = json.loads(again["stats"], parse_float=Decimal)
    assert (stats["minValues"]["c"], stats["tightBounds"]) == (value, False)


def test_a_file_without_statistics_gets_its_number_of_rows_with_a_vector(tmp_path: Path) -> None:
    add = data_files.write_data(tmp_path, pa.table({"c": [1]}), []) | {"stats": None}
    assert json.loads(data_files.deleted_from(add, {}, 7)["stats"])["numRecords"] == 7


def test_timestamps_are_written_as_utc(tmp_path: Path) -> None:
    at = pa.array([0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    add = data_files.write_data(tmp_path, pa.table({"at": at}), [])
    kind = pq.ParquetFile(tmp_path / add["path"]).schema.column(0).logical_type
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(kind)


@pytest.mark.parametrize(
    "write", [lambda *of: data_files.write_data(*of, []), data_files.write_changes]
)
def test_pages_have_checksums(tmp_path: Path, write: Callable[..., Any]) -> None:
    path = tmp_path / write(tmp_path, pa.table({"a": ["one"]}))["path"]
    content = path.read_bytes()
    path.write_bytes(content.replace(b"one", b"two", 1))
    with pytest.raises(DamagedPage):
        page_checksums.verify(path)


@pytest.mark.parametrize(
    "write", [lambda *of: data_files.write_data(*of, []), data_files.write_changes]
)
def test_files_name_the_calendar_for_spark_3(tmp_path: Path, write: Callable[..., Any]) -> None:
    path = tmp_path / write(tmp_path, pa.table({"d": [date(1500, 1, 1)]}))["path"]
    facts = pq.read_metadata(path).metadata
    assert int(facts[b"org.apache.spark.version"].split(b".")[0]) >= 3
    assert pq.read_table(path).to_pylist() == [{"d": date(1500, 1, 1)}]
