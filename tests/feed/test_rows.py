"""Rows of the feed by their keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.feed.rows import of_key


@pytest.mark.parametrize(
    ("kind", "values", "text", "expected"),
    [
        (pa.int32(), [1, 2], "2", [2]),
        (pa.int32(), [1, 2], str(1 << 40), []),
        (pa.int16(), [1, -2], "1.5", []),
        (pa.decimal128(4, 2), [Decimal("1.50")], "1.5", [Decimal("1.50")]),
        (pa.decimal128(4, 2), [Decimal("1.50")], "123456", []),
        (pa.string(), ["x"], "x", ["x"]),
    ],
)
def test_a_number_for_which_a_column_has_no_room_is_in_no_row(
    kind: pa.DataType, values: list[Any], text: str, expected: list[Any]
) -> None:
    rows = pa.table({"id": pa.array(values, kind), "n": range(len(values))})
    assert of_key(rows, {"id": text})["id"].to_pylist() == expected


@pytest.mark.parametrize("text", ["x", "", "1e", "1_0"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        of_key(pa.table({"id": pa.array([1], pa.int32())}), {"id": text})
