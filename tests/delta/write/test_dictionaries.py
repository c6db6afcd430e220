"""Columns of change files whose values hardly repeat have no dictionary."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.delta.write import compression
from mirrorlake.delta.write.data_files import write_changes, write_data
from mirrorlake.model import types
from tests.delta.readers import feed_by_delta_rs, feed_of
from tests.feed.handmade_feed import INSERT, UPDATE, FeedTable
from tests.histories import Shape

FEW = compression.DICTIONARY_ROWS.start


def with_dictionary(path: Path) -> set[str]:
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    return {column.path_in_schema for column in columns if column.has_dictionary_page}


@pytest.mark.parametrize("rows", [FEW, 3_000])
def test_only_values_that_repeat_have_a_dictionary(tmp_path: Path, rows: int) -> None:
    columns = {
        "a.b": pa.array(range(rows)),
        "é": pa.array(["x", "y"] * (rows // 2)),
        "s": pa.array([{"x": number} for number in range(rows)]),
        "none": pa.nulls(rows, pa.string()),
        "_change_type": pa.array(["insert"] * rows),
    }
    table = pa.table(columns)
    changes = tmp_path / write_changes(tmp_path, table)["path"]
    assert with_dictionary(changes) == {"é", "s.x", "none", "_change_type"}
    assert pq.read_table(changes).equals(table)
    data = tmp_path / write_data(tmp_path, table, [])["path"]
    assert with_dictionary(data) == {"a.b", "é", "s.x", "none", "_change_type"}


@pytest.mark.parametrize("rows", [1, FEW - 1, compression.MIN_ROWS])
def test_other_files_are_not_looked_at(rows: int) -> None:
    assert compression.with_dictionary(pa.table({"id": range(rows)}), ["id"]) is True


def test_long_values_are_not_copied_to_count_them() -> None:
    texts = [f"{number}{'x' * (1 << 14)}" for number in range(100)]
    assert compression.with_dictionary(pa.table({"text": texts}), ["text"]) == ["text"]


def test_other_readers_see_the_changes(tmp_path: Path) -> None:
    table = FeedTable(tmp_path, Shape.of(["id"], id=types.LONG, text=types.STRING).schema)
    table.change(*((INSERT, (key, f"a {key}")) for key in range(200)))
    table.change(*((UPDATE, (key, f"b {key}")) for key in range(200)))
    found = feed_by_delta_rs(tmp_path)
    assert found == feed_of(tmp_path)
    assert found[2].total() == 400
