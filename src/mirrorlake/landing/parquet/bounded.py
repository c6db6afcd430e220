"""Reading Parquet files in bounded memory.

A small file may contain very much data, which its footer need not show: with a dictionary or with
DELTA_BYTE_ARRAY, a repeated long text is stored once in the file, but once per row in memory. So a
file is decoded in blocks whose number of rows depends on its longest values.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.landing.parquet import block_rows, footers, page_headers
from mirrorlake.landing.parquet.block_rows import ColumnPages

NO_LIMIT = sys.maxsize

FILE_BYTES = 4 << 30
"""Default maximum size in memory of the rows of one landed file."""

BLOCK_ROWS = 65_536
"""Rows that are decoded before their size is checked; larger blocks are not faster."""

BLOCK_BYTES = 128 << 20
"""Maximum size of a block if all of its values are as long as the longest one. Arrow takes several
times as much while it decodes a block."""

_FIXED_BYTES = 64 << 20
"""Maximum size of a block without its texts; every block takes this size."""

PAGE_BYTES = 256 << 20
"""Maximum size of one page, and so of one value: it is in memory several times while it is read."""

_WIDTHS = {
    "BOOLEAN": 1,
    "INT32": 4,
    "INT64": 8,
    "INT96": 8,
    "FLOAT": 4,
    "DOUBLE": 8,
    "BYTE_ARRAY": 4,
}
"""Bytes of a value in memory, for texts without their content."""

_RATIOS = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 256, "GZIP": 1_040, "ZSTD": 1 << 15}
"""Maximum ratio of the size of a page to its compressed size; unknown for other codecs."""

SPLIT = "Split it into several files, or raise mirror.file_bytes if there is enough memory."


class TooLarge(ValueError):
    """The rows take more memory than allowed. hint: what a person can do."""

    def __init__(self, what: str, hint: str = SPLIT) -> None:
        super().__init__(what)
        self.hint = hint


class TooWide(ValueError):
    """A single row takes more memory than the caller allows."""


def opened(handle: BinaryIO, size: int, *, pre_buffer: bool = False) -> pq.ParquetFile:
    """Open a file of `size` bytes and read its footer. Raises TooLarge and errors of Arrow."""
    try:
        footers.check(handle, size)
    except footers.LargeFooter as error:
        raise TooLarge(str(error), "Split it into several files, in larger row groups.") from None
    handle.seek(0)
    return pq.ParquetFile(
        handle,
        coerce_int96_timestamp_unit="us",  # INT96 has years that nanoseconds cannot represent
        pre_buffer=pre_buffer,
        page_checksum_verification=True,
        thrift_container_size_limit=footers.CONTAINER,
    )


def size(metadata: pq.FileMetaData, arrow: pa.Schema) -> int:
    """The size of the rows in memory according to the footer, in bytes.

    This is the larger of the uncompressed size of the columns and the number of rows times their
    minimum width, because a repeated value takes almost no space in the file.
    """
    in_file = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    width = sum(_width(field.type) for field in arrow)
    return int(max(in_file, metadata.num_rows * width // 8))


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a file that is read: number `index` of `count` equal runs of its row groups.

    All shares of a file in order are the whole file; a share may be empty.
    """

    index: int = 0
    count: int = 1

    def of(self, groups: int) -> range:
        return range(self.index * groups // self.count, (self.index + 1) * groups // self.count)


WHOLE = Share()


@dataclass(frozen=True, slots=True)
class _Selection:
    """The part of a file to read: row groups, and names of columns (None for all)."""

    metadata: pq.FileMetaData
    groups: Sequence[int]
    columns: Sequence[str] | None = None

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> _Selection:
        """The whole file."""
        return cls(metadata, range(metadata.num_row_groups))

    def chunks(self) -> Iterator[Any]:
        """The footer's metadata of each column in each row group."""
        for group in map(self.metadata.row_group, self.groups):
            chunks = (group.column(j) for j in range(group.num_columns))
            yield from (
                chunk
                for chunk in chunks
                if self.columns is None or chunk.path_in_schema in self.columns
            )

    def rows(self) -> int:
        return sum(self.metadata.row_group(group).num_rows for group in self.groups)

    def pages(self, handle: BinaryIO) -> Iterator[ColumnPages]:
        """The pages of each column in each row group. Raises NoPage."""
        first = 0
        for number in self.groups:
            rows = self.metadata.row_group(number).num_rows
            for chunk in replace(self, groups=[number]).chunks():
                yield ColumnPages(first, rows, list(_pages(handle, chunk)))
            first += rows

    def width(self) -> int:
        """Minimum size of a row in memory, in bytes; a NULL takes as much as a value."""
        schema = self.metadata.schema
        columns = [schema.column(i) for i in range(self.metadata.num_columns)]
        return sum(
            _WIDTHS.get(column.physical_type, column.length)
            for column in columns
            if self.columns is None or column.path in self.columns
        )

    def size(self) -> int:
        """The uncompressed size in bytes, according to the footer."""
        if self.columns is None:
            return sum(self.metadata.row_group(group).total_byte_size for group in self.groups)
        return sum(chunk.total_uncompressed_size for chunk in self.chunks())


def read(parquet: pq.ParquetFile, handle: BinaryIO, most: int) -> pa.Table:
    """The rows of an opened file.

    Raises TooLarge if they take more than `most` bytes, ValueError if their number differs from the
    footer, and errors of Arrow.
    """
    found = list(read_blocks(parquet, handle, most))
    return pa.Table.from_batches(found, found[0].schema if found else parquet.schema_arrow)


def read_blocks(
    parquet: pq.ParquetFile,
    handle: BinaryIO,
    most: int,
    share: Share = WHOLE,
    columns: list[str] | None = None,
    widest: int = NO_LIMIT,
) -> Iterator[pa.RecordBatch]:
    """The rows of a share of an opened file in blocks of bounded size.

    columns: the columns to read, None for all; widest: bytes that the pages of a single row may
    take. Raises TooLarge if the blocks so far, or a page, take more than `most` bytes, TooWide,
    ValueError if the number of rows differs from the footer, and errors of Arrow.
    """
    metadata = parquet.metadata
    groups = share.of(metadata.num_row_groups)
    selection = _Selection(metadata, groups, columns)
    expected = selection.rows()
    if share == WHOLE:
        expected = metadata.num_rows
    elif (total := _Selection.of(metadata).rows()) != metadata.num_rows:
        raise ValueError(f"it has {total} rows, but its footer says {metadata.num_rows}")
    check_columns(metadata, handle, groups)
    check_pages(selection, handle)
    taken = rows = 0
    try:
        size = _block_rows(selection, handle, min(most, BLOCK_BYTES), widest)
    except TooWide:
        if selection.size() > most:
            raise TooLarge(f"its rows take more than {most:,} bytes in memory") from None
        raise
    # Passing a few rows to a thread and waiting for it takes longer than decoding them.
    several = expected > BLOCK_ROWS
    for block in parquet.iter_batches(
        size, row_groups=list(groups), columns=columns, use_threads=several
    ):
        taken += block.nbytes
        if taken > most:
            raise TooLarge(f"its rows take more than {most:,} bytes in memory")
        rows += block.num_rows
        yield block
    if rows != expected:
        raise ValueError(f"it has {rows} rows, but its footer says {expected}")


def stream(parquet: pq.ParquetFile, handle: BinaryIO) -> Iterator[pa.RecordBatch]:
    """The rows of an opened file in blocks of bounded size. Raises errors of Arrow."""
    check_columns(parquet.metadata, handle)
    selection = _Selection.of(parquet.metadata)
    yield from parquet.iter_batches(_block_rows(selection, handle, BLOCK_BYTES))


def check_columns(
    metadata: pq.FileMetaData, handle: BinaryIO, checked: Sequence[int] | None = None
) -> None:
    """Check that the footer's metadata of the columns can be accessed.

    pyarrow does not translate an exception of Arrow there, which ends the process, for example if
    the columns of a file are encrypted. Arrow's reader accesses the same metadata before it reads a
    page, and raises. checked: the row groups to check, None for all. Raises ValueError and errors
    of Arrow.
    """
    groups = range(metadata.num_row_groups)
    if any(metadata.row_group(group).num_columns != metadata.num_columns for group in groups):
        raise ValueError("the columns of a row group are not those of the file")
    if not metadata.num_columns:
        return  # Arrow's reader forms batches of these differently
    parquet = pq.ParquetFile(handle, metadata=metadata, buffer_size=1, pre_buffer=False)
    for group in groups if checked is None else checked:
        for _batch in parquet.reader.iter_batches(0, row_groups=[group], use_threads=False):
            raise AssertionError("no rows were requested")


def check_pages(selection: _Selection, handle: BinaryIO) -> None:
    """Reject a file with a page that takes more than PAGE_BYTES: Arrow decompresses a whole page.

    A value is in one page, so no value is longer. The pages of a column are checked if its
    compressed bytes can contain more than PAGE_BYTES, whatever size the footer states. Raises
    TooLarge.
    """
    for chunk in selection.chunks():
        if _largest_size(chunk) <= PAGE_BYTES:
            continue
        largest = max((page.unpacked for page in _pages(handle, chunk)), default=0)
        if largest > PAGE_BYTES:
            raise TooLarge(
                f"the values of column {chunk.path_in_schema} take {largest:,} bytes in one "
                f"page; the limit is {PAGE_BYTES:,}",
                hint="Write smaller values, or write long values in smaller pages.",
            )


def has_checksums(metadata: pq.FileMetaData, handle: BinaryIO) -> bool:
    """Whether the first page of a file has a checksum; true for a file without pages."""
    # A damaged footer may tell of rows, and have no row group.
    if not metadata.num_row_groups or not metadata.num_rows or not metadata.num_columns:
        return True
    try:
        page = page_headers.page_at(handle, _begin(metadata.row_group(0).column(0)))
    except page_headers.NoPage:
        return True  # the reader of the page reports what is wrong with it
    return page.has_checksum


def _pages(handle: BinaryIO, chunk: Any) -> Iterator[page_headers.PageHeader]:
    """The page headers of a column chunk. Raises NoPage."""
    begin = _begin(chunk)
    end = begin + chunk.total_compressed_size
    return page_headers.pages(handle, begin, end, chunk.num_values)


def _largest_size(chunk: Any) -> int:
    """Maximum uncompressed size of a column chunk, whatever the footer says."""
    return int(chunk.total_compressed_size * _RATIOS.get(chunk.compression, PAGE_BYTES))


def _begin(chunk: Any) -> int:
    """Offset of the first page of a column: the dictionary, if it has one."""
    begin = chunk.dictionary_page_offset
    return int(begin if begin and begin > 0 else chunk.data_page_offset)


def _block_rows(selection: _Selection, handle: BinaryIO, most: int, widest: int = NO_LIMIT) -> int:
    """The number of rows per block. most: bytes per block. Raises TooWide."""
    by_pages = BLOCK_ROWS
    if sum(map(_largest_size, selection.chunks())) > most:
        sizes = block_rows.sizes(selection.pages(handle))
        if sizes[1] > widest:
            raise TooWide(f"a single row takes {sizes[1]:,} bytes in its pages")
        # Blocks that take as much because of few large pages are not made smaller.
        by_pages = max(rows for rows in sizes if sizes[rows] <= max(most, 2 * sizes[1]))
    rows = min(by_pages, _FIXED_BYTES // max(1, selection.width()))
    texts = [chunk for chunk in selection.chunks() if chunk.physical_type == "BYTE_ARRAY"]
    # No value is longer than all of them together, whatever the footer says of their sizes.
    if selection.rows() * sum(map(_largest_size, texts)) > most:
        rows = min(rows, BLOCK_BYTES // max(1, _longest(selection, handle, texts)))
    return max(1, rows)


def _longest(selection: _Selection, handle: BinaryIO, texts: Sequence[Any]) -> int:
    """Maximum bytes per row of the texts that may take more space in memory than in their pages.

    No value is longer than its whole dictionary. Only if that bound is too large, the values are
    read. A value with a prefix is not longer than its page: a prefix refers to the same page.
    """
    dictionaries: dict[str, int] = {}
    prefixed: dict[str, int] = {}
    for chunk in texts:
        name = chunk.path_in_schema
        for page in _pages(handle, chunk):
            if page.kind == page_headers.DICTIONARY:
                dictionaries[name] = max(page.unpacked, dictionaries.get(name, 0))
            elif page.encoding == page_headers.PREFIXES:
                prefixed[name] = max(page.unpacked, prefixed.get(name, 0))
    small, large = sum(prefixed.values()), []
    for name, size in sorted(dictionaries.items(), key=lambda item: item[1]):
        if small + size <= BLOCK_BYTES // BLOCK_ROWS:
            small += size
        else:
            large.append(name)
    return small + (_longest_of(selection, handle, large) if large else 0)


def _longest_of(selection: _Selection, handle: BinaryIO, names: list[str]) -> int:
    # Reading one row reads the dictionary, and no other page.
    coded = pq.ParquetFile(
        handle,
        metadata=selection.metadata,
        read_dictionary=names,
        buffer_size=1 << 16,
        pre_buffer=False,
        page_checksum_verification=True,
    )
    longest = 0
    for group in selection.groups:
        for row in coded.iter_batches(1, row_groups=[group], columns=names):
            longest = max(longest, sum(map(_longest_value, row.columns)))
            break
    return longest


def _longest_value(column: pa.Array) -> int:
    if not pa.types.is_dictionary(column.type):
        return 0
    return pc.max(pc.binary_length(column.dictionary)).as_py() or 0


def _width(kind: pa.DataType) -> int:
    """Minimum number of bits of a value in memory."""
    try:
        return int(kind.bit_width)
    except ValueError:
        return 32  # text and similar types: at least an offset
