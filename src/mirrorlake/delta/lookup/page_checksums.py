"""Verifies the page checksums of a data file, which DuckDB does not do.

A page header may contain the CRC-32 of the stored bytes of the page (parquet.thrift,
PageHeader.crc).
"""

from __future__ import annotations

import mmap
import operator
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.delta.lookup.pages import NoPageIndex, layout
from mirrorlake.storage.thrift import ThriftReader
from mirrorlake.storage.varints import TooLong, Varints

_PACKED, _CRC = 3, 4
"""Field numbers of a page header."""
_NEXT_I32 = 0x15
"""The byte before the value of a field: an integer of 32 bits, whose number is one more than that
of the field before it."""
_FEW = 8
"""Pages of a chunk below which reading one header after the other is faster."""


class DamagedPage(OSError):
    """The bytes of a page do not match its checksum."""


@contextmanager
def verifying(
    paths: Sequence[str],
    threads: int,
    columns: Collection[str] | None = None,
    but: Collection[str] = (),
) -> Iterator[None]:
    """`verify` files, with so many threads, while they are read by what is done inside: the result
    of that must not be used before the end, and a damaged page counts more than its errors. With
    one thread the files are verified first."""
    with ThreadPoolExecutor(threads, thread_name_prefix="checksums") as pool:
        verified = [pool.submit(verify, Path(path), columns, but) for path in paths]
        if threads == 1:
            _finished(verified)
        try:
            yield
        finally:
            _finished(verified)


def _finished(verified: Sequence[Future[None]]) -> None:
    for one in verified:
        one.result()


def verify(path: Path, columns: Collection[str] | None = None, but: Collection[str] = ()) -> None:
    """Verify every page that has a checksum. columns: None for all; but: except these.

    An invalid page header is not reported here, but by the reader of the file. Raises DamagedPage,
    OSError, and ArrowException for a damaged footer.
    """
    metadata = pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [
        (number, index, group.column(index))
        for number, group in enumerate(groups)
        for index in range(group.num_columns)
    ]
    if not chunks:
        return
    facts = path.stat()
    file_id = (str(path), facts.st_size, facts.st_mtime_ns)
    # Once for all chunks: to find out that a file has no page index takes as long as reading one.
    by_group = cache(partial(_indexed, path))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for number, index, chunk in chunks:
            name = chunk.path_in_schema
            if (columns is None or name in columns) and name not in but:
                where = partial(_by_index, content, by_group, (number, index))
                _verify_chunk(path, content, chunk, where, file_id)


def _verify_chunk(
    path: Path,
    content: mmap.mmap,
    chunk: Any,
    by_index: Callable[[int, int], np.ndarray | None],
    file_id: _FileId,
) -> None:
    """by_index: `_by_index` of the chunk."""
    at = chunk.dictionary_page_offset or chunk.data_page_offset
    end = at + chunk.total_compressed_size
    known = (*file_id, at)
    found = _cache.get(known)
    if found is None:
        found = by_index(at, end)
        if found is not None and _is_intact(content, found):
            _cache.put(known, found)
            return
        # A wrong index would look like damage.
        found = _cache.put(known, _pages(content, at, end))
    if not _is_intact(content, found):
        raise DamagedPage(
            f"{path.name}: a page of column {chunk.path_in_schema} does not match its checksum"
        )


def _is_intact(content: mmap.mmap, pages: np.ndarray) -> bool:
    with memoryview(content) as whole:  # a slice of the map would be a copy
        checksums = (zlib.crc32(whole[start:end]) for start, end in pages[:2].T.tolist())
        return all(map(operator.eq, checksums, pages[2].tolist()))


def _indexed(path: Path) -> Sequence[Sequence[Any]]:
    """The chunks of each row group by the page index of a file; none if it has no index."""
    try:
        return layout(path).groups
    except (NoPageIndex, OSError):
        return ()


def _by_index(
    content: mmap.mmap,
    groups: Callable[[], Sequence[Sequence[Any]]],
    numbers: tuple[int, int],
    at: int,
    end: int,
) -> np.ndarray | None:
    """As `_pages`, by the page index, which is faster; None if it does not tell where all pages
    are, one has no checksum, or they are few. numbers: of the row group and column."""
    group, column = numbers
    try:
        chunk = groups()[group][column]
        if len(chunk.at) < _FEW:
            return None
        first, _end = chunk.dictionary or (int(chunk.at[0]), 0)
        ends = chunk.at + chunk.size
        if first != at or ends[-1] != end or (ends[:-1] != chunk.at[1:]).any():
            return None
        found = _with_checksums(np.frombuffer(content, np.uint8), chunk.at, ends)
    except (IndexError, TooLong):
        return None
    if found is None or chunk.dictionary is None:
        return found
    return np.concatenate((_pages(content, *chunk.dictionary), found), axis=1)


def _with_checksums(content: np.ndarray, at: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
    """As `_pages`, for the pages whose headers begin at these bytes; None if one has none.

    The first four fields of a header are its type, both sizes and the checksum.
    """
    fields, cursor, found = Varints(content), at, []
    for _field in range(_CRC):
        if (content[cursor] != _NEXT_I32).any():
            return None
        value, cursor = fields.read(cursor + 1)
        found.append(value)
    *_others, sizes, checksums = found
    starts = ends - sizes
    return np.stack((starts, ends, checksums & 0xFFFFFFFF)) if (starts > cursor).all() else None


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
