"""Checks the page checksums of a data file, for readers that do not: DuckDB verifies none.

A page header may hold the CRC-32 of the page's bytes as stored (parquet.thrift, PageHeader.crc).
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from mirrorlake.storage.thrift import ThriftReader

_PACKED, _CRC = 3, 4
"""Fields of a page header."""


class DamagedPage(OSError):
    """The bytes of a page are not those that were written."""


def verify(path: Path, columns: Collection[str] | None = None) -> None:
    """Compare every page that has a checksum with it. columns: None for all.

    What is no page at all is left to the reader of the file. Raises DamagedPage, OSError, and
    ArrowException for a damaged footer.
    """
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    if not chunks:
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for chunk in chunks:
            if columns is None or chunk.path_in_schema in columns:
                _verify_chunk(path, content, chunk)


def _verify_chunk(path: Path, content: mmap.mmap, chunk: Any) -> None:
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    end = at + chunk.total_compressed_size
    reader = ThriftReader(content)
    while at < end:
        reader.position = at
        try:
            header = reader.structure()
        except ValueError:
            return
        size, crc = header.get(_PACKED), header.get(_CRC)
        if not isinstance(size, int) or not 0 <= size <= end - reader.position:
            return
        at = reader.position + size
        if isinstance(crc, int) and zlib.crc32(content[reader.position : at]) != crc & 0xFFFFFFFF:
            raise DamagedPage(
                f"{path.name}: a page of column {chunk.path_in_schema} does not match its checksum"
            )
