"""What the log says of a file, as any writer says it."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.delta import statistics as bounds
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema

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


BY_ID = TableSchema(Schema.of([Column("id", types.LONG)]), ("id",), (None,))
RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=6)


def file_of(low: int | None, high: int | None) -> dict[str, str]:
    ends = {"minValues": {"id": low}, "maxValues": {"id": high}}
    return {"stats": json.dumps({"numRecords": 1} | ends)}


@given(keys=st.sets(st.integers(-5, 60), min_size=1), ranges=RANGES)
def test_the_keys_that_files_can_contain_are_possible(
    keys: set[int], ranges: list[tuple[int, int]]
) -> None:
    ids = sorted(keys, key=lambda key: key % 7)
    files = [file_of(low, low + length) for low, length in ranges]
    found = bounds.possible_keys(files, BY_ID, pa.table({"id": pa.array(ids, pa.int64())}))
    expected = [
        number
        for number, key in enumerate(ids)
        if any(low <= key <= low + length for low, length in ranges)
    ]
    if len(expected) < bounds.MOST_KEYS * len(ids):
        assert found is not None
        assert found.tolist() == expected
    else:
        assert found is None


@pytest.mark.parametrize(
    ("files", "keys"),
    [
        ([file_of(1, 2), file_of(None, 4)], pa.array([1, 9, 9, 9], pa.int64())),
        ([file_of(1, 2), {}], pa.array([1, 9, 9, 9], pa.int64())),
        ([file_of(1, 2)], pa.array([1, None, 9, 9], pa.int64())),
        ([file_of(1, 2)], pa.array(["1", "9"])),
        ([file_of(10 * n, 10 * n) for n in range(99)], pa.array([1, 9, 9, 9], pa.int64())),
    ],
)
def test_which_keys_are_possible_may_be_unknown(
    files: list[dict[str, str]], keys: pa.Array
) -> None:
    assert bounds.possible_keys(files, BY_ID, pa.table({"id": keys})) is None
