"""Values of Avro as values of unified types, for all rows at once."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.decode.unified import unified
from tests.profiles import tries


def encoded(number: int, more: int) -> bytes:
    """Two's complement, big-endian, in more bytes than necessary."""
    return number.to_bytes(number.bit_length() // 8 + 1 + more, "big", signed=True)


@settings(max_examples=tries(100))
@given(
    st.lists(st.none() | st.integers(-(10**18) + 1, 10**18 - 1)),
    st.sampled_from([18, 38, 40]),
    st.integers(0, 7),
)
@example([0, -1, 127, 128, -128, -129, 2**55, -(2**56), None], 18, 0)
@example([-1, 1], 40, 7)
@example([None], 18, 0)
def test_decimals_are_read_as_one_by_one(
    numbers: list[int | None], precision: int, more: int
) -> None:
    values = [None if number is None else encoded(number, more) for number in numbers]
    # Others lie before and after them in the same buffer.
    column = pa.array([b"\xff", *values, b"\xff"], pa.binary()).slice(1, len(values))
    found = unified(column, types.decimal(precision, 2)).to_pylist()
    assert found == [None if number is None else Decimal(number).scaleb(-2) for number in numbers]


@pytest.mark.parametrize("number", [10**4, -(10**4), 10**30])
def test_a_decimal_with_a_digit_too_many_is_refused(number: int) -> None:
    with pytest.raises((pa.ArrowException, ValueError)):
        unified(pa.array([encoded(1, 0), encoded(number, 0)]), types.decimal(4, 2))
