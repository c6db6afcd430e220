"""Parquet footers in bounded memory: Arrow may take hundreds of bytes for 3 bytes of a footer."""

from __future__ import annotations

from typing import Any, BinaryIO

from mirrorlake.storage.thrift import BrokenThrift, ThriftReader

CONTAINER = 200_000
"""Maximum length of a list in a footer; Arrow allocates as many elements as the list claims."""

_UNCHECKED = 1 << 20
"""Footers up to this many bytes take at most 250 MB in memory, whatever they contain."""

_LARGEST = 64 << 20
_STRUCTURE, _ELEMENT = 16, 1
"""Weights: Arrow takes up to 700 bytes per structure, and up to 32 per other element."""
_MOST = _STRUCTURE * 400_000


class LargeFooter(ValueError):
    """The footer takes more memory than it may."""


def check(handle: BinaryIO, size: int) -> None:
    """Reject a footer before Arrow reads it, if it would take more than about 256 MiB.

    What is not a footer is left to Arrow. Raises LargeFooter.
    """
    if size <= _UNCHECKED:
        return
    handle.seek(size - 8)
    length = int.from_bytes(handle.read(8)[:4], "little")
    if length <= _UNCHECKED or length > size - 8:
        return
    if length > _LARGEST:
        raise LargeFooter(f"its footer takes {length:,} bytes; the limit is {_LARGEST:,}")
    handle.seek(size - 8 - length)
    try:
        _Counter(handle.read(length)).structure()
    except BrokenThrift:
        return


class _Counter(ThriftReader):
    """Sums up the weights of the elements. Raises LargeFooter as soon as the sum is too large."""

    _weight = 0

    def _structure(self, raw: frozenset[int] = frozenset()) -> dict[int, Any]:
        del raw
        self._add(_STRUCTURE)
        while header := self._data[self.position]:
            self.position += 1
            if not header >> 4:
                self._zigzag()
            self._value(header & 15)
        self.position += 1
        return {}

    def _list(self, *, keep: bool) -> list[Any]:
        del keep
        kind, count = self._data[self.position] & 15, self.count()
        for _ in range(count):
            self._add(_ELEMENT)
            if kind in {1, 2}:  # a Boolean is one byte here
                self._bytes(1)
            else:
                self._value(kind)
        return []

    def _add(self, weight: int) -> None:
        self._weight += weight
        if self._weight > _MOST:
            raise LargeFooter("its footer describes too many row groups and columns")
