"""Types: whatever Arrow has becomes what a mirror takes, and stays what it was."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import (
    BadValue,
    KeyColumnMissing,
    SchemaMergeFailure,
    UnsupportedColumn,
    UsageError,
)
from mirrorlake.model.arrow import arrow_type
from mirrorlake.publisher import Publisher
from mirrorlake.publisher.encoding.json_text import json_text
from mirrorlake.publisher.encoding.types import landable
from tests.histories import VALUES
from tests.publisher.mirrored_zone import Zone

INSTANT = datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=UTC)
PLAIN = INSTANT.replace(tzinfo=None)

KEPT = [
    (pa.bool_(), [True, False, None]),
    (pa.int8(), [-128, 127, None]),
    (pa.int16(), [-(2**15), None]),
    (pa.int32(), [2**31 - 1, None]),
    (pa.int64(), [-(2**63), None]),
    (pa.float32(), [1.5, None]),
    (pa.float64(), [0.1, float("inf"), None]),
    (pa.decimal128(12, 2), [Decimal("-1.10"), None]),
    (pa.string(), ["", "é\U00020000", None]),
    (pa.binary(), [b"", b"\0\xff", None]),
    (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    (pa.timestamp("us", "UTC"), [INSTANT, None]),
]
"""Types that stay what they are (LZ-147, LZ-149, LZ-151)."""

CHANGED = [
    (pa.uint8(), [255, None], pa.int16(), [255, None]),
    (pa.uint16(), [2**16 - 1], pa.int32(), [2**16 - 1]),
    (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
    (pa.uint64(), [2**64 - 1], pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    (pa.float16(), [1.5], pa.float32(), [1.5]),
    (pa.large_string(), ["a"], pa.string(), ["a"]),
    (pa.string_view(), ["a", None], pa.string(), ["a", None]),
    (pa.large_binary(), [b"a"], pa.binary(), [b"a"]),
    (pa.binary_view(), [b"a"], pa.binary(), [b"a"]),
    (pa.binary(2), [b"ab", None], pa.binary(), [b"ab", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["a", None], pa.string(), ["a", None]),
    (pa.date64(), [date(2026, 1, 2)], pa.date32(), [date(2026, 1, 2)]),
    (pa.timestamp("s"), [PLAIN.replace(microsecond=0)], pa.timestamp("us", "UTC"),
     [INSTANT.replace(microsecond=0)]),
    (pa.timestamp("us"), [PLAIN], pa.timestamp("us", "UTC"), [INSTANT]),
    (pa.timestamp("ns", "Asia/Tokyo"), [INSTANT], pa.timestamp("us", "UTC"), [INSTANT]),
    (pa.time32("s"), [time(14, 30)], pa.string(), ["14:30:00"]),
    (pa.time64("us"), [time(1, 2, 3, 4), None], pa.string(), ["01:02:03.000004", None]),
    (pa.duration("ms"), [timedelta(days=1)], pa.int64(), [86_400_000_000]),
    (pa.decimal256(40, 2), [Decimal("1.10")], pa.string(), ["1.10"]),
    (pa.decimal256(20, 2), [Decimal("1.10")], pa.decimal128(20, 2), [Decimal("1.10")]),
    (pa.decimal128(3, -2), [Decimal("100")], pa.decimal128(5, 0), [Decimal("100")]),
    (pa.uuid(), [UUID(int=17), None], pa.string(), [str(UUID(int=17)), None]),
    (pa.list_(pa.int64()), [[1, None], [], None], pa.string(), ["[1,null]", "[]", None]),
    (pa.struct([("a", pa.string())]), [{"a": 'x"'}, None], pa.string(), ['{"a":"x\\""}', None]),
    (pa.map_(pa.string(), pa.int8()), [[("k", 1)]], pa.string(), ['{"k":1}']),
]  # fmt: skip
"""Types that become others: unsigned (LZ-154), times (LZ-153), nested (LZ-148), and the rest."""


@pytest.mark.clause("LZ-147", "LZ-149", "LZ-143", "LZ-146")
@pytest.mark.parametrize(("kind", "values"), KEPT, ids=str)
def test_simple_types_stay_as_they_are(
    zone: Zone, publisher: Publisher, kind: pa.DataType, values: list[Any]
) -> None:
    publisher.load("t", pa.table({"v": pa.array(values, kind)}), key=())
    assert zone.file("t").schema.field("v").type == kind
    assert [row[0] for row in zone.mirrored("t").table.rows] == values
    assert arrow_type(zone.mirrored("t").schema["v"].type) == kind


@pytest.mark.clause("LZ-148", "LZ-150")
@pytest.mark.parametrize(("kind", "values", "landed", "expected"), CHANGED, ids=str)
def test_other_types_become_what_a_mirror_takes(
    zone: Zone,
    publisher: Publisher,
    kind: pa.DataType,
    values: list[Any],
    landed: pa.DataType,
    expected: list[Any],
) -> None:
    publisher.load("t", pa.table({"v": pa.array(values, kind)}), key=())
    assert zone.file("t").schema.field("v").type == landed
    assert [row[0] for row in zone.mirrored("t").table.rows] == expected


@pytest.mark.clause("LZ-150")
def test_logical_types_stand_on_their_physical_types(zone: Zone, publisher: Publisher) -> None:
    columns = {str(kind): pa.array(values[:1], kind) for kind, values in KEPT}
    publisher.load("t", pa.table(columns), key=())
    with zone.store.open(f"{zone.folder('t')}/{zone.names('t')[0]}") as handle:
        schema = pq.ParquetFile(handle).schema
    found = {c.name: (c.physical_type, c.logical_type.type) for c in schema}
    assert found["date32[day]"] == ("INT32", "DATE")
    assert found["timestamp[us, tz=UTC]"] == ("INT64", "TIMESTAMP")
    assert found["string"] == ("BYTE_ARRAY", "STRING")
    assert found["binary"] == ("BYTE_ARRAY", "NONE")
    assert found["int8"] == ("INT32", "INT")
    assert found["int64"][0] == "INT64"
    assert found["decimal128(12, 2)"] == ("FIXED_LEN_BYTE_ARRAY", "DECIMAL")
    assert json.loads(schema.column(11).logical_type.to_json())["isAdjustedToUTC"] is True


@pytest.mark.clause("LZ-145")
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
def test_files_are_compressed_as_asked(zone: Zone, codec: str) -> None:
    with zone.publisher(codec=codec) as publisher:
        publisher.load("t", [{"id": n, "v": "x" * 99} for n in range(99)], key="id")
    with zone.store.open(f"{zone.folder('t')}/{zone.names('t')[0]}") as handle:
        column = pq.ParquetFile(handle).metadata.row_group(0).column(1)
    assert column.compression == ("UNCOMPRESSED" if codec == "none" else codec.upper())
    assert len(zone.rows("t")) == 99


def test_other_codecs_are_refused(zone: Zone) -> None:
    with pytest.raises(UsageError, match="lz4"):
        zone.publisher(codec="lz4")


JSON_TYPES = st.recursive(
    st.sampled_from(
        [pa.int64(), pa.string(), pa.bool_(), pa.float64(), pa.date32(), pa.binary(), pa.int8()]
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        inner.map(pa.large_list),
        st.tuples(inner, st.just(2)).map(lambda pair: pa.list_(*pair)),
        st.lists(inner, min_size=0, max_size=3).map(
            lambda kinds: pa.struct([(f'm"{n}', kind) for n, kind in enumerate(kinds)])
        ),
    ),
    max_leaves=4,
)


@st.composite
def nested(draw: st.DrawFn) -> pa.Array:
    kind = draw(JSON_TYPES)
    values = draw(st.lists(_value(kind), min_size=0, max_size=4))
    start = draw(st.integers(0, len(values)))
    return pa.array(values, kind).slice(start)


def _value(kind: pa.DataType) -> st.SearchStrategy[Any]:
    is_ = pa.types
    if is_.is_struct(kind):
        plain: Any = st.fixed_dictionaries({field.name: _value(field.type) for field in kind})
    elif is_.is_fixed_size_list(kind):
        plain = st.lists(_value(kind.value_type), min_size=2, max_size=2)
    elif is_.is_list(kind) or is_.is_large_list(kind):
        plain = st.lists(_value(kind.value_type), max_size=3)
    else:
        plain = {
            pa.int64(): st.integers(-(2**63), 2**63 - 1),
            pa.int8(): st.integers(-128, 127),
            pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
            pa.bool_(): st.booleans(),
            pa.float64(): st.floats(allow_nan=False, allow_infinity=False),
            pa.date32(): st.dates(),
            pa.binary(): st.binary(max_size=5),
        }[kind]
    return st.none() | plain


@pytest.mark.clause("LZ-148")
@given(nested())
def test_json_text_says_what_the_values_are(values: pa.Array) -> None:
    import base64

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return value.isoformat() if isinstance(value, date) else value

    texts = json_text(values).to_pylist()
    expected = values.to_pylist()
    assert [text is None for text in texts] == [value is None for value in expected]
    assert [json.loads(text) for text in texts if text is not None] == [
        plain(value) for value in expected if value is not None
    ]


def test_numbers_that_json_has_not_become_words() -> None:
    values = pa.array([[float("nan"), float("inf"), float("-inf"), -0.5]])
    assert json_text(values).to_pylist() == ['["NaN","Infinity","-Infinity",-0.5]']


def test_uuids_are_read_at_any_offset() -> None:
    ids = [UUID(int=n) for n in range(5)]
    values = pa.array(ids).slice(2)
    assert landable(values, table="t", column="c").to_pylist() == [str(one) for one in ids[2:]]


class TestExistingColumnType:
    @pytest.mark.parametrize(
        ("kind", "values", "expected"),
        [
            (pa.int64(), [5], [5]),
            (pa.float64(), [5.0, None], [5, None]),
            (pa.int8(), [5], [5]),
            (pa.decimal128(5, 2), [Decimal("5.00")], [5]),
            (pa.uint64(), [5], [5]),
            (pa.null(), [None], [None]),
        ],
    )
    def test_what_fits_exactly_is_taken(
        self,
        zone: Zone,
        publisher: Publisher,
        kind: pa.DataType,
        values: list[Any],
        expected: list[Any],
    ) -> None:
        publisher.load("t", pa.table({"n": pa.array([1], pa.int32())}), key=())
        publisher.publish("t", pa.table({"n": pa.array(values, kind)}), operation="insert")
        assert zone.file("t").schema.field("n").type == pa.int32()
        assert zone.file("t")["n"].to_pylist() == expected

    @pytest.mark.parametrize(
        ("kind", "values", "row"),
        [
            (pa.int64(), [5, 2**31], 2),
            (pa.float64(), [5.0, None, 5.5], 3),
            (pa.float64(), [float("nan")], 1),
            (pa.decimal128(5, 2), [Decimal("5.01")], 1),
        ],
    )
    def test_the_first_value_that_does_not_fit_is_named(
        self, zone: Zone, publisher: Publisher, kind: pa.DataType, values: list[Any], row: int
    ) -> None:
        publisher.load("t", pa.table({"n": pa.array([1], pa.int32())}), key=())
        with pytest.raises(BadValue) as caught:
            publisher.publish("t", pa.table({"n": pa.array(values, kind)}), operation="insert")
        assert (caught.value.row, caught.value.column) == (row, "n")
        assert zone.numbers("t") == [1]

    @pytest.mark.clause("LZ-220")
    @pytest.mark.parametrize("kind", [pa.string(), pa.bool_(), pa.binary(), pa.timestamp("us")])
    def test_another_kind_of_type_needs_another_table(
        self, zone: Zone, publisher: Publisher, kind: pa.DataType
    ) -> None:
        publisher.load("t", pa.table({"n": pa.array([1], pa.int32())}), key=())
        other = pa.table({"n": pa.array([None, None], kind)})
        with pytest.raises(SchemaMergeFailure, match="existing type integer"):
            publisher.publish("t", other, operation="insert")
        publisher.drop("t")
        publisher.load("t", other, key=())
        assert zone.rows("t") == [{"n": None}, {"n": None}]
        publisher.publish("t", other.slice(1), operation="insert")
        assert zone.file("t").schema.field("n").type == zone.file("t", 1).schema.field("n").type
        assert zone.rows("t") == [{"n": None}] * 3

    def test_no_digit_is_lost_between_floats(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", pa.table({"n": pa.array([1], pa.float32())}), key=())
        publisher.publish("t", [{"n": 0.5}, {"n": float("nan")}], operation="insert")
        with pytest.raises(BadValue):
            publisher.publish("t", [{"n": 0.1}], operation="insert")


class TestNullColumn:
    def test_it_waits_for_a_type(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", [{"id": 1, "v": None}], key="id")
        assert zone.file("t").column_names == ["id"]
        publisher.publish("t", [{"id": 2, "v": 1.5}], operation="insert")
        assert zone.rows("t") == [{"id": 1, "v": None}, {"id": 2, "v": 1.5}]

    def test_it_has_the_type_that_is_asked_for(self, zone: Zone, publisher: Publisher) -> None:
        publisher.load("t", [{"id": 1, "v": None}], key="id", types={"v": "decimal(9,2)"})
        assert zone.file("t").schema.field("v").type == pa.decimal128(9, 2)

    def test_a_null_column_is_not_a_key(self, publisher: Publisher) -> None:
        with pytest.raises(KeyColumnMissing, match="NULL"):
            publisher.load("t", [{"id": None, "v": 1}], key="id")

    def test_a_table_needs_another_column(self, publisher: Publisher) -> None:
        with pytest.raises(UnsupportedColumn):
            publisher.load("t", [{"v": None}], key=())


@pytest.mark.parametrize("kind", ["int", "decimal(39,0)", "struct"])
def test_types_are_those_of_the_tables(publisher: Publisher, kind: str) -> None:
    with pytest.raises(UsageError, match="The types are"):
        publisher.load("t", [{"a": 1}], key=(), types={"a": kind})


def test_a_type_that_nobody_stores_is_refused(zone: Zone, publisher: Publisher) -> None:
    rows = pa.table({"v": pa.array([(1, 2, 3)], pa.month_day_nano_interval())})
    with pytest.raises(UnsupportedColumn, match="month_day_nano"):
        publisher.load("t", rows, key=())
    assert zone.names("t") == []


@pytest.mark.parametrize("name", ["_change_type", "__mirrorlake_unchanged__", ""])
def test_reserved_names_are_refused(publisher: Publisher, name: str) -> None:
    with pytest.raises(UnsupportedColumn, match="reserved"):
        publisher.load("t", pa.table({"id": [1], name: [1]}), key="id")


@pytest.mark.parametrize("names", [["a", "A"], ["a", "a"], ["ß", "SS"]])
def test_names_that_differ_only_in_case_are_refused(publisher: Publisher, names: list[str]) -> None:
    with pytest.raises(UnsupportedColumn, match="case"):
        publisher.load("t", pa.table([[1], [2]], names=names), key=())


def test_a_column_in_another_case_is_the_same_one(zone: Zone, publisher: Publisher) -> None:
    publisher.load("t", [{"id": 1, "Name": "a"}], key="id")
    publisher.publish("t", [{"ID": 1, "name": "b"}], operation="upsert")
    assert zone.rows("t") == [{"id": 1, "Name": "b"}]


@pytest.mark.parametrize("name", list(VALUES))
def test_awkward_values_arrive(zone: Zone, publisher: Publisher, name: str) -> None:
    values = VALUES[name]
    publisher.load("t", [{"v": value} for value in values], key=())
    rows = [row[0] for row in zone.mirrored("t").table.rows]
    assert [repr(v) for v in rows] == [repr(v) for v in pa.array(values).to_pylist()]
