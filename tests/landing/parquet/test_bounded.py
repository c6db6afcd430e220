"""A file is read in bounded memory, whatever it holds and whatever its footer says."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.errors import FileTooLarge
from mirrorlake.landing.parquet import bounded, page_headers
from tests.landing.files import encoded, inspected, read

MIB = 1 << 20


def repeated(*texts: str, rows: int) -> bytes:
    """A file with a row group for each text, which is in every row of it and once in the file."""
    index = np.repeat(np.arange(len(texts), dtype=np.int32), rows)
    column = pa.DictionaryArray.from_arrays(index, pa.array(texts))
    return encoded({"v": column}, store_schema=False, row_group_size=rows)


def test_a_repeated_long_text_is_refused_before_it_is_decoded() -> None:
    content = repeated("x" * MIB, rows=100_000)  # 100 GB
    assert len(content) < 2 * MIB
    before = pa.default_memory_pool().max_memory()
    with pytest.raises(FileTooLarge, match="its rows take more than"):
        read(content, most=64 * MIB)
    assert pa.default_memory_pool().max_memory() - before < 2 * bounded.BLOCK_BYTES


def test_the_longest_text_of_all_row_groups_is_used() -> None:
    content = repeated("a", "x" * MIB, rows=5_000)
    with pytest.raises(FileTooLarge):
        read(content, most=64 * MIB)


def test_the_size_of_nulls_is_that_of_their_types() -> None:
    content = encoded(
        {"id": pa.nulls(1_000_000, pa.int64()), "v": pa.nulls(1_000_000, pa.string())}
    )
    assert len(content) < 10_000
    assert inspected(content).size == 12_000_000


@pytest.mark.parametrize("columns", [{"id": range(10)}, {"v": ["a"] * 10}, {"v": [None, "b"]}, {}])
def test_a_file_within_the_limit_is_read(columns: dict) -> None:
    table = pa.table(columns)
    content = encoded(table)
    found = bounded.read(pq.ParquetFile(io.BytesIO(content)), io.BytesIO(content), 10_000)
    assert found.to_pydict() == table.to_pydict()


@pytest.mark.parametrize("rows", [0, 1, bounded.BLOCK_ROWS, bounded.BLOCK_ROWS + 1])
def test_blocks_are_concatenated(rows: int) -> None:
    content = encoded({"id": pa.array(range(rows), pa.int64())})
    assert read(content).data["id"].to_pylist() == list(range(rows))


def test_long_texts_are_read_in_small_blocks() -> None:
    texts = [f"{n}" * 1_000 for n in range(10)] * 1_000
    content = encoded({"v": texts})
    assert read(content, most=100 * MIB).data["v"].to_pylist() == texts


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The columns whose dictionaries are looked at."""
    found: list[str] = []
    truly = bounded._longest_of

    def longest_of(metadata: pq.FileMetaData, handle: io.BytesIO, names: list[str]) -> int:
        found.extend(names)
        return truly(metadata, handle, names)

    monkeypatch.setattr(bounded, "_longest_of", longest_of)
    return found


def part_rows(content: bytes) -> int:
    """The rows of a piece of a file that may hold much."""
    selection = bounded._Selection.of(pq.read_metadata(io.BytesIO(content)))
    return bounded._block_rows(selection, io.BytesIO(content), 1)


