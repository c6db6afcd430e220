"""Positions in texts as numbers."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.mirror.event_order.numbers import hexadecimal, hexadecimal_pairs
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


PAIR = st.from_regex("[0-9a-fA-F]{1,8}/[0-9a-fA-F]{1,8}", fullmatch=True)
OTHER = st.sampled_from(["", "/", "1/", "/1", "1", "1/2/3", "1//2", "123456789/1", "g/1", "1/2\n"])


@settings(max_examples=tries(100))
@given(st.lists(PAIR) | st.lists(st.none() | PAIR | OTHER, min_size=1))
@example(["1", "1/2/3"])
@example(["1/2/3", "1"])
@example(["/", "FFFFFFFF/ffffffff"])
def test_pairs_of_hexadecimal_numbers_are_parsed_if_all_texts_are_some(
    texts: list[str | None],
) -> None:
    column = pa.array(["f/f", *texts, "e/e"], pa.string()).slice(1, len(texts))
    found = hexadecimal_pairs(column)
    shaped = [re.fullmatch("([0-9a-fA-F]{1,8})/([0-9a-fA-F]{1,8})", text or "") for text in texts]
    if not texts or not all(shaped):
        assert found is None
        return
    assert found is not None
    for number, parsed in enumerate(found, start=1):
        assert parsed.known.all()
        assert parsed.value.tolist() == [int(one[number], 16) for one in shaped if one]
