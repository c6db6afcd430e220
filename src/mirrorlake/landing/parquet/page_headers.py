"""Heads of Parquet pages: how large a page is before it is unpacked (parquet.thrift, PageHeader).

The footer tells sizes of whole columns only, and Arrow unpacks a page at once. A head binds: a page
that unpacks to more than its head says is an error to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

DICTIONARY = 2
"""The type of a page that holds the distinct values."""

_HEAD = 1 << 10
_LARGEST_HEAD = 1 << 20
"""Bytes: heads may repeat the smallest and the largest value of a page."""

# Types of the compact protocol of Thrift.
_BOOLEANS, _BYTE, _VARINTS, _DOUBLE, _BINARY = (1, 2), 3, (4, 5, 6), 7, 8
_LISTS, _STRUCT = (9, 10), 12


class NoPage(ValueError):
    """There is no head of a page."""


@dataclass(frozen=True, slots=True)
class PageHeader:
    """A page. unpacked, packed: its bytes without the head, in memory and in the file."""

    kind: int
    unpacked: int
    packed: int
    head: int


def page_at(handle: BinaryIO, offset: int) -> PageHeader:
    """The page whose head begins at a byte of the file. Raises NoPage."""
    size = _HEAD
    while True:
        handle.seek(offset)
        text = handle.read(size)
        try:
            fields, head = _struct(text, 0)
            return PageHeader(fields[1], fields[2], fields[3], head)
        except IndexError:
            if len(text) < size or size >= _LARGEST_HEAD:
                raise NoPage(f"the page header at byte {offset} is truncated") from None
            size *= 32
        except (KeyError, RecursionError) as error:
            raise NoPage(f"there is no page header at byte {offset}") from error


def pages(handle: BinaryIO, begin: int, end: int) -> Iterator[PageHeader]:
    """The pages between two bytes of the file. Raises NoPage."""
    while begin < end:
        page = page_at(handle, begin)
        if page.packed < 0 or page.unpacked < 0:
            raise NoPage(f"the page at byte {begin} has a negative size")
        yield page
        begin += page.head + page.packed


def _struct(text: bytes, at: int) -> tuple[dict[int, int], int]:
    """The integers of a structure by their numbers, and where it ends."""
    found: dict[int, int] = {}
    number = 0
    while text[at]:
        kind, delta = text[at] & 0x0F, text[at] >> 4
        at += 1
        if delta:
            number += delta
        else:
            value, at = _varint(text, at)
            number = _signed(value)
        if kind in _VARINTS:
            value, at = _varint(text, at)
            found[number] = _signed(value)
        elif kind not in _BOOLEANS:
            at = _skipped(text, at, kind)
    return found, at + 1


def _skipped(text: bytes, at: int, kind: int) -> int:
    """Where a value ends."""
    if kind == _STRUCT:
        return _struct(text, at)[1]
    if kind == _BYTE:
        return at + 1
    if kind in _VARINTS:
        return _varint(text, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        length, at = _varint(text, at)
        return at + length
    if kind in _LISTS:
        return _list_skipped(text, at)
    raise KeyError(kind)


def _list_skipped(text: bytes, at: int) -> int:
    count, kind = text[at] >> 4, text[at] & 0x0F
    at += 1
    if count == 0x0F:
        count, at = _varint(text, at)
    for _each in range(count):
        at = at + 1 if kind in _BOOLEANS else _skipped(text, at, kind)
        if at > len(text):
            raise IndexError
    return at


def _varint(text: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = text[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise KeyError(byte)


def _signed(value: int) -> int:
    return value >> 1 ^ -(value & 1)
