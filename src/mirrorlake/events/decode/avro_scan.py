"""Finds where the values of a block start, by walking over its bytes without decoding them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mirrorlake.events.decode.avro_types import AvroType
from mirrorlake.events.decode.errors import UnreadableEvents

Skip = Callable[[bytes, int], int]
"""Returns the end of the value that starts at an offset. Raises IndexError beyond the end of the
bytes."""

_PART = 1 << 20
"""Bytes that are searched at once, which fit into the cache of a processor."""

_LONGEST = 1 << 10
"""Bytes of a value above which it is not searched: each of them is looked at in each part."""

_FIXED = {"boolean": 1, "float": 4, "double": 8, "null": 0}


class AvroWalk:
    """Walks over values of one schema."""

    def __init__(self, record: AvroType) -> None:
        self._made: dict[int, Skip] = {}
        self._record = record
        self._skip = self.skip(record)

    def skip(self, kind: AvroType) -> Skip:
        """The walk over a value of this type."""
        known = self._made.get(id(kind))
        if known is not None:
            return known
        found: list[Skip] = []
        # A record may contain itself: until its walk is built, uses look it up.
        self._made[id(kind)] = lambda data, at: found[0](data, at)  # noqa: PLW0108  (not yet there)
        found.append(self._make(kind))
        self._made[id(kind)] = found[0]
        return found[0]

    def starts(self, data: bytes, count: int, *, is_cut: bool = False) -> np.ndarray:
        """The start of each of `count` records, and the end of the last: int64. is_cut: there are
        more bytes, so that these have fewer records as a whole.

        Raises UnreadableEvents when they do not fill the bytes exactly.
        """
        found = np.empty(count + 1, np.int64)
        at, index, skip, size = 0, 0, self._skip, len(data)
        try:
            for index in range(count):
                found[index] = at
                at = skip(data, at)
        except IndexError:
            if is_cut:
                return found[: index + 1]
            at = size + 1
        except RecursionError:
            raise UnreadableEvents(f"event {index + 1} of a block is nested too deep") from None
        if at != size:
            raise UnreadableEvents(f"the {count} events of a block do not fill its {size} bytes")
        found[count] = at
        return found

    def guessed(self, data: np.ndarray, first: bytes, count: int, field: str) -> np.ndarray | None:
        """Like `starts`, but faster: it searches for the value that `field` has in the first
        record, assuming that every record has this value at the same offset. The decoder verifies
        the result. None when the assumption cannot hold.

        data: uint8. first: bytes that begin as `data` does, with the whole first record.
        """
        if field not in self._record.names or not count:
            return None
        at = end = 0
        try:
            for name, kind in zip(self._record.names, self._record.members, strict=True):
                end = self.skip(kind)(first, at)
                if name == field:
                    break
                at = end
        except (IndexError, RecursionError):
            return None
        if not 0 < end - at <= _LONGEST:
            return None
        found = occurrences(data, first[at:end], count)
        return None if len(found) != count else np.append(found - at, len(data))

    def _make(self, kind: AvroType) -> Skip:  # noqa: PLR0911  (one per type)
        match kind.kind:
            case "null" | "boolean" | "float" | "double":
                return _fixed(_FIXED[kind.kind])
            case "fixed":
                return _fixed(kind.size)
            case "int" | "long" | "enum":
                return _number
            case "bytes" | "string":
                return _text
            case "array":
                return _repeated(self.skip(kind.members[0]))
            case "map":
                return _repeated(_chain([_text, self.skip(kind.members[0])]))
            case "union":
                return _union([self.skip(one) for one in kind.members])
            case _:
                return _chain([self.skip(one) for one in kind.members])


def occurrences(data: np.ndarray, value: bytes, most: int) -> np.ndarray:
    """Where these bytes occur, int64; of more than `most` places, more than `most` of them.

    Its rarest byte is searched first, as far as a part of the data tells which one that is. Memory:
    some MiB.
    """
    wanted = np.frombuffer(value, np.uint8)
    rarest = np.argsort(np.bincount(data[:_PART], minlength=256)[wanted], kind="stable")
    found, left = [np.zeros(0, np.int64)], most
    for start in range(0, len(data) - len(value) + 1, _PART):
        part = data[start : start + _PART + len(value) - 1]
        last = len(part) - len(value) + 1
        first, *others = rarest.tolist()
        at = np.flatnonzero(part[first : first + last] == wanted[first])
        for index in others:
            at = at[part[at + index] == wanted[index]]
        found.append(at + start)
        left -= len(at)
        if left < 0:
            break
    return np.concatenate(found)


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number and its end. Raises IndexError beyond the end of the bytes, or after ten bytes."""
    byte = data[at]
    at += 1
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > 63:
            raise IndexError
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if value >> 64:
        raise IndexError
    return (value >> 1) ^ -(value & 1), at


def _fixed(size: int) -> Skip:
    def skip(data: bytes, at: int) -> int:
        if at + size > len(data):
            raise IndexError
        return at + size

    return skip


def _number(data: bytes, at: int) -> int:
    for end in range(at, at + 10):
        if data[end] < 0x80:
            if end == at + 9 and data[end] > 1:
                break
            return end + 1
    raise IndexError


def _text(data: bytes, at: int) -> int:
    byte = data[at]
    if byte < 0x80:  # most texts are short
        length, at = byte >> 1, at + 1
        if byte & 1:
            raise IndexError
    else:
        length, at = number_at(data, at)
    end = at + length
    if length < 0 or end > len(data):
        raise IndexError
    return end


def _chain(skips: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for one in skips:
            at = one(data, at)
        return at

    return skip


def _union(skips: list[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        branch, at = number_at(data, at)
        if branch < 0:
            raise IndexError
        return skips[branch](data, at)

    return skip


def _repeated(item: Skip) -> Skip:
    return lambda data, at: items_at(data, at, item)[1]


def items_at(data: bytes, at: int, item: Skip) -> tuple[list[int], int]:
    """The start of each element of an array, and the end of the array."""
    starts: list[int] = []
    while True:
        count, at = number_at(data, at)
        if not count:
            return starts, at
        if count < 0:  # the size of the elements follows
            count = -count
            _size, at = number_at(data, at)
        # An element has at least one byte: elements without bytes could be counted without bound.
        if count > len(data) - at:
            raise IndexError
        for _element in range(count):
            starts.append(at)
            at = item(data, at)
