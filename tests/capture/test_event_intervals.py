"""Intervals of PostgreSQL as the records of events, up to the longest that these hold."""

from __future__ import annotations

import io
import json
import re
from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.apply.events.columns import delta_values
from mirrorlake.capture.events.infinities import Infinite, Infinities
from mirrorlake.capture.events.payload import converted
from mirrorlake.errors import BadValue
from mirrorlake.events import types
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.reading import read_events
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import EventColumn, UnifiedType
from tests.events.values import Drawn, described, rows
from tests.profiles import tries

_HOUR = 3_600_000_000
MOST, LEAST = (1 << 31) - 1, -(1 << 31)
LONGEST = f"P{MOST // 24}DT{MOST % 24}H"
CARRIED = (1 << 63) // _HOUR
"""The hours that the microseconds hold, besides those that the hours hold."""

CASES = [
    (LONGEST, 0, MOST, 0),
    (f"PT{MOST + 1}H", 0, MOST, _HOUR),
    (f"PT{LEAST}H", 0, LEAST, 0),
    (f"PT{LEAST - 1}H-59M-59.999999S", 0, LEAST, 1 - 2 * _HOUR),
    (f"P1Y-2MT{MOST + 2}H-1.5S", 10, MOST, 2 * _HOUR - 1_500_000),
    (f"PT{MOST + CARRIED}H54.775807S", 0, MOST, (1 << 63) - 1),
    (f"PT{LEAST - CARRIED}H-54.775808S", 0, LEAST, -(1 << 63)),
    # The longest time without days that PostgreSQL has, and about the most days.
    ("PT2562047788H54.775807S", 0, MOST, (2562047788 - MOST) * _HOUR + 54_775_807),
    ("P-196000000D", 0, LEAST, (-196_000_000 * 24 - LEAST) * _HOUR),
]
TOO_LONG = [
    f"PT{MOST + CARRIED}H54.775808S",
    f"PT{LEAST - CARRIED}H-54.775809S",
    f"PT{MOST + CARRIED + 1}H",
    "P2147483647D",
    "P-2147483648DT-2562047788H-54.775808S",
    "P9000000000000000000D",
    "P9000000000000000000W",
    "P9000000000000000000Y",
    "P2147483648M",
    "PT9000000000000000000M",
    "PT9000000000000000000S",
    "PT9223372036854775807H",
    "P99999999999999999999D",
]


def record(months: int, hours: int, micros: int) -> dict[str, int]:
    return {"months": months, "hours": hours, "micros": micros}


def of(texts: list[str | None]) -> pa.Array:
    return converted(pa.array(texts, pa.string()), types.INTERVAL, table="a.t", column="span")


def length(iso: str) -> tuple[int, int]:
    """The months of a duration, and the microseconds of the rest of it."""
    date, _, time = iso.removeprefix("P").partition("T")
    found = {f"{unit}{kind}": number for kind, part in (("d", date), ("t", time))
             for number, unit in re.findall(r"(-?[0-9.]+)([A-Z])", part)}  # fmt: skip
    whole = {unit: int(number) for unit, number in found.items() if unit != "St"}
    hours = 24 * whole.get("Dd", 0) + whole.get("Ht", 0)
    seconds = found.get("St", "0")
    before, _, after = seconds.lstrip("-").partition(".")
    micros = int(before) * 1_000_000 + int(after.ljust(6, "0"))
    micros *= -1 if seconds.startswith("-") else 1
    months = 12 * whole.get("Yd", 0) + whole.get("Md", 0)
    return months, (hours * 60 + whole.get("Mt", 0)) * 60_000_000 + micros


@pytest.mark.clause("ST-121")
@pytest.mark.parametrize(("text", "months", "hours", "micros"), CASES)
def test_hours_that_32_bits_do_not_hold_are_carried_into_the_microseconds(
    text: str, months: int, hours: int, micros: int
) -> None:
    found = of(["PT0S", None, text, "P1D"])
    assert found.type == payload_type(types.INTERVAL)
    assert found.to_pylist() == [
        record(0, 0, 0),
        None,
        record(months, hours, micros),
        record(0, 24, 0),
    ]


