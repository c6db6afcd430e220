"""Views of Delta tables in DuckDB, where other readers are not asked."""

from __future__ import annotations

import math
import shutil
from datetime import UTC, datetime
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pytest

from mirrorlake.delta.deletion_vectors import BrokenVector
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.table_view import create_view
from mirrorlake.delta.write import data_files
from mirrorlake.model import types
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import filled
from tests.delta.readers import rows_by_delta_rs, rows_by_view
from tests.histories import Shape

SHAPE = Shape.of(["id"], id=types.LONG, text=types.STRING)
ROWS = [(1, "a"), (2, "b"), (3, "c")]


def table_at(folder: Path, shape: Shape = SHAPE) -> HandmadeTable:
    return HandmadeTable(folder, shape.schema)


def test_a_table_without_files_has_its_columns(tmp_path: Path) -> None:
    table = table_at(tmp_path / "t")
    with duckdb.connect() as connection:
        create_view(connection, "v", table.path)
        assert connection.sql("from v").columns == ["id", "text"]
    assert rows_by_view(table.path) == []


@pytest.mark.parametrize("name", ["[a]", "a*", "a?b", "it's", "a%20b", "a\nb", "{a,b}", "region=1"])
def test_a_path_may_have_any_characters(tmp_path: Path, name: str) -> None:
    table = filled(table_at(tmp_path / name / "t"), SHAPE, [(ROWS, [1])])
    filled(table_at(tmp_path / "ab" / "t"), SHAPE, [(ROWS, [])])
    assert sorted(rows_by_view(table.path)) == [ROWS[0], ROWS[2]]


@pytest.mark.parametrize("column", ["file_row_number", "File_Row_Number", "filename", "t", "p"])
def test_a_column_may_have_any_name(tmp_path: Path, column: str) -> None:
    shape = Shape.of(["id"], id=types.LONG, **{column: types.STRING})
    table = filled(table_at(tmp_path / "t", shape), shape, [(ROWS, [1]), ([(4, None)], [])])
    assert sorted(rows_by_view(table.path)) == [ROWS[0], ROWS[2], (4, None)]


def test_files_of_a_copy_are_not_read(tmp_path: Path) -> None:
    table = filled(table_at(tmp_path / "r[1]" / "t"), SHAPE, [(ROWS, [1])])
    shutil.copytree(tmp_path / "r[1]", tmp_path / "r1")
    assert sorted(rows_by_view(table.path)) == [ROWS[0], ROWS[2]]


@pytest.mark.parametrize(
    "condition", ["x > 5", "isnan(x)", "x = 'nan'", "x = (select max(x) from v)"]
)
def test_nan_is_found_though_statistics_do_not_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, condition: str
) -> None:
    monkeypatch.setattr(data_files, "_has_nan", lambda _column: False)  # as delta-rs writes it
    shape = Shape.of(["id"], id=types.LONG, x=types.DOUBLE)
    rows = [(1, 1.0), (2, math.nan), (3, 2.0)]
    table = filled(table_at(tmp_path / "t", shape), shape, [(rows, [])])
    assert [number for number, _x in rows_by_view(table.path, condition)] == [2]


def test_timestamps_in_partition_columns_may_be_without_a_time_zone(tmp_path: Path) -> None:
    moments = [datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), None]
    rows = pa.table({"id": [1, 2], "at": pa.array(moments, pa.timestamp("us", "UTC"))})
    deltalake.write_deltalake(tmp_path, rows, partition_by=["at"])
    found = sorted(rows_by_view(tmp_path))
    assert found == sorted(rows_by_delta_rs(tmp_path)) == [(1, moments[0]), (2, None)]


def test_an_earlier_version_is_read(tmp_path: Path) -> None:
    table = filled(table_at(tmp_path / "t"), SHAPE, [(ROWS, [])])
    version = table.log.snapshot().version
    filled(table, SHAPE, [([(4, "d")], [])])
    with duckdb.connect() as connection:
        create_view(connection, "old", table.path, version)
        create_view(connection, "new", table.path)
        counts = "select (select count(*) from old), (select count(*) from new)"
        assert connection.sql(counts).fetchall() == [(3, 4)]


def test_a_missing_data_file_is_an_error(tmp_path: Path) -> None:
    table = filled(table_at(tmp_path / "t"), SHAPE, [(ROWS, []), (ROWS, [])])
    path_of(table.path, table.files[1]).unlink()
    with pytest.raises(duckdb.IOException):
        rows_by_view(table.path)


def test_a_damaged_deletion_vector_is_an_error(tmp_path: Path) -> None:
    table = filled(table_at(tmp_path / "t"), SHAPE, [(ROWS, [1])])
    vector = {**table.files[0]["deletionVector"], "cardinality": 2}
    table.commit([{"add": {**table.files[0], "deletionVector": vector}}])
    with pytest.raises(BrokenVector):
        rows_by_view(table.path)
