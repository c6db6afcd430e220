"""Texts as decimals, where Arrow alone would be wrong."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.arrow import decimals

TYPE = pa.decimal128(38, 2)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5", "1.50"),
        ("-1.5E+3", "-1500.00"),
        ("0e-400000000", "0.00"),
        ("0." + "0" * 60, "0.00"),
        ("1." + "0" * 41, "1.00"),
        ("+.5", "0.50"),
        ("123456789012345678901234567890123456.78", "123456789012345678901234567890123456.78"),
    ],
)
def test_a_decimal_is_exact(text: str, value: str) -> None:
    assert decimals(pa.array([text, None]), TYPE).to_pylist() == [Decimal(value), None]


@pytest.mark.parametrize(
    "text",
    [
        "5e-41",
        "0." + "0" * 40 + "5",
        "1e-400000000",
        "1e400000000",
        "1.005",
        "1e37",
        "NaN",
        "x",
        "",
        "1_0",
        " 1",
        "\N{FULLWIDTH DIGIT ONE}",
        "-",
        ".",
    ],
)
def test_a_value_that_does_not_fit_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"(?i)decimal"):
        decimals(pa.array([text]), TYPE)


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=2).map(str), max_size=5))
def test_decimals_of_the_scale_are_parsed_exactly(texts: list[str]) -> None:
    fitting = [text for text in texts if len(text) < 36]
    expected = [Decimal(text) for text in fitting]
    assert decimals(pa.array(fitting, pa.string()), TYPE).to_pylist() == expected
