"""Reads a few rows of a Parquet file, by reading only the pages that contain them.

Arrow reads whole row groups, and so decompresses up to 262,144 rows for one. The page index of a
file (Parquet format, "Page Index") has the offset and the first row of each page. The pages with
wanted rows are copied into a small Parquet file in memory, one per column, which Arrow decodes; one
per member of a struct, because the pages of two members may begin at different rows.

Data files never change, so their page layouts are cached.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.delta.lookup.bounded_cache import BoundedCache
from mirrorlake.model.arrow import contiguous
from mirrorlake.storage.thrift import I32, Raw, ThriftReader, encode

_MAGIC = b"PAR1"
_LIST_OF_LOCATIONS, _STRUCTURE = 0x19, 12
_CONSTANT_BYTES, _LOCATION = [0, 2, 4, 6], (0x16, 0x15, 0x16, 0x00)
"""The bytes around the numbers of an encoded page location: headers of fields of 64, 32 and 64
bits, and the end."""

_REPETITION, _CHILDREN = 3, 5
"""Field numbers of a schema element."""
_ANNOTATIONS = {6, 10}
"""Fields of a schema element that give values another meaning."""
_VALUES, _STATISTICS = 5, 12
"""Field numbers of the metadata of a column chunk."""
_NULL_COUNT, _HIGH, _LOW = 3, 5, 6
"""Field numbers of statistics."""
_BOOLEAN, _LONG = 0, 2
"""Physical types."""

_Only = tuple[int | bool | None]
"""A value that may be NULL."""
_REPEATED = 2

_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    OverflowError,
    RecursionError,
)
"""Errors caused by missing fields, or fields of another type; reading the whole file reports the
damage."""

CACHE_BYTES = 64 << 20
"""Maximum bytes of cached page layouts; that of 2,000,000 rows and 10 columns takes 400 kB."""


_OBJECTS = 1_500
"""Bytes of one column of one row group in a page layout, without its arrays."""


class NoPageIndex(ValueError):
    """The file has no page index, or one in an unsupported form."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column, or a member of one that is a struct.

    index: of its chunk in each row group; elements: the encoded schema elements from the column
    down to the leaf, each but the last with one child.
    """

    index: int
    elements: Sequence[Raw]


@dataclass(frozen=True, slots=True)
class PagesOfChunk:
    """One leaf of one row group.

    rows: the first row of each page, counted in the group, and the number of rows of the group.
    at, size: offset and size of each page in bytes.
    dictionary: start and end offset of the dictionary page, if there is one.
    only: the one value of all rows, by its statistics; None if there are others, or unknown.
    """

    facts: dict[int, Any]
    rows: np.ndarray
    at: np.ndarray
    size: np.ndarray
    dictionary: tuple[int, int] | None
    only: _Only | None


@dataclass(frozen=True, slots=True)
class PageLayout:
    """The pages of a file. starts: the first row of each row group, and the number of rows;
    columns: the leaves of each column; groups: the chunks of each row group, one per leaf."""

    starts: np.ndarray
    columns: Mapping[str, Sequence[_Leaf]]
    groups: Sequence[Sequence[PagesOfChunk]]

    @property
    def rows(self) -> int:
        return int(self.starts[-1])

    def only(self, column: str) -> _Only | None:
        """The one value of a column in all rows, or NULL, so that it need not be read; None if
        there are others, or if that is unknown."""
        (leaf, *more) = self.columns[column]
        found = {group[leaf.index].only for group in self.groups}
        return found.pop() if len(found) == 1 and not more else None

    @property
    def nbytes(self) -> int:
        """Approximate size in memory."""
        chunks = [chunk for group in self.groups for chunk in group]
        return sum(_OBJECTS + 3 * chunk.rows.nbytes for chunk in chunks)

    def grouped(self, rows: np.ndarray) -> list[tuple[Sequence[PagesOfChunk], np.ndarray]]:
        """Each row group with the wanted rows (ascending) in it, numbered from its first row."""
        cuts = np.searchsorted(rows, self.starts)
        return [
            (group, rows[cuts[i] : cuts[i + 1]] - self.starts[i])
            for i, group in enumerate(self.groups)
        ]

    def share(self, rows: np.ndarray, column: str) -> float:
        """The part, from 0 to 1, of the pages of a column with at least one of these rows
        (ascending)."""
        touched = total = 0
        leaf = self.columns[column][0]
        for group, own in self.grouped(rows):
            starts = group[leaf.index].rows
            total += len(starts) - 1
            touched += len(np.unique(np.searchsorted(starts, own, side="right")))
        return touched / max(total, 1)


def layout(path: Path) -> PageLayout:
    """The page layout of a file. Raises NoPageIndex, OSError."""
    facts = path.stat()
    known = str(path), facts.st_size, facts.st_mtime_ns
    return _layouts.get(known) or _layouts.put(known, _layout(*known))


def read(path: Path, where: PageLayout, rows: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Read these rows (ascending, distinct) of these columns.

    Raises OSError, and ArrowException for a damaged page.
    """
    groups = [(group, own) for group, own in where.grouped(rows) if len(own)]
    handle = os.open(path, os.O_RDONLY)
    try:
        found = [
            _assembled([_leaf(handle, leaf, groups) for leaf in where.columns[name]])
            for name in columns
        ]
    finally:
        os.close(handle)
    return pa.table(found, names=list(columns))


