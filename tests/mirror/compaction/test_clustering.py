"""Which files are clustered by key: those whose bounds overlap much, and none without end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.mirror.compaction.clustering import FILE_ROWS, LEAST, STEP_ROWS, Clustering, choose
from mirrorlake.mirror.compaction.small_files import CLASSES, MOST_ROWS

Bounds = tuple[Any, Any]
LARGE = 2 * CLASSES[0]


def file_of(
    bounds: Bounds, rows: int = 1_000, size: int = LARGE, partition: str = "", gone: int = 0
) -> dict[str, Any]:
    low, high = bounds
    stats = {"numRecords": rows, "minValues": {"id": low}, "maxValues": {"id": high}}
    action = {
        "path": f"{partition}/{low}-{high}",
        "size": size,
        "partitionValues": {"part": partition} if partition else {},
        "stats": json.dumps(stats, default=str),
    }
    return action | ({"deletionVector": {"cardinality": gone}} if gone else {})


def files_of(*bounds: Bounds, **facts: Any) -> list[dict[str, Any]]:
    return [file_of(each, **facts) for each in bounds]


def test_files_with_the_same_bounds_are_clustered() -> None:
    files = files_of(*[(0, 1_000)] * LEAST)
    step = choose(files, "id")
    assert step is not None
    assert (list(step.files), step.rows, step.into) == (files, LEAST * 1_000, 1)
    assert (step.depth, step.overlap) == (LEAST, LEAST)
    assert choose(files[1:], "id") is None


@pytest.mark.parametrize(
    "files",
    [
        files_of(*[(number, number + 1) for number in range(100)]),
        files_of(*[(7, 7)] * 20),
        files_of(*[(0, 9)] * 20, size=CLASSES[0] - 1),
        files_of(*[(0, 9)] * 20, rows=MOST_ROWS + 1),
        files_of(*[(0, 9)] * 20, rows=10, gone=10),
        files_of(*[(None, 9)] * 20),
        files_of(*[(True, False)] * 20),
        files_of(*[(f"{'a' * 32}{number}", "a" * 32 + "z") for number in range(20)]),
        files_of(*[(0, 9)] * 20, *[("0", "9")] * 20),
        [{"path": "x", "size": LARGE, "partitionValues": {}}] * 20,
        [file_of((0, 9), partition=str(number)) for number in range(20)],
        files_of((0, 9), (0, 9), (8, 20), (8, 20), (3, 5), (12, 15)),
    ],
    ids=[
        "disjoint", "one key", "small", "large", "deleted", "half known", "booleans", "alike",
        "two kinds", "unknown", "partitions", "little in common",
    ],
)  # fmt: skip
def test_others_stay(files: list[dict[str, Any]]) -> None:
    assert choose(files, "id") is None


def test_random_keys_overlap_in_all_files_although_their_bounds_differ() -> None:
    files = files_of(*[(f"key-00{number}f", f"key-ff{9 - number}a") for number in range(LEAST)])
    step = choose(files, "id")
    assert step is not None
    assert round(step.depth, 1) == LEAST


def test_a_step_is_limited_and_its_files_are_not_joined_again() -> None:
    files = files_of(*[("0", "f")] * 20, rows=MOST_ROWS // 2, size=4 * CLASSES[0])
    step = choose(files, "id")
    assert step is not None
    assert step.rows == STEP_ROWS
    assert step.into == STEP_ROWS // FILE_ROWS
    assert MOST_ROWS // 2 <= step.rows // step.into <= MOST_ROWS


def test_what_was_clustered_is_left_until_enough_lies_above_it() -> None:
    below = files_of(*[(number * 100, number * 100 + 99) for number in range(50)])
    wide = files_of(*[(0, 4_999)] * (LEAST + 1))
    assert choose([*below, *wide[:1]], "id") is None
    step = choose([*below, *wide], "id")
    assert step is not None
    assert all(add in step.files for add in wide)


def clustered(files: Sequence[dict[str, Any]], step: Clustering) -> list[dict[str, Any]]:
    """The files after a step, if rows are spread evenly within bounds."""
    bounds = [json.loads(add["stats"]) for add in step.files]
    low = min(each["minValues"]["id"] for each in bounds)
    high = max(each["maxValues"]["id"] for each in bounds)
    ends = [low + (high - low) * part // (2 * step.into) for part in range(2 * step.into + 1)]
    new = files_of(*pairwise(ends), rows=step.rows // (2 * step.into) or 1)
    return [add for add in files if add not in step.files] + new


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(1, MOST_ROWS)), max_size=60
    )
)
def test_it_comes_to_an_end(ranges: list[tuple[int, int, int]]) -> None:
    files = [
        file_of((low, low + width), rows=rows) | {"path": str(number)}
        for number, (low, width, rows) in enumerate(ranges)
    ]
    for _step in range(len(files) + 1):
        step = choose(files, "id")
        if step is None:
            return
        assert step.rows <= STEP_ROWS
        files = clustered(files, step)
    raise AssertionError("files are clustered again and again")
