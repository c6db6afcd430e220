"""Rows of the feed by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import UsageError
from mirrorlake.feed.rows import in_key_order, key_values, of_key, row_changes

PRE, POST = "update_preimage", "update_postimage"
NAN = float("nan")


def changes(*rows: tuple[Any, str, str]) -> pa.Table:
    """Rows with a key, a name and a change type."""
    ids, names, kinds = zip(*rows, strict=True)
    return pa.table({"id": ids, "name": names, "_change_type": kinds})


def pairs_of(rows: pa.Table) -> list[Sequence[str | None]]:
    return [
        [None if one is None else one["name"] for one in both] for both in row_changes(rows, ["id"])
    ]


@pytest.mark.clause("CF-144", "CF-199")
def test_the_images_of_two_rows_are_no_update_of_one() -> None:
    moved = changes((1, "a", PRE), (5, "a2", POST), (3, "b", PRE), (2, "b2", POST))
    assert pairs_of(moved) == [["a", None], [None, "b2"], ["b", None], [None, "a2"]]
    same = changes((2, "b2", POST), (1, "a", PRE), (2, "b", PRE), (1, "a2", POST))
    assert pairs_of(same) == [["a", "a2"], ["b", "b2"]]


@pytest.mark.clause("CF-178", "LZ-256")
def test_both_images_of_an_update_are_adjacent_for_keys_that_sort_alike() -> None:
    zeros = changes((-0.0, "n", PRE), (0.0, "p", PRE), (0.0, "p2", POST), (-0.0, "n2", POST))
    assert in_key_order(zeros, ["id"])["name"].to_pylist() == ["n", "n2", "p", "p2"]
    assert pairs_of(zeros) == [["n", "n2"], ["p", "p2"]]


@pytest.mark.clause("LZ-256", "LZ-257")
@pytest.mark.parametrize(
    ("text", "expected"), [("NaN", ["n"]), ("0.0", ["p"]), ("-0.0", ["m"]), ("1.5", ["o"])]
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_floating_point_is_found_as_a_key(
    text: str, expected: list[str], kind: pa.DataType
) -> None:
    ids = pa.array([NAN, 0.0, -0.0, 1.5, None], kind)
    rows = pa.table({"id": ids, "name": ["n", "p", "m", "o", "none"]})
    assert of_key(rows, {"id": text})["name"].to_pylist() == expected


@pytest.mark.parametrize(
    "text", ["2026-01-01 00:00:00", "2026-01-01", "2026-01-01T00:00Z", "2026-01-01 02:00:00+02:00"]
)
def test_a_timestamp_without_an_offset_is_in_utc(text: str) -> None:
    moments = pa.array([datetime(2026, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "UTC"))
    assert of_key(pa.table({"id": moments}), {"id": text}).num_rows == 1


def test_a_text_that_looks_like_a_column_is_written_after_the_column() -> None:
    assert key_values(["id=5"], ["id"], ["id"]) == {"id": "5"}
    assert key_values(["id=id=5"], ["id"], ["id"]) == {"id": "id=5"}
    assert key_values(["name=5"], ["id"], ["id", "name"]) == {"id": "name=5"}


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
    with pytest.raises(UsageError):
        of_key(pa.table({"id": pa.array([1], pa.int32())}), {"id": text})


@pytest.mark.parametrize(
    ("kind", "text", "word"),
    [
        (pa.int64(), "x", "whole number"),
        (pa.decimal128(4, 2), "1,5", "decimal number"),
        (pa.float64(), "one", "floating point number"),
        (pa.bool_(), "maybe", "boolean"),
        (pa.date32(), "2026-02-30", "date"),
        (pa.timestamp("us", "UTC"), "2026-02-30 10:00", "timestamp"),
        (pa.timestamp("us"), "2026-02-03 10:00:00Z", "timestamp without time zone"),
    ],
)
def test_what_is_no_value_of_its_column_is_told_in_our_words(
    kind: pa.DataType, text: str, word: str
) -> None:
    with pytest.raises(UsageError) as caught:
        of_key(pa.table({"at": pa.array([None], kind)}), {"at": text})
    assert caught.value.what == f"{text!r} is no value of the column at, which is a {word}"
    assert caught.value.hint.startswith("Write ")


def test_rows_are_not_found_by_a_list() -> None:
    with pytest.raises(UsageError, match="rows cannot be found by the column tags"):
        of_key(pa.table({"tags": pa.array([[1]])}), {"tags": "1"})
