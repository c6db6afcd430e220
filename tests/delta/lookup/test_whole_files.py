"""A last column that several small files have alike is decoded once, and each file has its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.delta.lookup.whole_files import MOST_ALIKE, WholeFileReader
from mirrorlake.delta.schema import TableSchema
from mirrorlake.feed.reading_ahead import FileRead, read_alone
from mirrorlake.model import types
from mirrorlake.model.table import Column, Schema

KIND = "_change_type"
SCHEMA = Schema.of([Column("id", types.LONG), Column(KIND, types.STRING)])
TABLE = TableSchema(SCHEMA, ("id", KIND), (None, None))


@pytest.fixture
def reader() -> WholeFileReader:
    return WholeFileReader(TABLE, KIND)


def written(path: Path, kinds: list[Any], options: dict[str, Any] | None = None) -> Path:
    table = pa.table({"id": range(len(kinds)), KIND: pa.array(kinds, pa.string())})
    pq.write_table(table, path, write_page_checksum=True, **options or {})
    return path


def read(reader: WholeFileReader, path: Path) -> pa.Table:
    return read_alone(FileRead(0, 0, partial(reader.read, str(path), is_small=True)))


def test_the_same_column_is_decoded_once(tmp_path: Path, reader: WholeFileReader) -> None:
    paths = [written(tmp_path / f"{n}", ["insert"] * 9 + ["delete"] * 2) for n in range(3)]
    first, *others = [read(reader, path) for path in paths]
    start = first[KIND].chunk(0).buffers()[2].address
    assert [rows[KIND].chunk(0).buffers()[2].address for rows in others] == [start, start]
    assert all(rows.equals(first) for rows in others)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "none"},
        {"use_dictionary": False},
        {"data_page_version": "2.0"},
        {"row_group_size": 3},
    ],
    ids=repr,
)
def test_each_file_has_its_own_values(
    tmp_path: Path, reader: WholeFileReader, options: dict[str, Any]
) -> None:
    """Of the same number of rows, of others, in another order, NULL, and stored otherwise."""
    columns: list[list[Any]] = [
        ["insert"] * 5,
        ["delete"] * 5,
        ["insert"] * 6,
        ["insert"] * 2 + ["delete"] * 3,
        ["delete"] * 3 + ["insert"] * 2,
        ["insert"] * 4 + [None],
        [None] * 5,
        [],
        *([str(number)] for number in range(MOST_ALIKE + 1)),
    ]
    for number, kinds in enumerate(columns * 2):
        some = options if number % 3 else {}
        path = written(tmp_path / str(number), kinds, some)
        assert read(reader, path).to_pydict() == {"id": list(range(len(kinds))), KIND: kinds}


def test_files_with_other_columns_in_between(tmp_path: Path, reader: WholeFileReader) -> None:
    """Also with a column of this name inside another one, which is stored alike."""
    inside = pa.array([{KIND: "insert"}] * 2, pa.struct({KIND: pa.string()}))
    tables = [
        {"id": [1, 2], KIND: ["insert"] * 2},
        {"id": [1, 2], "x": inside},
        {KIND: ["insert"] * 2, "id": [1, 2]},
        {KIND: ["insert"] * 2},
        {"id": [1, 2]},
        {"id": pa.array([1, 2], pa.int32()), KIND: ["insert"] * 2},
    ]
    for number, columns in enumerate(tables * 2):
        path = tmp_path / str(number)
        pq.write_table(pa.table(columns), path)
        assert read(reader, path).to_pydict() == {
            "id": [1, 2] if "id" in columns else [None] * 2,
            KIND: ["insert"] * 2 if KIND in columns else [None] * 2,
        }


def test_damage_is_detected_although_the_column_is_known(
    tmp_path: Path, reader: WholeFileReader
) -> None:
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    whole = written(tmp_path / "1", ["insert"] * 9, options)
    assert read(reader, whole).num_rows == 9
    damaged = tmp_path / "2"
    damaged.write_bytes(whole.read_bytes().replace(b"insert", b"delete", 1))
    with pytest.raises(OSError, match="CRC"):
        read(reader, damaged)
