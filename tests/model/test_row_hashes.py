"""Hashes of rows do not change, and do not depend on the type of equal values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.model.keys import KeyRange
from mirrorlake.model.row_hashes import HASHES, HashRange

ALL = HashRange(("a", "b"), ("", ""))


def hashes(a: pa.Array) -> list[int]:
    return ALL.of(pa.table({"a": a})).tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, None, -7], pa.int16()), pa.array([1, None, -7], pa.int64())),
        (
            pa.array([Decimal("1.5"), Decimal(0)], pa.decimal128(9, 2)),
            pa.array([Decimal("1.5"), Decimal(0)], pa.decimal128(20, 6)),
        ),
        (
            pa.array([Decimal(n) / 10 for n in range(99)], pa.decimal128(9, 2)),
            pa.array([Decimal(n) / 10 for n in range(99)], pa.decimal128(38, 18)),
        ),
        (pa.array([0.1], pa.float32()), pa.array([0.1], pa.float32()).cast(pa.float64())),
        (pa.array([-0.0, 0.0]), pa.array([0.0, -0.0])),
        (
            pa.array([date(2026, 1, 2)], pa.date32()),
            pa.array([datetime(2026, 1, 2)], pa.timestamp("us")),  # noqa: DTZ001  (no zone)
        ),
        (
            pa.array([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC")),
            pa.array([datetime(2026, 1, 2)], pa.timestamp("us")),  # noqa: DTZ001  (no zone)
        ),
    ],
    ids=lambda one: str(one.type),
)
def test_equal_values_of_other_types_have_the_same_hash(one: pa.Array, other: pa.Array) -> None:
    assert hashes(one) == hashes(other)


def test_hashes_stay_what_they_are() -> None:
    """They are recorded in landed files and in records of backfills."""
    rows = pa.table(
        {
            "b": ["x", None, "a longer text"],
            "a": pa.array([1, 2, None], pa.int64()),
            "c": [b"", b"", b""],
        }
    )
    assert ALL.of(rows).tolist() == [9, 14, 240]


def test_columns_are_found_in_any_case_and_order_and_may_be_missing() -> None:
    rows = pa.table({"a": [1, 2], "b": pa.nulls(2, pa.string())})
    assert ALL.of(rows).tolist() == ALL.of(pa.table({"A": [1, 2]})).tolist()
    both = pa.table({"a": [1, 2], "b": [3, 4]})
    assert ALL.of(both).tolist() == ALL.of(both.select(["b", "a"])).tolist()
    assert ALL.of(both).tolist() != ALL.of(both.rename_columns(["b", "a"])).tolist()


def test_ranges_divide_the_rows_about_evenly() -> None:
    rows = pa.table({"a": np.arange(100_000)})
    counts = np.bincount(ALL.of(rows), minlength=HASHES)
    assert counts.min() > 250
    low, high = HashRange(ALL.columns, ALL.kinds, 0, 64), HashRange(ALL.columns, ALL.kinds, 64)
    assert (low.contains(rows) != high.contains(rows)).all()


def test_a_range_of_hashes_survives_its_record() -> None:
    some = KeyRange(hashes=HashRange(("a", "é"), ("integer", "string"), 3, 9))
    assert KeyRange.parse(some.as_record()) == some
    assert KeyRange().behind(some) == KeyRange(
        hashes=HashRange(("a", "é"), ("integer", "string"), 9)
    )
    with pytest.raises(ValueError, match="not a range of hashes"):
        HashRange.parse({"columns": [], "kinds": [], "first": 3, "end": 257})
