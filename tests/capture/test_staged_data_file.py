"""The files of a load: written as data files of the table, with a checksum of their pages."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.capture.landing.files import staged_data_file
from mirrorlake.capture.landing.files.load_files import LoadFiles, groups
from mirrorlake.capture.landing.files.staged_data_file import StagedDataFile
from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.write import data_files
from mirrorlake.model import types
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.model.position import Lsn, Position
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.local import LocalStore

PATH = "t/_load-1.parquet"
SCHEMA = Schema.of([Column("id", types.LONG), Column("v", types.STRING), Column("x", types.DOUBLE)])
COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.string()), ("x", pa.float64())])
FOOTER = Footer("stream", FileKind.LOAD, "0/1:0", "0/1:0", complete=False, rows={"0": 2})


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups of a hundred rows."""
    monkeypatch.setattr(data_files, "ROW_GROUP", 100)


def batch(first: int, rows: int, text: str = "a") -> pa.RecordBatch:
    numbers = range(first, first + rows)
    columns = [list(numbers), [f"{text}{n % 7}" for n in numbers], [n / 4 for n in numbers]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, COLUMNS, strict=True)], schema=COLUMNS
    )


def written(store: LocalStore, batches: Sequence[pa.RecordBatch]) -> tuple[bytes, Footer]:
    files = LoadFiles(store, SCHEMA, Position(Lsn(1), 0), "stream", "default")
    files.write(PATH, batches)
    content = store.read(PATH)
    facts = pq.read_metadata(pa.BufferReader(content)).metadata
    footer = Footer.decode({k.decode(): v.decode() for k, v in facts.items()})
    assert footer is not None
    return content, footer


@pytest.mark.usefixtures("few_rows")
def test_the_checksum_is_that_of_all_pages(store: LocalStore) -> None:
    content, footer = written(store, [batch(0, 130), batch(130, 30), batch(160, 90)])
    found = pq.read_metadata(pa.BufferReader(content))
    last = found.row_group(found.num_row_groups - 1).column(2)
    begin = last.dictionary_page_offset or last.data_page_offset
    assert footer.data_file is not None
    assert footer.data_file.size == begin + last.total_compressed_size
    assert footer.data_file.crc32 == zlib.crc32(content[: footer.data_file.size])
    assert found.num_row_groups > 1
    assert pq.read_table(pa.BufferReader(content)).num_rows == 250


@pytest.mark.clause("LZ-133")
@pytest.mark.usefixtures("few_rows")
def test_pages_have_checksums_and_an_index(store: LocalStore) -> None:
    content, _footer = written(store, [batch(0, 250)])
    page_checksums.verify(store.root / PATH)
    group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    assert all(group.column(index).has_offset_index for index in range(3))


def test_a_long_text_is_in_a_page_of_its_own(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader refuses a page that is larger than the longest text may be."""
    monkeypatch.setattr(staged_data_file, "GROUP_BYTES", 1_000)
    content, _footer = written(store, [batch(0, 5), batch(5, 1, "x" * 2_000), batch(6, 5)])
    found = pq.read_metadata(pa.BufferReader(content))
    assert [found.row_group(n).num_rows for n in range(found.num_row_groups)] == [5, 1, 5]


def test_columns_that_may_have_a_nan_have_no_statistics(store: LocalStore) -> None:
    content, _footer = written(store, [batch(0, 9)])
    group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
    assert [group.column(index).is_stats_set for index in range(3)] == [True, True, False]


def test_a_file_without_rows_is_no_data_file(store: LocalStore) -> None:
    content, footer = written(store, [])
    assert footer.data_file is None
    assert pq.read_table(pa.BufferReader(content)).schema == COLUMNS


def test_a_file_that_is_dropped_is_gone(store: LocalStore) -> None:
    file = StagedDataFile(store, PATH, COLUMNS)
    file.write(batch(0, 10))
    file.drop()
    del file
    gc.collect()
    assert store.list("t").files == ()


@pytest.mark.usefixtures("few_rows")
def test_a_file_whose_rows_fail_is_gone(store: LocalStore) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0, 150)
        raise KeyboardInterrupt

    files = LoadFiles(store, SCHEMA, Position(Lsn(1), 0), "stream", "default")
    with pytest.raises(KeyboardInterrupt):
        files.write(PATH, failing())
    gc.collect()
    assert store.list("t").files == ()


class TestHugeTexts:
    """Statistics would hold copies of them, and a file has them from its first row or never."""

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(data_files, "HUGE", 1_000)

    def test_a_file_that_begins_without_them_ends_before_them(self) -> None:
        plain, huge = batch(0, 5), batch(5, 5, "x" * 1_000)
        found = [list(group) for group in groups(iter([plain, plain, huge, plain, huge]), 1 << 20)]
        assert found == [[plain, plain], [huge, plain, huge]]

    def test_a_file_that_begins_with_them_has_no_statistics_of_texts(
        self, store: LocalStore
    ) -> None:
        content, _footer = written(store, [batch(0, 5, "x" * 1_000), batch(5, 5)])
        group = pq.read_metadata(pa.BufferReader(content)).row_group(0)
        assert [group.column(index).is_stats_set for index in range(3)] == [True, False, False]
