"""Values of events as those of table columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.apply.events.columns import EventTableColumns
from mirrorlake.events import types
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType

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