class TestDictionaries:
    """Values are looked at only where the size of their dictionary does not say enough."""

    def content(self, **columns: list[str]) -> bytes:
        rows = 10_000
        return encoded({name: (texts * rows)[:rows] for name, texts in columns.items()})

    def test_small_dictionaries_are_not_read(self, decoded: list[str]) -> None:
        content = self.content(a=["x" * 1_000, "y"], b=["z", "zz"])
        assert part_rows(content) == bounded.BLOCK_ROWS
        assert decoded == []

    def test_the_longest_value_of_large_dictionaries_is_used(self, decoded: list[str]) -> None:
        content = self.content(a=["x" * 10_000, *map(str, range(99))], b=["z", "zz"])
        found = part_rows(content)
        assert decoded == ["a"]
        small = 2 * 4 + len("z" + "zz")  # of the other the whole dictionary, with its lengths
        assert found == bounded.BLOCK_BYTES // (10_000 + small)

    def test_large_dictionaries_of_short_values_are_read_in_large_blocks(
        self, decoded: list[str]
    ) -> None:
        content = self.content(a=[f"{n:05}" for n in range(1_000)])
        assert part_rows(content) == bounded.BLOCK_ROWS
        assert decoded == ["a"]

    def test_a_column_without_page_headers_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = self.content(a=["x", "y"])
        monkeypatch.setattr(bounded, "_begin", lambda _chunk: len(content) - 1)
        with pytest.raises(ValueError, match="page header at byte"):
            part_rows(content)


class TestPages:
    def test_a_page_that_is_too_large_is_refused_without_reading_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = encoded({"id": [1, 2, 3], "v": ["a", "x" * MIB, "b"]}, compression="zstd")
        monkeypatch.setattr(bounded, "PAGE_BYTES", MIB // 2)
        with pytest.raises(FileTooLarge, match="column v take 1,0"):
            read(content)

    def test_many_pages_of_a_large_column_are_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [f"{n}" * 1_000 for n in range(1_000, 3_000)]
        content = encoded(
            {"v": texts}, use_dictionary=False, data_page_size=4_096, write_batch_size=8
        )
        monkeypatch.setattr(bounded, "PAGE_BYTES", MIB)
        assert read(content).data["v"].to_pylist() == texts


@pytest.mark.parametrize("codec", ["gzip", "zstd", "brotli", "lz4"])
def test_a_page_that_is_small_by_the_footer_is_checked(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small it is packed: the size that the footer tells of a column binds nobody."""
    monkeypatch.setattr(bounded, "PAGE_BYTES", MIB)
    column = pa.array([bytes(2 * MIB)], pa.large_binary())
    content = encoded(
        {"v": column}, compression=codec, use_dictionary=False, write_statistics=False
    )
    truly = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0).total_uncompressed_size
    told = varint(truly)
    assert content.count(told) == 2  # of the column, and of the row group
    content = content.replace(told, varint(500_000, len(told)))
    assert inspected(content).size < MIB
    with pytest.raises(FileTooLarge, match="in one page"):
        read(content)


def varint(number: int, length: int = 0) -> bytes:
    """A number as Thrift writes it, in so many bytes at least."""
    rest, groups = 2 * number, []
    while rest or len(groups) < length:
        groups.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*groups[:-1], groups[-1] & 0x7F])


def test_only_the_columns_and_row_groups_of_a_share_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else many shares of a file would take as often as long as all of it."""
    file = encoded(pa.table({"id": range(40), "a": ["x"] * 40, "b": ["y"] * 40}), row_group_size=10)
    looked: set[tuple[str, int]] = set()
    truly = bounded._pages

    def pages(handle: io.BytesIO, chunk: Any) -> Iterator[page_headers.PageHeader]:
        looked.add((chunk.path_in_schema, chunk.data_page_offset))
        return truly(handle, chunk)

    monkeypatch.setattr(bounded, "_pages", pages)
    monkeypatch.setattr(bounded, "_RATIOS", {})
    parquet = pq.ParquetFile(io.BytesIO(file))
    share = bounded.Share(1, 4)
    (block,) = bounded.read_blocks(parquet, io.BytesIO(file), bounded.NO_LIMIT, share, ["id", "b"])
    assert block.to_pydict() == {"id": list(range(10, 20)), "b": ["y"] * 10}
    chunks = parquet.metadata.row_group(1)
    wanted = {(chunks.column(i).path_in_schema, chunks.column(i).data_page_offset) for i in (0, 2)}
    assert looked == wanted
    assert list(bounded.read_blocks(parquet, io.BytesIO(file), 1 << 40, bounded.Share(0, 9))) == []
    assert looked == wanted