@pytest.mark.clause("ST-121")
@pytest.mark.parametrize("text", TOO_LONG)
def test_an_interval_that_no_record_holds_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadValue, match=r"is no INTERVAL: .*longer") as raised:
        of(["PT1H", text, None])
    assert "a.t" in str(raised.value.facts())
    assert "span" in str(raised.value)


@settings(max_examples=tries(100))
@given(st.lists(st.none() | st.tuples(
    st.integers(LEAST, MOST),
    st.integers(-196_000_000, 196_000_000),
    st.integers(-2562047788, 2562047788).map(lambda hours: hours % 400_000),
    st.integers(-59, 59),
    st.integers(-59_999_999, 59_999_999),
), max_size=5))  # fmt: skip
def test_the_length_of_an_interval_is_that_of_its_text(drawn: list[Any]) -> None:
    texts = [None if one is None else _text(*one) for one in drawn]
    for text, found in zip(texts, of(texts).to_pylist(), strict=True):
        assert (found is None) == (text is None)
        if text is not None:
            told = found["months"], found["hours"] * _HOUR + found["micros"]
            assert told == length(text), text


def _text(months: int, days: int, hours: int, minutes: int, micros: int) -> str:
    sign, micros = "-" if micros < 0 else "", abs(micros)
    seconds = f"{sign}{micros // 1_000_000}.{micros % 1_000_000:06}"
    return f"P{months}M{days}DT{hours}H{minutes}M{seconds}S"


@pytest.mark.clause("ST-015", "ST-121", "ST-135")
@pytest.mark.parametrize("form", ["avro", "json"])
def test_tables_of_events_have_the_length_of_the_longest_intervals(form: str) -> None:
    texts = [text for text, *_record in CASES]
    values = of([*texts, None])
    drawn = [Drawn(EventColumn("c0", types.INTERVAL), values.to_pylist())]
    event_object, written = described(drawn), rows(drawn)
    write = container if form == "avro" else json_lines
    content = b"".join(write(event_object, written))
    (found,) = read_events(io.BytesIO(content), known=lambda _head: {"c0": types.INTERVAL})
    assert not found.rejected
    read = found.payload.column("c0").combine_chunks()
    assert read.to_pylist() == values.to_pylist()
    told = delta_values(read, types.INTERVAL).to_pylist()
    assert told.pop() is None
    assert list(map(length, told)) == list(map(length, texts))


MOST_RECORD = record(MOST, MOST, (1 << 63) - 1)
LEAST_RECORD = record(LEAST, LEAST, -(1 << 63))
INFINITE = pa.array(["PT1H", "infinity", None, "-infinity"])


def treated(
    dates: Infinite, values: pa.Array = INFINITE, *, is_key: bool = False
) -> tuple[list[Any], list[tuple[str, str, int]]]:
    """The records of infinite intervals, and what is noted of them."""
    noted: list[tuple[str, str, int]] = []
    infinities = Infinities(dates, lambda *told: noted.append(told))
    found = converted(
        values, types.INTERVAL, table="a.t", column="span", infinities=infinities, is_key=is_key
    )
    return found.to_pylist(), noted


@pytest.mark.clause("ST-121")
@pytest.mark.parametrize("is_key", [False, True])
def test_an_infinite_interval_is_clamped_to_the_longest_that_a_record_holds(
    *, is_key: bool
) -> None:
    found, noted = treated("clamp", is_key=is_key)
    assert found == [record(0, 1, 0), MOST_RECORD, None, LEAST_RECORD]
    assert noted == [("a.t", "span", 2)]
    assert treated("clamp", pa.array(["PT1H"])) == ([record(0, 1, 0)], [])


@pytest.mark.clause("ST-121")
def test_an_infinite_interval_is_null_or_stops_its_table_where_so_set() -> None:
    assert treated("null") == ([record(0, 1, 0), None, None, None], [("a.t", "span", 2)])
    with pytest.raises(BadValue, match=r"'infinity' .*source\.extremes\.dates to clamp or null"):
        treated("error")
    assert treated("error", pa.array(["PT1H", None]))[0] == [record(0, 1, 0), None]


