"""The subset of the Thrift compact protocol that Parquet files need.

A structure is a mapping of field numbers to values: integers, bytes, lists, structures.
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_WHOLE = frozenset({_I16, _I32, _I64})
_SIZES = {_BYTE: 1, _DOUBLE: 8, _BINARY: 0}
"""Sizes of other values in bytes; 0 if the size is encoded before the value."""


class BrokenThrift(ValueError):
    """The bytes are not a structure of the compact protocol."""


class TruncatedThrift(BrokenThrift):
    """The bytes end within a structure."""


@dataclass(frozen=True, slots=True)
class Raw:
    """The encoded bytes of a structure, to be copied unchanged."""

    encoded: bytes


class ThriftReader:
    """Reads structures from bytes, beginning at `position`."""

    def __init__(self, data: bytes | mmap) -> None:
        self._data, self.position = data, 0

    def structure(self, raw: frozenset[int] = frozenset()) -> dict[int, Any]:
        """Read the structure at the position. raw: fields whose lists of structures are returned
        encoded, as `Raw`.

        Raises BrokenThrift.
        """
        try:
            return self._structure(raw)
        except IndexError as error:
            raise TruncatedThrift("a structure ends too early") from error
        except RecursionError as error:
            raise BrokenThrift("structures are nested too deeply") from error

    def _structure(self, raw: frozenset[int] = frozenset()) -> dict[int, Any]:
        found: dict[int, Any] = {}
        data, number = self._data, 0
        while header := data[self.position]:
            self.position += 1
            kind, step = header & 15, header >> 4
            number = number + step if step else self._zigzag()
            found[number] = self._value(kind, keep=number in raw)
        self.position += 1
        return found

    def _value(self, kind: int, *, keep: bool = False) -> Any:
        if kind in _WHOLE:
            return self._zigzag()
        if kind in {_TRUE, _FALSE}:
            return kind == _TRUE
        if kind in {_LIST, _SET}:
            return self._list(keep=keep)
        if kind == _STRUCT:
            return self._structure()
        if kind not in _SIZES:
            raise BrokenThrift(f"unknown type {kind}")
        return self._bytes(_SIZES[kind] or self._varint())

    def count(self) -> int:
        """Read the header of a list at the position; returns its length."""
        count = self._data[self.position] >> 4
        self.position += 1
        return count if count < 15 else self._varint()

    def _list(self, *, keep: bool) -> list[Any]:
        kind, count = self._data[self.position] & 15, self.count()
        if kind in {_TRUE, _FALSE}:
            return [value == _TRUE for value in self._bytes(count)]
        if not (keep and kind == _STRUCT):
            return [self._value(kind) for _ in range(count)]
        found = []
        for _ in range(count):
            start = self.position
            self._structure()
            found.append(Raw(self._data[start : self.position]))
        return found

    def _bytes(self, count: int) -> bytes:
        start = self.position
        self.position += count
        if self.position > len(self._data):
            raise TruncatedThrift("a value ends too early")
        return self._data[start : self.position]

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        data, position = self._data, self.position
        value = shift = 0
        while (byte := data[position]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            position += 1
            if shift > 63:
                raise BrokenThrift("a number of more than 64 bits")
        self.position = position + 1
        return value | byte << shift


@dataclass(frozen=True, slots=True)
class I32:
    """An integer that is encoded as i32; a plain int is encoded as i64."""

    value: int


def encode(fields: Mapping[int, Any]) -> bytes:
    """Encode a structure of I32, int (i64), bytes, lists of one type, mappings and `Raw`."""
    out = bytearray()
    before = 0
    for number, value in sorted(fields.items()):
        assert 0 < number - before < 16
        out.append((number - before) << 4 | _kind(value))
        out += _encoded(value)
        before = number
    out.append(0)
    return bytes(out)


def _kind(value: Any) -> int:
    match value:
        case I32():
            return _I32
        case int():
            return _I64
        case bytes():
            return _BINARY
        case list():
            return _LIST
        case _:
            return _STRUCT


def _encoded(value: Any) -> bytes:
    match value:
        case I32(number) | int(number):
            return _varint(number << 1 if number >= 0 else ~(number << 1))
        case bytes():
            return _varint(len(value)) + value
        case list():
            kind = _kind(value[0])
            count = len(value)
            head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind])
            return head + (b"" if count < 15 else _varint(count)) + b"".join(map(_encoded, value))
        case Raw():
            return value.encoded
        case _:
            return encode(value)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
