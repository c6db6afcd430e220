"""A bit that changed in a data file is found, whichever way its rows are read."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.apply.task.errors import table_error
from mirrorlake.delta.lookup import key_hash, key_join, page_checksums
from mirrorlake.delta.lookup.key_lookup import live_rows
from mirrorlake.delta.lookup.page_checksums import DamagedPage, verify
from mirrorlake.delta.lookup.pages import NoPageIndex, PageLayout, layout
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_schema
from mirrorlake.model.table import Column, Schema
from tests.delta.handmade import HandmadeTable
from tests.delta.lookup.test_key_lookup import PLAIN, filled, found, keys_of
from tests.delta.lookup_ways import Way, forced

ROWS = [(1, "first"), (2, "second"), (3, "third"), (4, "fourth")]


def flipped(path: Path, value: bytes, bit: int = 1) -> Path:
    """The file with another bit in its first copy of a value: that of a page, not the footer's."""
    content = bytearray(path.read_bytes())
    content[content.index(value)] ^= bit
    path.write_bytes(content)
    return path


@pytest.fixture
def table(tmp_path: Path) -> HandmadeTable:
    return HandmadeTable(tmp_path / "t", PLAIN.schema)


@pytest.mark.parametrize("way", Way)
def test_a_flipped_bit_of_a_value_is_detected(table: HandmadeTable, way: Way) -> None:
    with forced(way):
        filled(table, PLAIN, [(ROWS, [])])
        flipped(table.path / table.files[0]["path"], b"third")
        with pytest.raises(OSError, match="checksum"):
            found(table, keys_of(PLAIN, [ROWS[2]]))


@pytest.mark.parametrize("way", Way)
def test_a_flipped_bit_of_a_key_is_detected(table: HandmadeTable, way: Way) -> None:
    with forced(way):
        filled(table, PLAIN, [(ROWS, [])])
        flipped(table.path / table.files[0]["path"], (3).to_bytes(8, "little"))
        with pytest.raises(OSError, match="checksum"):
            found(table, keys_of(PLAIN, [ROWS[2]]))


def test_the_rows_of_a_damaged_file_are_not_moved(table: HandmadeTable) -> None:
    filled(table, PLAIN, [(ROWS, [])])
    flipped(table.path / table.files[0]["path"], b"third")
    with pytest.raises(OSError, match="checksum"):
        live_rows(table.path, table.files[0], table.schema)


def test_the_error_of_the_table_names_file_and_column(table: HandmadeTable) -> None:
    filled(table, PLAIN, [(ROWS, [])])
    path = flipped(table.path / table.files[0]["path"], b"third")
    damaged = OSError("could not verify page integrity")
    told = table_error("t", str(table.path), None, table.files, damaged)
    assert told.code == "foreign_table"
    assert f"{path.name}: a page of column name does not match its checksum" in told.what


def test_only_the_named_columns_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(
        pa.table({"a": ["one"], "b": ["two"]}), path, compression="none", write_page_checksum=True
    )
    flipped(path, b"two")
    verify(path, ["a"])
    verify(path, but=["b"])
    with pytest.raises(DamagedPage, match="column b"):
        verify(path, ["a", "b"])
    with pytest.raises(DamagedPage, match="column b"):
        verify(path, but=["a"])


@pytest.mark.parametrize("value", [b"inner", b"element"])
def test_a_column_is_compared_with_all_of_its_members(tmp_path: Path, value: bytes) -> None:
    path = tmp_path / "f"
    nested = [{"s": {"t": "inner"}, "l": ["element"]}]
    rows = pa.table({"n": nested, "n2": ["two"], "m": ["one"]})
    pq.write_table(rows, path, compression="none", write_page_checksum=True)
    content = path.read_bytes()
    for other, change in ((["n2"], b"two"), (["n"], value)):
        path.write_bytes(content)
        flipped(path, change)
        verify(path, ["m", *({"n", "n2"} - set(other))])
        with pytest.raises(DamagedPage, match=f"column {other[0]}"):
            verify(path, other)


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_pages_are_found_by_the_page_index_as_by_their_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_dictionary: bool
) -> None:
    path, value = _indexed(tmp_path, has_dictionary=has_dictionary)
    monkeypatch.setattr(page_checksums, "_FEW", 1)
    with monkeypatch.context() as patched:
        if not has_dictionary:
            patched.setattr(page_checksums, "_pages", None)  # which is not needed
        by_index = _places(path, monkeypatch)
    monkeypatch.setattr(page_checksums, "layout", _no_layout)
    assert by_index == _places(path, monkeypatch)
    assert max(len(starts) for starts, _ends, _checksums in by_index) > 5
    monkeypatch.undo()
    flipped(path, value)
    with pytest.raises(DamagedPage, match="column text"):
        verify(path)


@pytest.mark.parametrize("change", ["at", "size"])
def test_a_wrong_page_index_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path, value = _indexed(tmp_path, has_dictionary=False)
    right = layout(path)
    groups = [[_moved(chunk, change) for chunk in group] for group in right.groups]
    monkeypatch.setattr(page_checksums, "layout", lambda _path: replace(right, groups=groups))
    verify(path)
    flipped(path, value)
    with pytest.raises(DamagedPage, match="column text"):
        verify(path)


def test_a_bit_that_a_disk_changes_later_is_detected(tmp_path: Path) -> None:
    path, value = _indexed(tmp_path, has_dictionary=False)
    verify(path)
    written = path.stat().st_mtime_ns
    flipped(path, value)
    os.utime(path, ns=(written, written))  # so that what is remembered of the file is used
    with pytest.raises(DamagedPage, match="column text"):
        verify(path)
    flipped(path, (value[0] ^ 1).to_bytes(1, "little") + value[1:])
    os.utime(path, ns=(written, written))
    verify(path)


