"""Values in binary format, as psycopg writes them, and bytes that are none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.adapt import PyFormat, Transformer

from mirrorlake.errors import BadValue
from mirrorlake.model import types
from mirrorlake.sources.postgresql.types import binary_values
from mirrorlake.sources.postgresql.types.binary_values import Fields, NotItsType, binary_reader
from mirrorlake.sources.postgresql.types.mapping import Form, PgType
from mirrorlake.sources.postgresql.types.values import ColumnDecoder, Extremes

OIDS = {kind.name: kind.oid for kind in psycopg.adapters.types}


def decoder_of(kind: PgType, extremes: Extremes | None = None) -> ColumnDecoder:
    return ColumnDecoder("public.things", "v", kind, extremes or Extremes(), lambda _name, _n: None)


def numeric(precision: int, scale: int) -> PgType:
    return PgType("numeric", types.decimal(precision, scale), Form.DECIMAL)


INTEGER = PgType("int4", types.INTEGER, Form.NUMBER)
DATE = PgType("date", types.DATE, Form.DATE)
MOMENT = PgType("timestamp", types.TIMESTAMP, Form.TIMESTAMP)
JSONB, UUID = (PgType(name, types.STRING, Form.TEXT) for name in ("jsonb", "uuid"))


def fields(values: Sequence[bytes | None]) -> Fields:
    """As in rows of a COPY, with other bytes around each value."""
    content, begin = bytearray(b"\xff" * 8), []
    for value in values:
        begin.append(len(content))
        content += (value or b"") + b"\xee" * (len(begin) % 3)
    is_null = np.array([value is None for value in values], bool)
    return Fields(
        np.frombuffer(bytes(content), np.uint8),
        np.array(begin, np.int64),
        np.array([len(value or b"") for value in values], np.int64),
        is_null if is_null.any() else None,
    )


def read(
    oid: str, kind: PgType, values: Sequence[bytes | None], extremes: Extremes | None = None
) -> list[Any]:
    reader = binary_reader(OIDS[oid], decoder_of(kind, extremes))
    assert reader is not None
    found: pa.Array = reader(fields(values))
    found.validate(full=True)
    listed: list[Any] = found.to_pylist()
    return listed


def sent(value: object) -> bytes | None:
    if value is None:
        return None
    dumped = Transformer().get_dumper(value, PyFormat.BINARY).dump(value)
    assert dumped is not None
    return bytes(dumped)


@st.composite
def columns_of_decimals(draw: st.DrawFn) -> tuple[int, int, list[Decimal | None]]:
    """A precision, a scale, and values with trailing zeros of any number."""
    precision = draw(st.integers(1, 18))
    scale = draw(st.integers(0, precision))
    most = 10**precision - 1
    zeros = st.integers(0, scale)
    units = st.builds(lambda n, z: n // 10**z * 10**z, st.integers(0, most), zeros)
    signs = st.sampled_from([1, -1])
    values = st.none() | st.builds(lambda n, sign: sign * Decimal(n).scaleb(-scale), units, signs)
    return precision, scale, draw(st.lists(values, max_size=20))


@given(columns_of_decimals())
def test_decimals_are_read_exactly(column: tuple[int, int, list[Decimal | None]]) -> None:
    precision, scale, values = column
    dumped = [sent(value) for value in values]
    assert read("numeric", numeric(precision, scale), dumped) == values


@given(st.lists(st.integers(-(10**12) + 1, 10**12 - 1), max_size=20))
def test_whole_numbers_are_read_at_a_scale(values: list[int]) -> None:
    """They come without the places behind the point."""
    found = read("numeric", numeric(18, 6), [sent(Decimal(value)) for value in values])
    assert found == values


@pytest.mark.parametrize(
    ("value", "precision", "scale"),
    [
        *(("100", 2, 0), ("10000", 4, 0), ("9" * 19, 18, 0), ("1e17", 18, 2), ("1e40", 18, 2)),
        *(("0.001", 5, 2), ("1.00001", 9, 4), ("-12345.6", 5, 0)),
    ],
)
def test_a_decimal_that_does_not_fit_is_refused(value: str, precision: int, scale: int) -> None:
    with pytest.raises(NotItsType):
        read("numeric", numeric(precision, scale), [None, sent(Decimal(value))])


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_refused_or_becomes_null(text: str) -> None:
    values = [sent(Decimal("1.5")), sent(Decimal(text)), None]
    with pytest.raises(BadValue, match=f"^{re.escape(text)} is not a value of decimal"):
        read("numeric", numeric(5, 2), values)
    found = read("numeric", numeric(5, 2), values, Extremes(numbers="null"))
    assert found == [Decimal("1.50"), None, None]


def test_a_decimal_of_more_digits_comes_as_text() -> None:
    assert binary_reader(OIDS["numeric"], decoder_of(numeric(19, 2))) is None


@pytest.mark.parametrize(
    ("oid", "kind"),
    [
        *(("int8", INTEGER), ("text", INTEGER), ("int4", DATE), ("timestamp", DATE)),
        *(("date", MOMENT), ("timestamptz", MOMENT), ("bytea", UUID), ("bool", UUID)),
    ],
)
def test_a_type_that_is_not_that_of_the_column_comes_as_text(oid: str, kind: PgType) -> None:
    assert binary_reader(OIDS[oid], decoder_of(kind)) is None


def test_a_value_of_another_size_is_refused() -> None:
    for oid, kind in [("int4", INTEGER), ("date", DATE), ("timestamp", MOMENT), ("uuid", UUID)]:
        with pytest.raises(NotItsType, match="3 bytes"):
            read(oid, kind, [None, b"abc"])
    with pytest.raises(NotItsType, match="10 bytes"):
        read("numeric", numeric(5, 2), [(2).to_bytes(2, "big") + bytes(8)])


def test_an_unknown_version_of_jsonb_is_refused() -> None:
    assert read("jsonb", JSONB, [b"\x01{}", None, b"\x01"]) == ["{}", None, ""]
    with pytest.raises(NotItsType, match="version"):
        read("jsonb", JSONB, [b"\x02{}"])


EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1) // timedelta(microseconds=1)
ODD = {
    2**31 - 1: "infinity",
    -(2**31): "-infinity",
    (date(9999, 12, 31) - date(2000, 1, 1)).days + 1: "10000-01-01",
    (date(1, 1, 1) - date(2000, 1, 1)).days - 1: "0001-12-31 BC",
    -2_451_545: "4714-11-24 BC",
    2_145_031_948: "5874897-12-31",
}


@pytest.mark.parametrize("days", ODD)
def test_days_beyond_the_calendar_are_treated_as_the_settings_say(days: int) -> None:
    values = [days.to_bytes(4, "big", signed=True), None, sent(date(2024, 2, 29))]
    last = date.max if days > 0 else date.min
    assert read("date", DATE, values) == [last, None, date(2024, 2, 29)]
    assert read("date", DATE, values, Extremes(dates="null"))[0] is None
    with pytest.raises(BadValue, match=f"^'{ODD[days]}' is outside"):
        read("date", DATE, values, Extremes(dates="error"))


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (2**63 - 1, "infinity"),
        (-(2**63), "-infinity"),
        (2_921_940 * DAY + 1, "10000-01-01 00:00:00.000001"),
        (-730_119 * DAY - 1_000_000, "0001-12-31 23:59:59 BC"),
        (2**63 - 2, "294277-01-09 04:00:54.775806"),
    ],
)
def test_moments_beyond_the_calendar_are_treated_as_the_settings_say(
    moment: int, text: str
) -> None:
    values = [moment.to_bytes(8, "big", signed=True), None]
    last = datetime.max if moment > 0 else datetime.min  # noqa: DTZ901
    assert read("timestamp", MOMENT, values) == [last.replace(tzinfo=UTC), None]
    assert read("timestamp", MOMENT, values, Extremes(dates="null")) == [None, None]
    with pytest.raises(BadValue, match=f"^'{text}' is outside"):
        read("timestamp", MOMENT, values, Extremes(dates="error"))


@pytest.mark.parametrize("dates", ["clamp", "null", "error"])
@pytest.mark.parametrize(
    ("oid", "kind", "value", "text"),
    [
        ("date", DATE, (2_921_940).to_bytes(4, "big"), "10000-01-01"),
        (
            "timestamp",
            MOMENT,
            (2_921_940 * 86_400_000_000).to_bytes(8, "big"),
            "10000-01-01 00:00:00",
        ),
    ],
)
def test_nothing_of_a_key_is_replaced(
    oid: str, kind: PgType, value: bytes, text: str, dates: Literal["clamp", "null", "error"]
) -> None:
    decoder = replace(decoder_of(kind, Extremes(dates=dates)), is_key=True)
    reader = binary_reader(OIDS[oid], decoder)
    assert reader is not None
    with pytest.raises(BadValue, match=f"^'{text}' is outside .* found by the column"):
        reader(fields([value]))
    with pytest.raises(BadValue, match=f"^'{text}' is outside .* found by the column"):
        decoder.decode(pa.array([text]))


@pytest.mark.parametrize("dates", ["clamp", "null"])
def test_an_infinity_of_a_key_is_clamped_or_refused(dates: Literal["clamp", "null"]) -> None:
    decoder = replace(decoder_of(DATE, Extremes(dates=dates)), is_key=True)
    reader = binary_reader(OIDS["date"], decoder)
    assert reader is not None
    content = fields([(2**31 - 1).to_bytes(4, "big"), (-(2**31)).to_bytes(4, "big", signed=True)])
    texts = pa.array(["infinity", "-infinity"])
    if dates == "clamp":
        days = [date(9999, 12, 31), date(1, 1, 1)]
        assert reader(content).to_pylist() == decoder.decode(texts).to_pylist() == days
        return
    with pytest.raises(BadValue, match=r"^'infinity' is outside .* found by the column"):
        reader(content)
    with pytest.raises(BadValue, match=r"^'infinity' is outside .* found by the column"):
        decoder.decode(texts)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20))
def test_bytes_are_copied_as_they_are(values: list[bytes | None]) -> None:
    kind = PgType("bytea", types.BINARY, Form.BYTEA)
    assert read("bytea", kind, values) == values


def test_bytes_are_copied_from_a_block_with_long_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_values, "MOST_BYTES", 0)
    kind = PgType("bytea", types.BINARY, Form.BYTEA)
    assert read("bytea", kind, [b"ab", None, b"", b"c"]) == [b"ab", None, b"", b"c"]
    assert read("text", PgType("text", types.STRING, Form.TEXT), [b"ab", None]) == ["ab", None]


@given(st.lists(st.none() | st.uuids(), max_size=10))
def test_uuids_are_read(values: list[Any]) -> None:
    expected = [None if value is None else str(value) for value in values]
    assert read("uuid", UUID, [sent(value) for value in values]) == expected
