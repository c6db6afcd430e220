"""When two values of a key are the same: the rule on which codes, hashes and searches agree."""

from __future__ import annotations

import struct
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.keys import comparable, same

NANS = [struct.unpack("<d", bits)[0] for bits in (b"\0" * 6 + b"\xf8\x7f", b"\1" * 6 + b"\xf8\xff")]
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-2, 2)),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("inf"), *NANS])),
    (pa.string(), st.text("aA\u00e9e\u0301\0 ", max_size=2)),
    (pa.binary(), st.binary(max_size=1)),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(20, 2), st.decimals(-1, 1, places=2)),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
]


def test_comparable_values_of_floats_are_their_bits() -> None:
    column = pa.array([1.0, None, -0.0], pa.float64())
    (one,) = struct.unpack("<q", struct.pack("<d", 1.0))
    assert comparable(column).to_pylist() == [one, None, -(2**63)]


def told_apart(value: Any) -> Any:
    """What two values have in common when they are the same key, and only then."""
    if isinstance(value, float):
        return "nan" if np.isnan(value) else struct.pack("<d", value)
    return value.encode() if isinstance(value, str) else value


@pytest.mark.clause("LZ-256", "LZ-257")
@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@given(data=st.data())
def test_values_are_equal_keys_exactly_if_type_and_bits_are_equal(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=8))
    left = pa.array([one for one, _ in pairs], kind)
    right = pa.array([other for _, other in pairs], kind)
    wanted = [told_apart(one) == told_apart(other) for one, other in pairs]
    assert same(left, right).tolist() == wanted
