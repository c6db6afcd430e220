"""Which files are compacted: bounded in number and in what is dead, at a bounded cost."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.mirror.compaction.small_files import (
    CLASSES,
    DEAD,
    FANOUT,
    JOINED_ROWS,
    MOST_BYTES,
    MOST_ROWS,
    SMALLEST,
    choose,
    files_to_join,
)

BYTES_PER_ROW = 40
_numbers = itertools.count(1)


def add(rows: int, gone: int = 0, size: int | None = None) -> dict[str, Any]:
    action: dict[str, Any] = {
        "path": f"f{next(_numbers)}",
        "size": rows * BYTES_PER_ROW if size is None else size,
        "stats": json.dumps({"numRecords": rows}),
    }
    if gone:
        action["deletionVector"] = {"cardinality": gone}
    return action


def test_few_small_files_are_not_compacted() -> None:
    assert choose([add(100) for _ in range(SMALLEST - 1)]) == ()
    assert choose([add(100_000) for _ in range(FANOUT - 1)]) == ()


def test_enough_files_of_one_class_are_joined() -> None:
    for rows, count in ((100, SMALLEST), (100_000, FANOUT)):
        alike, large = [add(rows) for _ in range(count)], add(1_000_000)
        assert {f["path"] for f in choose([large, *alike])} == {f["path"] for f in alike}


def test_a_batch_joins_the_smallest_files_if_there_are_many_with_few_rows() -> None:
    small, larger = [add(100) for _ in range(FANOUT)], [add(100_000) for _ in range(FANOUT)]
    dying = add(1_000_000, gone=999_900)
    assert files_to_join([*larger, dying, *small]) == tuple(small)
    assert files_to_join([*larger, *small[1:]]) == ()
    assert files_to_join([*small, add(JOINED_ROWS, size=CLASSES[0] - 1)]) == ()


def test_the_size_class_depends_on_live_rows() -> None:
    shrunk = add(1_000_000, gone=999_900)
    assert shrunk in choose([shrunk, *(add(100) for _ in range(SMALLEST - 1))])


def test_a_large_file_with_many_deleted_rows_is_rewritten() -> None:
    files = [add(1_000_000, gone=int(1_000_000 * DEAD)), worst := add(1_000_000, gone=400_000)]
    assert choose(files) == (worst,)
    assert choose(files[:1]) == ()


def test_a_large_file_with_few_live_rows_is_not_small() -> None:
    assert choose([shrunk := add(1_000_000, gone=999_900), add(100)]) == (shrunk,)
    assert choose([add(30_000, gone=15_000, size=CLASSES[0]), add(100)]) != ()
    assert choose([add(30_000, gone=29_000, size=CLASSES[0] - 1), add(100)]) == ()


def test_files_too_large_for_one_step_are_not_compacted() -> None:
    assert choose([add(1_900_000, gone=900_000, size=MOST_BYTES * 4)]) == ()


def test_a_file_without_live_rows_is_removed() -> None:
    assert choose([add(10), gone := add(10, gone=10)]) == (gone,)


def test_a_file_without_statistics_is_not_compacted() -> None:
    foreign = [{"path": f"p{n}", "size": 10, "stats": None} for n in range(20)]
    assert choose(foreign) == ()


def test_full_files_are_not_joined_however_few_bytes_they_have() -> None:
    assert choose([add(2_000_000, size=9 << 20) for _ in range(FANOUT)]) == ()


def test_a_file_that_cannot_be_compacted_does_not_block_another() -> None:
    small, huge = add(100, gone=90), add(9_000_000, gone=6_000_000)
    assert choose([small, huge, worn := add(1_000_000, gone=400_000)]) == (worn,)


@given(
    files=st.lists(
        st.tuples(st.integers(0, 4_000_000), st.floats(0, 1), st.integers(1, 200)), max_size=40
    )
)
def test_without_new_batches_compaction_ends(files: list[tuple[int, float, int]]) -> None:
    """Every step leaves fewer files, or fewer rows that are gone."""
    table = [add(rows, int(rows * dead), rows * width) for rows, dead, width in files]
    for _ in range(len(table) + 1):
        chosen = choose(table)
        if not chosen:
            return
        left = sum(_live(file) for file in chosen)
        size = sum(file["size"] * _live(file) // max(_rows(file), 1) for file in chosen)
        table = [file for file in table if file not in chosen]
        table += [
            add(min(left - start, MOST_ROWS), size=size * min(left - start, MOST_ROWS) // left)
            for start in range(0, left, MOST_ROWS)
        ]
    raise AssertionError("it goes on and on")


@given(sizes=st.lists(st.integers(1, 3_000_000), min_size=FANOUT, max_size=60))
def test_one_step_is_bounded(sizes: list[int]) -> None:
    chosen = choose([add(rows) for rows in sizes])
    rows = sum(json.loads(file["stats"])["numRecords"] for file in chosen)
    assert len(chosen) == 1 or rows <= max(MOST_ROWS, *sizes)
    assert len(chosen) <= 1 or sum(file["size"] for file in chosen) <= MOST_BYTES


@given(
    batches=st.lists(st.tuples(st.integers(1, 50_000), st.floats(0, 0.2)), max_size=300),
    base=st.integers(0, 5_000_000),
)
def test_over_many_batches_files_stay_few_and_the_work_is_proportional(
    batches: list[tuple[int, float]], base: int
) -> None:
    """One step after each batch keeps up, and writes a row a few times only."""
    files = [add(min(base - start, 2_000_000)) for start in range(0, base, 2_000_000)]
    written = brought = 0
    for rows, deleted in batches:
        files = [_with_dead(file, rows * deleted, files) for file in files]
        files.append(add(rows))
        brought += rows
        chosen = choose(files)
        left = sum(_live(file) for file in chosen)
        files = [file for file in files if file not in chosen]
        if left:
            files.append(add(left))
        written += left
    for size_class in range(len(CLASSES)):
        alike = [f for f in files if _class(f) == size_class]
        assert len(alike) <= (FANOUT if size_class else SMALLEST) + 1
    dead = sum(_gone(f) for f in files)
    assert written <= 5 * brought + 2 * base + dead + 1_000_000 * len(CLASSES)


def _with_dead(file: dict[str, Any], deleted: float, files: list[dict[str, Any]]) -> dict[str, Any]:
    """The file after its share of a deletion that is spread over all rows."""
    total = sum(_live(f) for f in files) or 1
    gone = min(_gone(file) + int(deleted * _live(file) / total), _rows(file))
    return file | ({"deletionVector": {"cardinality": gone}} if gone else {})


def _rows(file: dict[str, Any]) -> int:
    return int(json.loads(file["stats"])["numRecords"])


def _gone(file: dict[str, Any]) -> int:
    return int(file.get("deletionVector", {}).get("cardinality", 0))


def _live(file: dict[str, Any]) -> int:
    return _rows(file) - _gone(file)


def _class(file: dict[str, Any]) -> int:
    return sum(_live(file) * BYTES_PER_ROW >= bound for bound in CLASSES)
