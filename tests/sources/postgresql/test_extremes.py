"""Values that no table can hold: clamped, made NULL or refused, as the settings say."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from typing import Literal

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from mirrorlake.errors import BadValue
from mirrorlake.sources.postgresql.types.values import Extremes
from mirrorlake.sources.replaced import VALUES_REPLACED
from tests.conformance.scene import events, faults
from tests.profiles import some
from tests.sources.postgresql.captured import Captured

pytestmark = pytest.mark.postgres

DAYS = ["infinity", "-infinity", "10000-01-01", "0001-12-31 BC"]
NUMBERS = "create table things (id int primary key, v numeric(5, 2))"
ODD_NUMBERS = "insert into things values (1, 'NaN'), (2, 1.5), (3, null)"


def begin(captured: Captured, extremes: Extremes, *statements: str) -> None:
    captured.settings = replace(captured.settings, extremes=extremes)
    captured.begin(*statements)


def table_of_days(type_: str) -> str:
    return f"create table things (id int primary key, v {type_})"


def odd_days() -> str:
    rows = ", ".join(f"({n}, '{day}')" for n, day in enumerate([*DAYS, "2024-02-29"]))
    return f"insert into things values {rows}, (9, null)"


@pytest.mark.full
@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_days_beyond_the_calendar_become_null_when_so_set(captured: Captured, type_: str) -> None:
    begin(captured, Extremes(dates="null"), table_of_days(type_))
    found = [event.row["v"] for event in captured.changes(odd_days())]
    assert found == [row["v"] for row in captured.snapshot("things")]
    assert [value is None for value in found] == [True] * 4 + [False, True]


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_days_beyond_the_calendar_stop_the_table_when_so_set(
    captured: Captured, type_: str
) -> None:
    begin(captured, Extremes(dates="error"), table_of_days(type_))
    (fault,) = faults(captured.chunks(odd_days()))
    assert isinstance(fault.error, BadValue)
    assert (fault.error.column, fault.error.table) == ("v", "public.things")
    assert "source.extremes.dates" in fault.error.hint


def test_days_beyond_the_calendar_stop_the_load_when_so_set(captured: Captured) -> None:
    begin(captured, Extremes(dates="error"), table_of_days("date"), odd_days())
    with pytest.raises(BadValue, match="outside the years 1 to 9999"):
        captured.snapshot("things")


def test_days_within_the_calendar_are_no_matter_of_settings(captured: Captured) -> None:
    begin(captured, Extremes(dates="error"), table_of_days("date"))
    days = ("0001-01-01", "9999-12-31")
    found = captured.changes(
        *(f"insert into things values ({n}, '{day}')" for n, day in enumerate(days))
    )
    assert [event.row["v"] for event in found] == [date(1, 1, 1), date(9999, 12, 31)]


def test_what_is_no_number_becomes_null_when_so_set(captured: Captured) -> None:
    begin(captured, Extremes(numbers="null"), NUMBERS)
    found = [event.row["v"] for event in captured.changes(ODD_NUMBERS)]
    assert found == [row["v"] for row in captured.snapshot("things")]
    assert [None if value is None else str(value) for value in found] == [None, "1.50", None]


def test_what_is_no_number_stops_the_table_by_default(captured: Captured) -> None:
    begin(captured, Extremes(), NUMBERS)
    (fault,) = faults(captured.chunks(ODD_NUMBERS))
    assert isinstance(fault.error, BadValue)
    assert "source.extremes.numbers" in fault.error.hint


def test_what_is_no_number_stops_the_load_by_default(captured: Captured) -> None:
    begin(captured, Extremes(), NUMBERS, ODD_NUMBERS)
    with pytest.raises(BadValue, match=r"NaN is not a value of decimal\(5,2\)"):
        captured.snapshot("things")


def test_a_table_that_stops_leaves_the_others_going_on(captured: Captured) -> None:
    begin(captured, Extremes(), NUMBERS, "create table apples (id int primary key)")
    chunks = captured.chunks(
        ODD_NUMBERS,
        "insert into apples values (1)",
        "insert into things values (4, 1)",
        "insert into apples values (2)",
    )
    assert len(faults(chunks)) == 1
    assert [(e.table, e.row["id"]) for e in events(chunks)] == [("apples", 1), ("apples", 2)]


KEYED_DAYS = "create table things (id int, v {}, n int, w date, primary key {})"
MANY_KEYS = """insert into things values (1, '0044-03-15 BC', 1), (1, '0045-01-01 BC', 2),
    (1, 'infinity', 3), (1, '9999-12-31', 4)"""
IS_IN_KEY = r"is outside the years 1 to 9999, and the rows of the table are found by the column"


@pytest.mark.parametrize("key", ["(v)", "(id, v)"])
@pytest.mark.parametrize("dates", ["clamp", "null", "error"])
@pytest.mark.parametrize("type_", some(["date", "timestamp", "timestamptz"]))
def test_keys_beyond_the_calendar_stop_the_table_whatever_is_set(
    captured: Captured, type_: str, dates: Literal["clamp", "null", "error"], key: str
) -> None:
    """Several of them would become one key."""
    apples = "create table apples (id int primary key)"
    begin(captured, Extremes(dates=dates), KEYED_DAYS.format(type_, key), apples)
    chunks = captured.chunks(MANY_KEYS, "insert into apples values (1)")
    (fault,) = faults(chunks)
    assert isinstance(fault.error, BadValue)
    assert (fault.error.column, fault.error.table) == ("v", "public.things")
    assert re.search(IS_IN_KEY, fault.error.what)
    assert "mirrorlake reset public.things" in fault.error.hint
    assert [(event.table, event.row["id"]) for event in events(chunks)] == [("apples", 1)]
    with pytest.raises(BadValue, match=IS_IN_KEY):
        captured.snapshot("things")


@pytest.mark.parametrize(
    "change",
    ["delete from things", "update things set v = '2024-02-29'", "update things set n = 2"],
)
@pytest.mark.parametrize("identity", ["default", "full"])
def test_a_row_that_had_a_key_beyond_the_calendar_stops_the_table(
    captured: Captured, identity: str, change: str
) -> None:
    create = KEYED_DAYS.format("date", "(id, v)")
    full = f"alter table things replica identity {identity}"
    begin(captured, Extremes(), create, full, "insert into things values (1, '10000-01-01', 1)")
    (fault,) = faults(captured.chunks(change))
    assert isinstance(fault.error, BadValue)
    assert re.search(IS_IN_KEY, fault.error.what)


def test_infinities_of_a_key_are_clamped(captured: Captured) -> None:
    """As in tables that say until when a row is valid."""
    first = "insert into things values (1, 'infinity', 1), (1, '-infinity', 1)"
    begin(captured, Extremes(), KEYED_DAYS.format("date", "(id, v)"), first)
    days = [date(9999, 12, 31), date(1, 1, 1)]
    assert [row["v"] for row in captured.snapshot("things")] == days
    found = captured.changes("update things set n = 2", "delete from things where v = 'infinity'")
    assert [event.row["v"] for event in found] == [*days, days[0]]


def test_a_row_whose_key_is_to_be_beyond_the_calendar_is_not_read_again(
    captured: Captured,
) -> None:
    begin(captured, Extremes(), KEYED_DAYS.format("date", "(v)"), MANY_KEYS)
    keys = pa.table({"v": [date(9999, 12, 31)]})
    (row,) = captured.source().reread(captured.discovered("things"), keys).to_pylist()
    assert row["n"] == 4


@pytest.mark.parametrize("type_", ["date", "timestamp", "timestamptz"])
def test_days_beside_a_key_of_days_are_clamped(captured: Captured, type_: str) -> None:
    create = KEYED_DAYS.format(type_, "(v)")
    begin(
        captured, Extremes(), create, "insert into things values (1, '2024-02-29', 3, '-infinity')"
    )
    assert [row["w"] for row in captured.snapshot("things")] == [date(1, 1, 1)]
    (event,) = captured.changes("update things set w = 'infinity'")
    assert event.row["w"] == date(9999, 12, 31)


def test_days_of_rows_that_are_found_by_all_columns_are_clamped(captured: Captured) -> None:
    """Rows that become equal are counted."""
    begin(captured, Extremes(), "create table things (v date)", WHOLE_ROWS)
    found = captured.changes(
        "insert into things values ('0044-03-15 BC'), ('0045-01-01 BC')",
        "delete from things where v = '0045-01-01 BC'",
    )
    assert [event.row["v"] for event in found] == [date(1, 1, 1)] * 3


WHOLE_ROWS = "alter table things replica identity full"


def test_what_is_no_number_becomes_null_in_a_key_when_so_set(captured: Captured) -> None:
    """Nothing else becomes that: it is the only such value, and a key has no NULL."""
    create = "create table things (v numeric(5, 2) primary key)"
    begin(captured, Extremes(numbers="null"), create)
    found = captured.changes("insert into things values ('NaN')", "delete from things")
    assert [event.row["v"] for event in found] == [None, None]


def test_every_replaced_value_is_counted(captured: Captured) -> None:
    begin(captured, Extremes(), table_of_days("date"))
    with capture_logs() as logs:
        captured.changes(odd_days())
    assert [log for log in logs if log["event"] == VALUES_REPLACED] == [
        {
            "event": VALUES_REPLACED,
            "log_level": "warning",
            "table": "public.things",
            "column": "v",
            "values": 4,
        }
    ]


@pytest.mark.parametrize("key", ["(v)", "(id, v)"])
def test_bounds_of_arrays_in_a_key_that_json_has_not_stop_the_table(
    captured: Captured, key: str
) -> None:
    table = f"create table things (id int, v int[], w int[], primary key {key})"
    begin(captured, Extremes(), table, "insert into things values (1, '{1,2}', '[0:1]={1,2}')")
    assert [row["w"] for row in captured.snapshot("things")] == ["[1,2]"]
    (fault,) = faults(captured.chunks("insert into things values (1, '[0:1]={1,2}')"))
    assert isinstance(fault.error, BadValue)
    assert "'[0:1]={1,2}' has other lower bounds than 1" in fault.error.what
    assert "source.extremes" not in fault.error.hint
    with pytest.raises(BadValue, match="found by the column"):
        captured.snapshot("things")