def _assembled(leaves: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray | pa.Array:
    """A column of its leaves, each of which has the structs around it with one member."""
    first = leaves[0]
    if not pa.types.is_struct(first.type):
        return first
    members: dict[str, list[pa.Array]] = {}
    for leaf in map(contiguous, leaves):
        members.setdefault(leaf.type.field(0).name, []).append(leaf.field(0))
    parts = [contiguous(_assembled(part)) for part in members.values()]
    return pa.StructArray.from_arrays(parts, list(members), mask=contiguous(first).is_null())


def _leaf(
    handle: int, leaf: _Leaf, wanted: Sequence[tuple[Sequence[PagesOfChunk], np.ndarray]]
) -> pa.ChunkedArray:
    """The wanted rows of one leaf. wanted: by row group its chunks and the rows."""
    body, groups, indexes = bytearray(_MAGIC), [], []
    offset = 0
    for chunks, rows in wanted:
        chunk = chunks[leaf.index]
        pages = _pages(chunk, rows)
        lengths = chunk.rows[pages + 1] - chunk.rows[pages]
        begins = np.concatenate(([0], np.cumsum(lengths)))
        of = np.searchsorted(chunk.rows[pages], rows, side="right") - 1
        indexes.append(offset + begins[of] + rows - chunk.rows[pages][of])
        offset += int(begins[-1])
        groups.append(_copy_pages(handle, body, chunk, pages, int(begins[-1])))
    footer = encode(
        {
            1: I32(1),
            2: [{4: b"schema", 5: I32(1)}, *leaf.elements],
            3: offset,
            4: groups,
        }
    )
    body += footer + struct.pack("<I", len(footer)) + _MAGIC
    file = pq.ParquetFile(
        pa.BufferReader(pa.py_buffer(body)),
        coerce_int96_timestamp_unit="us",
        pre_buffer=False,
        page_checksum_verification=True,
    )
    return file.read(use_threads=False).column(0).take(pa.array(np.concatenate(indexes)))


def _copy_pages(
    handle: int, body: bytearray, chunk: PagesOfChunk, pages: np.ndarray, rows: int
) -> dict[int, Any]:
    """Append pages of a column to `body`. Returns the encoded metadata of their row group."""
    start = len(body)
    facts = {number: chunk.facts[number] for number in (1, 2, 3, 4)}
    facts = {1: I32(facts[1]), 2: [I32(e) for e in facts[2]], 3: facts[3], 4: I32(facts[4])}
    if chunk.dictionary is not None:
        first, end = chunk.dictionary
        body += _bytes(handle, first, end)
        facts[11] = start
    data = len(body)
    ends = chunk.at[pages] + chunk.size[pages]
    breaks = np.flatnonzero(chunk.at[pages][1:] != ends[:-1]) + 1
    for run in np.split(np.arange(len(pages)), breaks):
        body += _bytes(handle, int(chunk.at[pages[run[0]]]), int(ends[run[-1]]))
    size = len(body) - start
    facts |= {5: rows, 6: size, 7: size, 9: data}
    return {1: [{2: start, 3: facts}], 2: size, 3: rows}


def _pages(chunk: PagesOfChunk, rows: np.ndarray) -> np.ndarray:
    """The pages of these rows (ascending, numbered in the group)."""
    return np.unique(np.searchsorted(chunk.rows, rows, side="right") - 1)


def _bytes(handle: int, start: int, end: int) -> bytes:
    if 0 <= start <= end and len(found := os.pread(handle, end - start, start)) == end - start:
        return found
    raise OSError("a data file ends too early")


def _layout(path: str, size: int, _modified: int) -> PageLayout:
    with Path(path).open("rb") as file:
        handle = file.fileno()
        try:
            tail = _bytes(handle, size - 8, size)
            length = struct.unpack("<I", tail[:4])[0]
            if tail[4:] != _MAGIC or length > size - 12:
                raise NoPageIndex(path)
            footer = ThriftReader(_bytes(handle, size - 8 - length, size - 8)).structure(
                frozenset({2})
            )
            return _parsed(handle, footer)
        except _DAMAGE as error:
            raise NoPageIndex(path) from error


def _parsed(handle: int, footer: dict[int, Any]) -> PageLayout:
    columns, plain, raw = dict[str, Sequence[_Leaf]](), list[bool](), footer[2]
    at, index = 1, 0
    while at < len(raw):
        name = ThriftReader(raw[at].encoded).structure()[4].decode()
        leaves, at = _leaves(raw, at, index)
        index += len(leaves)
        columns[name] = leaves
        plain += [_is_plain(leaf) for leaf in leaves]
    groups, counts = [], []
    for group in footer.get(4, []):
        if len(group[1]) != index:
            raise NoPageIndex("a row group has other columns than the file")
        groups.append(
            [_chunk(handle, *both, group[3]) for both in zip(group[1], plain, strict=True)]
        )
        counts.append(group[3])
    return PageLayout(np.concatenate(([0], np.cumsum(counts, dtype=np.int64))), columns, groups)


def _leaves(raw: Sequence[Raw], at: int, index: int) -> tuple[list[_Leaf], int]:
    """The leaves of the schema element number `at`, and the number of the element after it. index:
    of the first leaf."""
    facts = ThriftReader(raw[at].encoded).structure()
    if facts.get(_REPETITION, 0) == _REPEATED:
        raise NoPageIndex("a column is repeated")
    if not facts.get(_CHILDREN):
        return [_Leaf(index, [raw[at]])], at + 1
    around = Raw(encode({3: I32(facts[_REPETITION]), 4: facts[4], _CHILDREN: I32(1)}))
    found, after = list[_Leaf](), at + 1
    for _child in range(facts[_CHILDREN]):
        inner, after = _leaves(raw, after, index + len(found))
        found += [_Leaf(leaf.index, [around, *leaf.elements]) for leaf in inner]
    return found, after


def _is_plain(leaf: _Leaf) -> bool:
    """Whether a leaf is a column whose values are those of its physical type."""
    facts = ThriftReader(leaf.elements[-1].encoded).structure()
    return len(leaf.elements) == 1 and not facts.keys() & _ANNOTATIONS


def _chunk(handle: int, column: dict[int, Any], is_plain: bool, rows: int) -> PagesOfChunk:
    facts, start = column[3], column[4]
    at, size, first = locations(_bytes(handle, start, start + column[5]))
    dictionary = (facts[11], int(at[0])) if facts.get(11) and facts[11] < at[0] else None
    return PagesOfChunk(
        {n: facts[n] for n in (1, 2, 3, 4)},
        np.append(first, rows),
        at,
        size,
        dictionary,
        _only(facts, rows, is_plain=is_plain),
    )


def _only(facts: dict[int, Any], rows: int, *, is_plain: bool) -> _Only | None:
    """The one value of a chunk of a column: NULL, an integer of 64 bits or a boolean."""
    said = facts.get(_STATISTICS, {})
    nulls, high, low = (said.get(number) for number in (_NULL_COUNT, _HIGH, _LOW))
    if len(facts[3]) == 1 and nulls == facts[_VALUES] == rows:
        return (None,)
    if not is_plain or nulls != 0 or high != low or not isinstance(low, bytes):
        return None
    if (facts[1], len(low)) == (_BOOLEAN, 1):
        return (low != b"\0",)
    return (
        (int.from_bytes(low, "little", signed=True),)
        if (facts[1], len(low)) == (_LONG, 8)
        else None
    )


def locations(index: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, sizes and first rows of the pages in an encoded OffsetIndex.

    All varints are decoded at once; the field headers between them are decoded as varints of one
    byte. Raises NoPageIndex for other content.
    """
    if len(index) < 3 or index[0] != _LIST_OF_LOCATIONS or index[1] & 15 != _STRUCTURE:
        raise NoPageIndex("the list of page locations has another form")
    head = ThriftReader(index)
    head.position = 1
    count = head.count()
    data = np.frombuffer(index, np.uint8, offset=head.position)
    ends = np.flatnonzero(data < 0x80)[: 7 * count]
    if len(ends) != 7 * count or not count:
        raise NoPageIndex("the list of page locations is truncated")
    begins = np.concatenate(([0], ends[:-1] + 1))
    data = data[: ends[-1] + 1]
    shifts = np.arange(len(data)) - np.repeat(begins, ends - begins + 1)
    numbers = np.add.reduceat((data & 0x7F).astype(np.int64) << 7 * shifts, begins)
    pages = numbers.reshape(count, 7)
    if (pages[:, _CONSTANT_BYTES] != _LOCATION).any():
        raise NoPageIndex("a page location has another form")
    at, size, first = pages[:, 1] >> 1, pages[:, 3] >> 1, pages[:, 5] >> 1
    if first[0] != 0 or (np.diff(first) <= 0).any() or (np.diff(at) <= 0).any():
        raise NoPageIndex("the pages are not in ascending order")
    return at, size, first


_layouts: BoundedCache[tuple[str, int, int], PageLayout] = BoundedCache(
    CACHE_BYTES, lambda known: known.nbytes
)
