"""Parquet page headers: the size of a page before it is decompressed (parquet.thrift, PageHeader).

The footer contains sizes of whole columns only, and Arrow decompresses a whole page. The header is
binding: a page that decompresses to more than its header states is an error in Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from mirrorlake.storage.thrift import BrokenThrift, ThriftReader, TruncatedThrift

DICTIONARY = 2
"""The type of a page that contains the distinct values."""

PREFIXES = 7
"""The encoding DELTA_BYTE_ARRAY: a value is a suffix to a prefix of the previous value."""

_HEAD = 1 << 10
_LARGEST_HEAD = 1 << 20
"""Maximum size in bytes: headers may contain the smallest and the largest value of a page."""


class NoPage(ValueError):
    """There is no page header."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """The header of a page.

    kind: the page type. unpacked, packed: size of the page without its header in bytes,
    uncompressed and in the file. head: size of the header in bytes. has_checksum: whether the
    header has a CRC-32 of the bytes in the file. values, encoding: of a data page; NULLs count as
    values.
    """

    kind: int
    unpacked: int
    packed: int
    head: int
    has_checksum: bool = False
    values: int = 0
    encoding: int | None = None


def page_at(handle: BinaryIO, offset: int) -> PageHeader:
    """Read the page header at an offset of the file. Raises NoPage."""
    size = _HEAD
    while True:
        handle.seek(offset)
        reader = ThriftReader(text := handle.read(size))
        try:
            fields = reader.structure()
        except TruncatedThrift:
            if len(text) < size or size >= _LARGEST_HEAD:
                raise NoPage(f"the page header at byte {offset} is truncated") from None
            size *= 32
            continue
        except BrokenThrift as error:
            raise NoPage(f"there is no page header at byte {offset}") from error
        kind, unpacked, packed = (fields.get(number) for number in (1, 2, 3))
        if not (type(kind) is type(unpacked) is type(packed) is int):
            raise NoPage(f"there is no page header at byte {offset}")
        values, encoding = _values(fields)
        has_checksum = 4 in fields
        return PageHeader(kind, unpacked, packed, reader.position, has_checksum, values, encoding)


def _values(fields: dict[int, Any]) -> tuple[int, int | None]:
    """Number and encoding of the values of a data page, of either version."""
    for number, encoding in ((5, 2), (8, 4)):
        if isinstance(data := fields.get(number), dict):
            values, encoded = data.get(1), data.get(encoding)
            known = encoded if isinstance(encoded, int) else None
            return values if isinstance(values, int) else 0, known
    return 0, None


def pages(handle: BinaryIO, begin: int, end: int, values: int) -> Iterator[PageHeader]:
    """The page headers between two offsets of the file, until the pages have `values` values: these
    are the pages that Arrow reads. Raises NoPage."""
    while begin < end and values > 0:
        page = page_at(handle, begin)
        if page.packed < 0 or page.unpacked < 0:
            raise NoPage(f"the page at byte {begin} has a negative size")
        yield page
        begin += page.head + page.packed
        values -= page.values
