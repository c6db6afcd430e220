"""Rows that come piece by piece, as data files of a sensible size."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import append, rewrite
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema

SCHEMA = TableSchema(Schema.of([Column("id", types.LONG)]), ("id",), (None,))
MOST = 100


@pytest.fixture(autouse=True)
def few_rows_per_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (append, rewrite):
        monkeypatch.setattr(module, "ROWS_PER_FILE", MOST)


def files(folder: Path, pieces: Sequence[int]) -> list[int]:
    """The rows of each data file that pieces of so many rows become; all rows, in their order."""
    ends = [sum(pieces[: index + 1]) for index in range(len(pieces))]
    tables = [
        pa.table({"id": pa.array(range(end - count, end), pa.int64())})
        for count, end in zip(pieces, ends, strict=True)
    ]
    adds = [action["add"] for action in append.append(folder, SCHEMA, iter(tables), ["id"])]
    found = [pq.read_table(folder / add["path"], columns=["id"])["id"].to_pylist() for add in adds]
    assert [n for some in found for n in some] == list(range(sum(pieces)))
    assert [json.loads(add["stats"])["numRecords"] for add in adds] == [*map(len, found)]
    return [len(some) for some in found]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([30] * 7, [100, 100, 10]),
        ([250, 40, 20], [100, 100, 100, 10]),
        ([50, 50], [100]),
        ([99], [99]),
        ([0, 5], [5]),
        ([], []),
    ],
)
def test_all_files_except_the_last_are_full(
    tmp_path: Path, pieces: list[int], expected: list[int]
) -> None:
    assert files(tmp_path, pieces) == expected


def test_rows_that_take_much_memory_are_written_in_smaller_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append, "FILE_BYTES", 8 * 40)
    assert files(tmp_path, [30] * 5) == [60, 60, 30]
