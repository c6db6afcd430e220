"""Parquet columns become columns of the table: the types that are accepted, and the others."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import BadFile, BadValue, UnsupportedColumn
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema
from tests.landing.files import date_on_int64, encoded, inspected, read

NOON = datetime(2026, 7, 1, 12, 0, 0, 123456)  # noqa: DTZ001  (some columns have no zone)
IN_UTC = NOON.replace(tzinfo=UTC)


def landed(values: list[Any], kind: pa.DataType, **options: Any) -> tuple[str, list[Any]]:
    """The type and the values of a column after it was landed."""
    content = encoded({"c": pa.array(values, kind)}, **options)
    column = read(content).data["c"]
    return str(inspected(content).schema["c"].type), column.to_pylist()


@pytest.mark.clause("LZ-147", "LZ-151")
@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        (pa.bool_(), True, "boolean"),
        (pa.int8(), -128, "byte"),
        (pa.int16(), -32768, "short"),
        (pa.int32(), -(2**31), "integer"),
        (pa.int64(), -(2**63), "long"),
        (pa.float32(), 0.5, "float"),
        (pa.float64(), 0.1, "double"),
        (pa.decimal128(38, 10), Decimal("-1234567890.0123456789"), "decimal(38,10)"),
        (pa.decimal128(5, 0), Decimal(12345), "decimal(5,0)"),
        (pa.string(), "größe\0 \U0001f600", "string"),
        (pa.binary(), b"\0\xff", "binary"),
        (pa.date32(), date(1, 1, 1), "date"),
        (pa.timestamp("us", "UTC"), IN_UTC, "timestamp"),
    ],
    ids=str,
)
def test_simple_types_keep_type_and_value(kind: pa.DataType, value: Any, name: str) -> None:
    assert landed([value, None], kind) == (name, [value, None])


@pytest.mark.clause("LZ-149")
@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(3), pa.binary_view()])
def test_binary_of_every_kind_is_binary(kind: pa.DataType) -> None:
    assert landed([b"abc", None], kind) == ("binary", [b"abc", None])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_of_every_kind_is_text(kind: pa.DataType) -> None:
    assert landed(["abc", None], kind) == ("string", ["abc", None])


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        (pa.float16(), 0.5, "float"),
        (pa.date64(), date(2026, 1, 1), "date"),
        (pa.decimal32(9, 2), Decimal("1.25"), "decimal(9,2)"),
        (pa.decimal64(18, 2), Decimal("1.25"), "decimal(18,2)"),
        (pa.decimal256(38, 2), Decimal("1.25"), "decimal(38,2)"),
    ],
    ids=str,
)
def test_other_widths_become_the_next_type(kind: pa.DataType, value: Any, name: str) -> None:
    assert landed([value, None], kind) == (name, [value, None])


@pytest.mark.clause("LZ-154")
@pytest.mark.parametrize(
    ("kind", "largest", "name"),
    [
        (pa.uint8(), 2**8 - 1, "short"),
        (pa.uint16(), 2**16 - 1, "integer"),
        (pa.uint32(), 2**32 - 1, "long"),
        (pa.uint64(), Decimal(2**64 - 1), "decimal(20,0)"),
    ],
    ids=str,
)
def test_an_unsigned_integer_becomes_the_next_wider_type(
    kind: pa.DataType, largest: Any, name: str
) -> None:
    assert landed([0, int(largest), None], kind) == (name, [0, largest, None])


@pytest.mark.clause("LZ-152")
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_timestamp_is_an_instant(unit: str, zone: str | None) -> None:
    known = IN_UTC.replace(microsecond=123000) if unit == "ms" else IN_UTC
    naive = known.replace(tzinfo=None)
    value = known if zone else naive
    assert landed([value, None], pa.timestamp(unit, zone)) == ("timestamp", [known, None])


def test_seconds_are_a_timestamp_too() -> None:
    whole = IN_UTC.replace(microsecond=0)
    assert landed([whole], pa.timestamp("s", "UTC")) == ("timestamp", [whole])


@pytest.mark.clause("LZ-152")
def test_an_int96_is_a_timestamp_in_utc() -> None:
    kind, options = pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}
    assert landed([NOON, None], kind, **options) == ("timestamp", [IN_UTC, None])


@pytest.mark.parametrize("year", [1, 1582, 2500, 9999])
def test_an_int96_reaches_every_year(year: int) -> None:
    kind, options = pa.timestamp("us"), {"use_deprecated_int96_timestamps": True}
    value = NOON.replace(year=year)
    assert landed([value], kind, **options) == ("timestamp", [value.replace(tzinfo=UTC)])


@pytest.mark.parametrize("count", [0, 1, 999, 1_000])
def test_nanoseconds_are_truncated_to_microseconds(count: int) -> None:
    nanoseconds = pa.array([count]).cast(pa.timestamp("ns"))
    cut = read(encoded({"c": nanoseconds})).data["c"].cast(pa.int64())
    assert cut.to_pylist() == [count // 1_000]


def test_a_time_that_microseconds_cannot_hold_is_refused() -> None:
    far = pa.array([2**62]).cast(pa.timestamp("ms"))
    with pytest.raises(BadValue) as caught:
        read(encoded({"c": far}))
    assert caught.value.column == "c"


@pytest.mark.clause("LZ-153")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.time32("ms"), "23:05:09.001"),
        (pa.time64("us"), "23:05:09.001002"),
        (pa.time64("ns"), "23:05:09.001002003"),
    ],
    ids=str,
)
def test_a_time_of_day_is_text(kind: pa.DataType, text: str) -> None:
    nanoseconds = ((23 * 60 + 5) * 60 + 9) * 10**9 + 1_002_003
    per_unit = {"ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
    count = nanoseconds // per_unit
    values = pa.array([count], pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    content = encoded({"c": values})
    assert str(inspected(content).schema["c"].type) == "string"
    assert read(content).data["c"].to_pylist() == [text]


@pytest.mark.parametrize("at", [time(0), time(23, 59, 59)])
def test_a_time_of_day_is_iso(at: time) -> None:
    (text,) = read(encoded({"c": pa.array([at])})).data["c"].to_pylist()
    assert time.fromisoformat(text) == at


@pytest.mark.parametrize(
    ("kind", "name"), [(pa.string(), "string"), (pa.int32(), "integer"), (pa.binary(), "binary")]
)
def test_a_dictionary_is_its_values(kind: pa.DataType, name: str) -> None:
    plain = pa.array(["1", None, "1", "2"]).cast(kind)
    content = encoded({"c": plain.dictionary_encode()})
    assert str(inspected(content).schema["c"].type) == name
    assert read(content).data["c"].to_pylist() == plain.to_pylist()


def test_json_is_text() -> None:
    text = '{"a": [1]}'
    content = encoded({"c": pa.array([text, None], pa.json_())})
    assert str(inspected(content).schema["c"].type) == "string"
    assert read(content).data["c"].to_pylist() == [text, None]


def test_a_uuid_is_binary() -> None:
    content = encoded({"c": pa.array([b"0123456789abcdef"], pa.uuid())})
    assert str(inspected(content).schema["c"].type) == "binary"
    assert read(content).data["c"].to_pylist() == [b"0123456789abcdef"]


def test_a_column_without_a_type_is_ignored() -> None:
    content = encoded({"id": [1], "c": pa.nulls(1)})
    assert inspected(content).schema.names == ["id"]


def test_a_column_without_a_type_is_null_in_a_table_that_has_it() -> None:
    content = encoded({"id": [1], "c": pa.nulls(1)})
    target = Schema.of([Column("id", types.LONG), Column("c", types.STRING)])
    assert read(content, target).data["c"].to_pylist() == [None]


@pytest.mark.clause("LZ-155")
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({"a": 1}, pa.struct([("a", pa.int32())])),
        ([1], pa.list_(pa.int32())),
        ([1], pa.large_list(pa.int32())),
        ([("a", 1)], pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_a_nested_column_is_refused_with_a_hint(value: Any, kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedColumn, match="JSON string") as caught:
        inspected(encoded({"id": [1], "c": pa.array([value], kind)}))
    assert caught.value.column == "c"


def test_a_decimal_that_delta_cannot_hold_is_refused() -> None:
    with pytest.raises(UnsupportedColumn, match="as text"):
        inspected(encoded({"c": pa.array([Decimal(1)], pa.decimal256(39, 0))}))


@pytest.mark.clause("LZ-150")
def test_a_logical_type_on_a_foreign_physical_type_is_refused() -> None:
    """Some versions of Arrow would read the days as plain numbers, others refuse the file."""
    with pytest.raises(
        (BadFile, UnsupportedColumn), match=r"is not allowed on INT64|Date cannot be applied.*INT64"
    ) as caught:
        inspected(date_on_int64())
    assert isinstance(caught.value, BadFile) or caught.value.column == "day"
