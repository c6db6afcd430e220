"""Verifies the page checksums of a data file, which DuckDB does not do.

A page header may contain the CRC-32 of the stored bytes of the page (parquet.thrift,
PageHeader.crc).
"""

from __future__ import annotations

import mmap
import zlib
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.storage.thrift import ThriftReader

_PACKED, _CRC = 3, 4
"""Field numbers of a page header."""


class DamagedPage(OSError):
    """The bytes of a page do not match its checksum."""


def verify_all(
    paths: Sequence[str],
    threads: int,
    columns: Collection[str] | None = None,
    but: Collection[str] = (),
) -> None:
    """`verify` of some files, with so many threads."""
    with ThreadPoolExecutor(threads, thread_name_prefix="checksums") as pool:
        for done in [pool.submit(verify, Path(path), columns, but) for path in paths]:
            done.result()


def verify(path: Path, columns: Collection[str] | None = None, but: Collection[str] = ()) -> None:
    """Verify every page that has a checksum. columns: None for all; but: except these.

    An invalid page header is not reported here, but by the reader of the file. Raises DamagedPage,
    OSError, and ArrowException for a damaged footer.
    """
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    if not chunks:
        return
    facts = path.stat()
    file_id = (str(path), facts.st_size, facts.st_mtime_ns)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for chunk in chunks:
            name = chunk.path_in_schema
            if (columns is None or name in columns) and name not in but:
                _verify_chunk(path, content, chunk, file_id)


def _verify_chunk(path: Path, content: mmap.mmap, chunk: Any, file_id: _FileId) -> None:
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    known = (*file_id, at)
    pages = _cache.get(known) if known in _cache else None
    if pages is None:
        pages = _pages(content, at, at + chunk.total_compressed_size)
        _cache.put(known, pages)
    with memoryview(content) as whole:  # a slice of the map would be a copy
        for start, end, crc in zip(*pages.tolist(), strict=True):
            with whole[start:end] as page:
                is_same = zlib.crc32(page) == crc
            if not is_same:
                raise DamagedPage(
                    f"{path.name}: a page of column {chunk.path_in_schema} does not match its "
                    "checksum"
                )


def _pages(content: mmap.mmap, at: int, end: int) -> np.ndarray:
    """Where the pages with a checksum begin and end, and their checksums: int64, 3 x n."""
    found: list[tuple[int, int, int]] = []
    reader = ThriftReader(content)
    while at < end:
        reader.position = at
        try:
            header = reader.structure()
        except ValueError:
            break
        size, crc = header.get(_PACKED), header.get(_CRC)
        if not isinstance(size, int) or not 0 <= size <= end - reader.position:
            break
        at = reader.position + size
        if isinstance(crc, int):
            found.append((reader.position, at, crc & 0xFFFFFFFF))
    return np.array(found, np.int64).reshape(-1, 3).T


_FileId = tuple[str, int, int]
"""Path, size and time of a file, which cannot be another one."""

CACHE_BYTES = 32 << 20
"""What a process remembers of where pages are: to find it out takes longer than the comparison."""

_cache: BoundedCache[tuple[str, int, int, int], np.ndarray] = BoundedCache(
    CACHE_BYTES, lambda pages: 200 + pages.nbytes
)
