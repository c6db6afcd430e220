"""Verifies the page checksums of a data file, which DuckDB does not do.

A page header may contain the CRC-32 of the stored bytes of the page (parquet.thrift,
PageHeader.crc).
"""

from __future__ import annotations

import mmap
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from isal.isal_zlib import crc32  # five times as fast as that of zlib

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.delta.lookup.pages import NoPageIndex, PagesOfChunk, layout
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
    """Verify every page that has a checksum. columns: with all of their members, None for all; but:
    except these.

    A chunk that was intact before is verified as a whole. An invalid page header is not reported
    here, but by the reader of the file. Raises DamagedPage, OSError, and ArrowException for a
    damaged footer.
    """
    chunks = [
        chunk
        for chunk in _chunks(path)
        if (columns is None or _is_of(chunk, columns)) and chunk.column not in but
    ]
    if not chunks:
        return
    facts = path.stat()
    file_id = (str(path), facts.st_size, facts.st_mtime_ns)
    with path.open("rb") as file:
        # Not closed here, where an array in the frames of an error might still use it.
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Before the pages, so that a bit that changes in between is detected the next time.
    checksums = _checksums(content, [(chunk.start, chunk.end) for chunk in chunks])
    unknown = [
        (chunk, checksum)
        for chunk, checksum in zip(chunks, checksums, strict=True)
        if _cache.get((*file_id, chunk.start)) != checksum
    ]
    if unknown:
        _verify_pages(path, content, [chunk for chunk, _checksum in unknown])
    for chunk, checksum in unknown:
        _cache.put((*file_id, chunk.start), checksum)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group. group, index: the numbers of both; start, end: offsets."""

    group: int
    index: int
    column: str
    start: int
    end: int


def _is_of(chunk: _Chunk, columns: Collection[str]) -> bool:
    """Whether a chunk has the values of one of these columns, or of a member of one."""
    names = accumulate(chunk.column.split("."), "{}.{}".format)
    return any(name in columns for name in names)


def _chunks(path: Path) -> Iterator[_Chunk]:
    metadata = pq.read_metadata(path)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for index in range(group.num_columns):
            chunk = group.column(index)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            end = start + chunk.total_compressed_size
            yield _Chunk(number, index, chunk.path_in_schema, start, end)


def _verify_pages(path: Path, content: mmap.mmap, chunks: Sequence[_Chunk]) -> None:
    known = _by_index(path, content, chunks)
    for chunk in chunks:
        pages = known.get(chunk)
        # A wrong index would look like damage.
        if (pages is None or not _is_intact(content, pages)) and not _is_intact(
            content, _pages(content, chunk.start, chunk.end)
        ):
            raise DamagedPage(
                f"{path.name}: a page of column {chunk.column} does not match its checksum"
            )


def _is_intact(content: mmap.mmap, pages: np.ndarray) -> bool:
    expected: list[int] = pages[2].tolist()
    return _checksums(content, pages[:2].T.tolist()) == expected


def _checksums(content: mmap.mmap, parts: Sequence[Sequence[int]]) -> list[int]:
    """The CRC-32 of the bytes from one offset to another."""
    with memoryview(content) as whole:  # a slice of the map would be a copy
        return [crc32(whole[start:end]) for start, end in parts]


def _by_index(
    path: Path, content: mmap.mmap, chunks: Sequence[_Chunk]
) -> Mapping[_Chunk, np.ndarray]:
    """As `_pages`, by the page index, which is faster for all chunks together; without those of
    which it does not tell where all pages are, that have a page without a checksum, or few."""
    try:
        groups = layout(path).groups
        told = [(chunk, groups[chunk.group][chunk.index]) for chunk in chunks]
        told = [(chunk, pages) for chunk, pages in told if _is_complete(chunk, pages)]
        if not told:
            return {}
        at = np.concatenate([pages.at for _chunk, pages in told])
        ends = at + np.concatenate([pages.size for _chunk, pages in told])
        found, has_checksum = _with_checksums(np.frombuffer(content, np.uint8), at, ends)
    except (NoPageIndex, OSError, IndexError, TooLong):
        return {}
    cuts = np.cumsum([len(pages.at) for _chunk, pages in told])[:-1]
    parts = zip(told, np.split(found, cuts, axis=1), np.split(has_checksum, cuts), strict=True)
    return {
        chunk: part
        if pages.dictionary is None
        else np.concatenate((_pages(content, *pages.dictionary), part), axis=1)
        for (chunk, pages), part, has in parts
        if has.all()
    }


def _is_complete(chunk: _Chunk, pages: PagesOfChunk) -> bool:
    """Whether the pages of a chunk follow each other from its start to its end, and are many."""
    if len(pages.at) < _FEW:
        return False
    first, _end = pages.dictionary or (int(pages.at[0]), 0)
    ends = pages.at + pages.size
    return bool(
        first == chunk.start and ends[-1] == chunk.end and (ends[:-1] == pages.at[1:]).all()
    )


def _with_checksums(
    content: np.ndarray, at: np.ndarray, ends: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As `_pages`, for the pages whose headers begin at these bytes, and whether each has a
    checksum.

    The first four fields of a header are its type, both sizes and the checksum.
    """
    fields, cursor, found = Varints(content), at, []
    has_checksum = np.ones(len(at), bool)
    for _field in range(_CRC):
        has_checksum &= content[cursor] == _NEXT_I32
        value, cursor = fields.read(cursor + 1)
        found.append(value)
    *_others, sizes, checksums = found
    starts = ends - sizes
    return np.stack((starts, ends, checksums & 0xFFFFFFFF)), has_checksum & (starts > cursor)


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


CACHE_BYTES = 32 << 20
"""What a process remembers of chunks: to verify each page takes longer than all at once."""

_cache: BoundedCache[tuple[str, int, int, int], int] = BoundedCache(CACHE_BYTES, lambda _: 300)
"""The checksums of the bytes of chunks whose pages were intact."""
