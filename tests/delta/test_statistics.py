"""What the log says of a file, as any writer says it."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta import statistics as bounds

NAMES = st.sampled_from(["numRecords", "id", '"numRecords":1,'])


@given(
    rows=st.none() | st.integers(0, 2**40),
    values=st.dictionaries(NAMES, st.integers(0, 9)),
    is_first=st.booleans(),
    spaced=st.booleans(),
)
def test_the_number_of_rows_is_that_of_the_json(
    rows: int | None, values: dict[str, int], is_first: bool, spaced: bool
) -> None:
    said = {"numRecords": rows} if rows is not None else {}
    others = {"minValues": values, "nullCount": {}}
    stats = said | others if is_first else others | said
    text = json.dumps(stats, separators=None if spaced else (",", ":"))
    assert bounds.records({"stats": text}) == rows


@pytest.mark.parametrize("add", [{}, {"stats": None}, {"stats": ""}, {"stats": "{}"}])
def test_a_missing_number_of_rows_is_unknown(add: dict[str, str | None]) -> None:
    assert bounds.records(add) is None


def test_a_number_in_another_notation_is_read() -> None:
    assert bounds.records({"stats": '{"numRecords":3.0}'}) == Decimal(3)
