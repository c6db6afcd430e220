"""Values of events as those of table columns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.events import types
from mirrorlake.events.decode.json.values import column_of
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType

LAST_DATE = 2_932_896
"""Days from 1970 to the last of the year 9999."""
DAY = 86_400_000_000


def of(kind: UnifiedType, values: list[Any]) -> tuple[list[Any], dict[int, str]]:
    columns = EventTableColumns().widened("t", {"v": kind})
    payload = pa.table({"v": pa.array(values, payload_type(kind))})
    (found,), rejected = columns.rows(payload, {"v": kind}, (), np.zeros(len(values), bool))
    return found.to_pylist(), rejected


@pytest.mark.clause("ST-253")
def test_a_time_that_no_day_has_is_a_dead_letter() -> None:
    found, rejected = of(types.TIME, [0, DAY, -1, DAY + 1, 2**63 - 1, -(2**63), None])
    assert found == ["00:00:00.000000", "24:00:00.000000", *[None] * 5]
    assert sorted(rejected) == [2, 3, 4, 5]
    pairs = [(0, 0), (DAY, 54_000_000), (-1, 0), (0, DAY // 1000), (0, -(2**31))]
    zoned = [{"time": time, "offset": offset} for time, offset in pairs]
    found, rejected = of(UnifiedType(UnifiedKind.TIME_WITH_TIME_ZONE), [*zoned, None])
    assert found == ["00:00:00.000000Z", "24:00:00.000000+15:00", *[None] * 4]
    assert sorted(rejected) == [2, 3, 4]
    lists = [[1, None], [], [DAY + 1], [0, -1]]
    arrays = [{"dimensions": [len(one)] if one else [], "elements": one} for one in lists]
    found, rejected = of(UnifiedType(UnifiedKind.ARRAY, element=types.TIME), [*arrays, None])
    assert found == ['["00:00:00.000001", null]', "[]", None, None, None]
    assert sorted(rejected) == [2, 3]


@pytest.mark.clause("ST-253", "ST-157")
@pytest.mark.parametrize(
    ("element", "last", "step"),
    [
        (types.DATE, LAST_DATE, 1),
        (types.DATETIME, (LAST_DATE + 1) * DAY - 1, 1),
        (types.TIMESTAMP, (LAST_DATE + 1) * DAY - 1, 1),
    ],
)
def test_a_date_beyond_the_calendar_in_an_array_is_a_dead_letter(
    element: UnifiedType, last: int, step: int
) -> None:
    first = -719_162 if element is types.DATE else -719_162 * DAY
    lists = [[first, None, last], [last + step], [0, first - step], [2**31 - 1, last + step]]
    arrays = [{"dimensions": [len(one)], "elements": one} for one in lists]
    found, rejected = of(UnifiedType(UnifiedKind.ARRAY, element=element), [*arrays, None])
    assert found[0].startswith('["0001-01-01')
    assert ', null, "9999-12-31' in found[0]
    assert found[1:] == [None] * 4
    assert sorted(rejected) == [1, 2, 3]
    assert {*rejected.values()} == {"column v has an array with a date before year 1 or after 9999"}


@pytest.mark.clause("ST-135")
@pytest.mark.parametrize("element", [types.DOUBLE, types.FLOAT])
def test_numbers_of_an_array_that_json_does_not_have_are_strings(element: UnifiedType) -> None:
    inf = float("inf")
    numbers = [0.5, float("nan"), None, inf, -inf, 2.0]
    kind = UnifiedType(UnifiedKind.ARRAY, element=element)
    found, rejected = of(kind, [{"dimensions": [2, 3], "elements": numbers}, None])
    assert found == ['[[0.5, "NaN", null], ["Infinity", "-Infinity", 2.0]]', None]
    assert not rejected
    (read,), unfit = column_of([json.loads(found[0])], kind)
    assert not unfit
    assert repr(read["elements"].as_py()) == repr(numbers)