@pytest.mark.clause("ST-121")
@pytest.mark.parametrize("dates", ["null", "error"])
def test_an_infinite_interval_in_a_key_is_never_null(dates: Infinite) -> None:
    with pytest.raises(BadValue, match="rows of the table are found by the column"):
        treated(dates, is_key=True)


@pytest.mark.clause("ST-121")
def test_infinite_intervals_in_an_array_are_treated_alike() -> None:
    values = pa.array(['["infinity",null,"PT1H"]'])
    found = converted(values, types.array(types.INTERVAL), table="a.t", column="spans")
    assert found[0]["elements"].as_py() == [MOST_RECORD, None, record(0, 1, 0)]
    with pytest.raises(BadValue, match="'infinity'"):
        converted(
            values,
            types.array(types.INTERVAL),
            table="a.t",
            column="spans",
            infinities=Infinities("error"),
        )


DAYS, DAY = ("0001-01-01", "9999-12-31"), "2026-11-30"
MOMENTS = "0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"
BEYOND = '"10000-01-01 00:00:00", "0044-03-15 00:00:00.25 BC"'
BEYOND_UTC = '"10000-01-01 00:00:00+00", "0044-03-15 00:00:00+00 BC"'
MOMENT = f"{DAY} 12:00:00.500000"
ARRAYS = {
    types.DATE: (
        f'["{DAY}", "infinity", null, "-infinity", "10000-01-01", "0044-03-15 BC"]',
        [DAY, DAYS[1], "None", DAYS[0], DAYS[1], DAYS[0]],
    ),
    types.TIMESTAMP: (
        f'[["{DAY} 12:00:00.5", "infinity", "-infinity"], [null,{BEYOND}]]',
        [MOMENT, MOMENTS[1], MOMENTS[0], "None", MOMENTS[1], MOMENTS[0]],
    ),
    types.TIMESTAMP_WITH_TIME_ZONE: (
        f'["{DAY} 12:00:00.5+00", "infinity", null, "-infinity",{BEYOND_UTC}]',
        [MOMENT, MOMENTS[1], "None", MOMENTS[0], MOMENTS[1], MOMENTS[0]],
    ),
}
"""Arrays as texts of PostgreSQL, and their elements where these are clamped."""


@pytest.mark.clause("ST-134", "ST-135")
@pytest.mark.parametrize("element", ARRAYS, ids=str)
def test_days_and_moments_beyond_the_calendar_in_an_array_are_treated_as_those_of_a_column(
    element: UnifiedType,
) -> None:
    text, clamped = ARRAYS[element]
    values, kind, noted = pa.array([text, None]), types.array(element), list[tuple[str, str, int]]()

    def elements(dates: Infinite) -> list[str]:
        infinities = Infinities(dates, lambda *told: noted.append(told))
        found = converted(values, kind, table="a.t", column="days", infinities=infinities)
        assert not found[1].is_valid
        told = found[0]["elements"].as_py()
        return [str(one["timestamp"] if isinstance(one, dict) else one) for one in told]

    assert elements("clamp") == clamped
    assert elements("null") == [clamped[0], *["None"] * 5]
    assert noted == [("a.t", "days", 4)] * 2
    with pytest.raises(BadValue, match=r"'10000-.*extremes\.dates to clamp or null") as one:
        elements("error")
    assert one.value.column == "days"


def test_an_array_of_a_key_has_no_day_that_stands_for_several() -> None:
    kind = types.array(types.DATE)

    def of(text: str, dates: Infinite = "clamp") -> Any:
        infinities = Infinities(dates)
        where = {"table": "a.t", "column": "days", "is_key": True}
        return converted(pa.array([text]), kind, infinities=infinities, **where)

    assert of('["infinity"]')[0]["elements"].as_py() == [date.max]
    with pytest.raises(BadValue, match=r"rows of the table are found .* Change the value"):
        of('["infinity", "10000-01-01"]')
    with pytest.raises(BadValue, match=r"rows of the table are found .* to clamp\."):
        of('["infinity"]', "null")


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "", "2026-11-30 BC?"])
def test_a_text_that_is_no_day_is_never_replaced(text: str) -> None:
    with pytest.raises(BadValue):
        converted(
            pa.array([json.dumps([text])]), types.array(types.DATE), table="a.t", column="days"
        )
