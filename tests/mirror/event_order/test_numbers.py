"""Positions in texts as numbers."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.event_order.numbers import hexadecimal
from tests.profiles import tries

DIGITS = st.text("0019afAF", max_size=18)


@settings(max_examples=tries(60))
@given(st.lists(st.none() | DIGITS) | st.lists(st.none() | DIGITS | st.text("0fg x-", max_size=3)))
@example(["0", "", None, "0" * 20, "f" * 16, "1" + "f" * 16, "0" + "f" * 16])
@example(["1", "0x1", "-1", " 1", "1\n", "g", ""])
def test_hexadecimal_digits_of_up_to_64_bits_are_a_number(texts: list[str | None]) -> None:
    found = hexadecimal(pa.array(texts, pa.string()))
    shaped = [bool(text and re.fullmatch("0*[0-9a-fA-F]{1,16}", text)) for text in texts]
    assert found.known.tolist() == shaped
    assert found.value.tolist() == [
        int(text or "", 16) if is_known else 0 for text, is_known in zip(texts, shaped, strict=True)
    ]