def test_an_interruption_is_not_hidden_by_the_map_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _value = _indexed(tmp_path, has_dictionary=False)
    monkeypatch.setattr(page_checksums, "_FEW", 1)

    def interrupted(_content: np.ndarray, _at: np.ndarray, _ends: np.ndarray) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(page_checksums, "_with_checksums", interrupted)
    with pytest.raises(KeyboardInterrupt):
        verify(path)


def test_a_page_index_is_read_once_for_a_file_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _value = _indexed(tmp_path, has_dictionary=True)
    asked: list[Path] = []

    def asked_for(path: Path) -> PageLayout:
        asked.append(path)
        raise NoPageIndex(path)

    monkeypatch.setattr(page_checksums, "layout", asked_for)
    page_checksums._cache.clear()
    for _time in range(2):
        verify(path)
    assert asked == [path]


def _indexed(folder: Path, *, has_dictionary: bool) -> tuple[Path, bytes]:
    """A file of several row groups with a page index, and a value of its column `text`."""
    path, numbers = folder / "f", range(4000)
    rows = pa.table(
        {
            "n": pa.array(numbers),
            "text": [f"text {number // 40}" for number in numbers],
            "s": [{"a": None if number % 3 else str(number)} for number in numbers],
        }
    )
    pq.write_table(
        rows,
        path,
        row_group_size=3000,
        compression="none",
        use_dictionary=has_dictionary,
        data_page_size=512,
        write_batch_size=64,
        write_page_checksum=True,
        write_page_index=True,
    )
    return path, b"text 3"


def _places(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pages of each chunk of a file that is verified."""
    found: list[Any] = []
    is_intact = page_checksums._is_intact

    def noted(content: mmap.mmap, pages: np.ndarray) -> bool:
        found.append(pages.tolist())
        return is_intact(content, pages)

    page_checksums._cache.clear()
    with monkeypatch.context() as patched:
        patched.setattr(page_checksums, "_is_intact", noted)
        verify(path)
    return found


def _moved(chunk: Any, change: str) -> Any:
    """The chunk with another border between its first two pages."""
    at, size = chunk.at.copy(), chunk.size.copy()
    size[0] += 1
    if change == "at":
        at[1] += 1
        size[1] -= 1
    return replace(chunk, at=at, size=size)


def _no_layout(path: Path) -> PageLayout:
    raise NoPageIndex(path)


def test_pages_without_checksums_pass(tmp_path: Path) -> None:
    path = tmp_path / "f"
    pq.write_table(pa.table({"a": ["one"]}), path, compression="none")
    flipped(path, b"one")
    page_checksums.verify(path)


def test_a_file_without_rows_passes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), tmp_path / "f")
    verify(tmp_path / "f")


@pytest.mark.parametrize("damaged", range(3))
def test_each_of_several_files_is_verified(tmp_path: Path, damaged: int) -> None:
    paths = [str(tmp_path / str(number)) for number in range(3)]
    for path in paths:
        pq.write_table(pa.table({"a": ["one"]}), path, compression="none", write_page_checksum=True)
    with page_checksums.verifying(paths, 2):
        pass
    flipped(Path(paths[damaged]), b"one")
    with (
        pytest.raises(DamagedPage, match=f"{damaged}: a page of column a"),
        page_checksums.verifying(paths, 2),
    ):
        pass


@pytest.mark.parametrize(("threads", "is_read"), [(1, False), (2, True)])
def test_a_damaged_page_counts_more_than_what_its_reader_says(
    tmp_path: Path, threads: int, is_read: bool
) -> None:
    path, read = tmp_path / "f", []
    pq.write_table(pa.table({"a": ["one"]}), path, compression="none", write_page_checksum=True)
    flipped(path, b"one")

    def give_up() -> None:
        read.append(path)
        raise ValueError("what the bytes say cannot be")

    with pytest.raises(DamagedPage), page_checksums.verifying([str(path)], threads):
        give_up()
    assert bool(read) == is_read


def test_keys_are_not_hashed_from_a_damaged_page(tmp_path: Path) -> None:
    schema = TableSchema(Schema.of([Column("a", types.STRING)]), ("a",), (None,))
    path = tmp_path / "f"
    pq.write_table(pa.table({"a": ["one"]}), path, compression="none", write_page_checksum=True)
    assert key_hash.hash_file(str(path), schema, ["a"]) is not None
    flipped(path, b"one")
    with pytest.raises(DamagedPage, match="column a"):
        key_hash.hash_file(str(path), schema, ["a"])


def test_members_without_a_value_are_compared_too(tmp_path: Path) -> None:
    """Their pages tell whether the struct around them is NULL."""
    columns = [Column("id", types.LONG), Column("s", types.struct(a=types.STRING))]
    schema = TableSchema(Schema.of(columns), ("id", "s"), (None, None))
    path, rows = tmp_path / "f", [{"id": 1, "s": {"a": None}}, {"id": 2, "s": {"a": None}}]
    pq.write_table(
        pa.Table.from_pylist(rows, arrow_schema(schema.schema)),
        path,
        compression="none",
        write_page_checksum=True,
    )
    keys = pa.table({"id": [1]})
    assert key_join.rows([str(path)], schema, keys, 1)["s"].to_pylist() == [{"a": None}]
    chunk = pq.read_metadata(path).row_group(0).column(1)
    content = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    content[start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedPage, match=r"column s\.a"):
        key_join.rows([str(path)], schema, keys, 1)
