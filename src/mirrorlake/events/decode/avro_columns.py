"""Decodes Avro values into columns, one field of all rows at a time.

Every row has a cursor into the bytes. Each field is read for all rows together, and the cursors
advance. Afterwards each cursor must be at the start of the next row; otherwise the initial cursors
were wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from mirrorlake.events.decode.avro_scan import AvroWalk, items_at, number_at
from mirrorlake.events.decode.avro_types import AvroType
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.storage.varints import PADDING, TooLong, Varints

_TOGETHER = 8
"""Array elements that are read for all rows together; the rest of longer arrays is read row by
row."""

MOST_DIMENSIONS = 64

P = ParamSpec("P")
T = TypeVar("T")


class AvroColumns:
    """Reads values of one buffer. Cursors are int64 and stay inside the buffer.

    padded: the bytes, uint8, which end with PADDING.
    """

    def __init__(self, padded: np.ndarray, walks: AvroWalk) -> None:
        self._data, self._walk = padded, walks
        self._end = len(padded) - PADDING
        self._buffer = pa.py_buffer(padded)
        self._numbers = Varints(padded)

    @cached_property
    def _bytes(self) -> bytes:
        """For walks, which take one byte after the other; few types need them."""
        return self._data[: self._end].tobytes()

    def read(  # noqa: PLR0911  (one per type)
        self, kind: AvroType, at: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        """The values that start at these cursors, ascending, and the end of each.

        Integers become int64, strings and bytes binary, a record a struct, a union with null a
        nullable value; any other union becomes text, including its numbers. Raises
        UnreadableEvents.
        """
        match kind.kind:
            case "null":
                return pa.nulls(len(at)), at
            case "boolean":
                flags = self._take(at, 1)[:, 0]
                return pa.array(flags != 0), at + 1
            case "int" | "long":
                numbers, end = self.numbers(at)
                return pa.array(numbers), end
            case "float" | "double":
                width = 4 if kind.kind == "float" else 8
                raw = np.ascontiguousarray(self._take(at, width))
                return pa.array(raw.view(f"<f{width}")[:, 0]), at + width
            case "bytes" | "string":
                length, start = self.numbers(at)
                return self._spans(start, self._ends(start, length))
            case "fixed":
                return self._spans(at, self._ends(at, np.full(len(at), kind.size)))
            case "enum":
                number, end = self.numbers(at)
                if len(number) and not (number.min() >= 0 and number.max() < len(kind.names)):
                    raise UnreadableEvents("an enumeration has a symbol that the schema lacks")
                return pa.array(kind.names, pa.string()).take(pa.array(number)), end
            case "record" if is_nested_array(kind) or not kind.is_recursive:
                return self._record(kind, at)
            case "union":
                return self._union(kind, at)
            case "array":
                return self._array(kind.members[0], at)
            case _:  # a map or another recursive record, which is skipped: no unified type is one
                walk = self._walk.skip(kind)
                ends = np.array([walked(walk, self._bytes, one) for one in at.tolist()], np.int64)
                return pa.nulls(len(at)), ends

    def numbers(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Integers of up to 64 bits, as int64, and the end of each."""
        # Those that begin at the end of the buffer are read in its padding, and end beyond it.
        try:
            found, end = self._numbers.read(at)
        except TooLong as error:
            raise UnreadableEvents(str(error)) from None
        self._check(end)
        return found, end

    # -- bytes ------------------------------------------------------------------------------------

    def _check(self, end: np.ndarray) -> None:
        if len(end) and int(end.max()) > self._end:
            raise UnreadableEvents("a value goes beyond the end of its block")

    def _ends(self, start: np.ndarray, length: np.ndarray) -> np.ndarray:
        if len(length) and not (length.min() >= 0 and length.max() <= self._end):
            raise UnreadableEvents("a text has a length that its block does not have")
        end: np.ndarray = start + length
        self._check(end)
        return end

    def _take(self, at: np.ndarray, width: int) -> np.ndarray:
        self._check(at + width)
        found: np.ndarray = np.asarray(self._data[at[:, None] + np.arange(width)])
        return found

    def _spans(self, start: np.ndarray, end: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """The bytes from each start to its end: every second value of one array that also contains
        the bytes in between."""
        if not len(start):
            return pa.array([], pa.binary()), end
        if (start[1:] < end[:-1]).any():
            raise UnreadableEvents("the events of a block lie inside each other")
        offsets = np.empty(2 * len(start), np.int32)
        offsets[0::2], offsets[1::2] = start, end
        both = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._buffer]
        )
        return both.take(pa.array(np.arange(0, len(offsets) - 1, 2))), end

    # -- nested -----------------------------------------------------------------------------------

    def _record(self, kind: AvroType, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        if is_nested_array(kind):
            return self._nested_array(kind, at)
        columns = []
        for member in kind.members:
            values, at = self.read(member, at)
            columns.append(values)
        if not columns:
            return pa.nulls(len(at)), at
        return pa.StructArray.from_arrays(columns, kind.names), at

    def _union(self, kind: AvroType, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        branch, start = self.numbers(at)
        if len(branch) and not (branch.min() >= 0 and branch.max() < len(kind.members)):
            raise UnreadableEvents("a union has a branch that the schema lacks")
        inner = kind.optional
        if inner is None:
            return self._mixed(kind, branch, start)
        number = kind.members.index(inner)
        there = branch == number
        if there.all():
            return self.read(inner, start)
        rows = np.flatnonzero(there)
        end = start.copy()
        if not len(rows):
            # Read nothing, so that a recursive record terminates.
            return pa.nulls(len(at)), end
        values, end[rows] = self.read(inner, start[rows])
        places = np.zeros(len(at), np.int64)
        places[rows] = np.arange(len(rows))
        return values.take(pa.array(places, mask=~there)), end

    def _mixed(
        self, kind: AvroType, branch: np.ndarray, at: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        """A union of several types, as text: used by the sort keys (ST-044)."""
        parts, places = [pa.nulls(0, pa.string())], []
        end = at.copy()
        for number, member in enumerate(kind.members):
            rows = np.flatnonzero(branch == number)
            if not len(rows):
                continue
            values, after = self.read(member, at[rows])
            if member.kind == "record" or pa.types.is_nested(values.type):
                raise UnreadableEvents("a union of several types has one that is no plain value")
            if len(rows) == len(at):
                return texts(values), after
            end[rows] = after
            parts.append(texts(values))
            places.append(rows)
        order = np.argsort(np.concatenate([np.zeros(0, np.int64), *places]), kind="stable")
        return pa.concat_arrays(parts).take(pa.array(order)), end

    def _array(self, item: AvroType, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Lists: the first elements are read for all rows together, those of longer lists after a
        walk."""
        end, left = at.copy(), np.zeros(len(at), np.int64)
        active = np.arange(len(at))
        parts: list[tuple[pa.Array, np.ndarray]] = []  # values, and the row of each
        for _element in range(_TOGETHER):
            fresh = active[left[active] == 0]
            count, end[fresh] = self.numbers(end[fresh])
            sized = fresh[count < 0]
            _size, end[sized] = self.numbers(end[sized])
            left[fresh] = np.abs(count)
            active = active[left[active] != 0]
            if not len(active):
                break
            values, end[active] = self.read(item, end[active])
            parts.append((values, active))
            left[active] -= 1
        if len(active):
            parts = [
                (v.filter(pa.array(~np.isin(r, active))), np.setdiff1d(r, active)) for v, r in parts
            ]
            parts.append(self._long_arrays(item, at, active, end))
        rows = np.concatenate([np.zeros(0, np.int64), *(rows for _values, rows in parts)])
        values = joined([values for values, _rows in parts])
        if len(parts) > 1:
            # In most columns all lists have the same length.
            is_even = all(len(own) == len(at) for _values, own in parts)
            order = _by_row(len(at), len(parts)) if is_even else np.argsort(rows, kind="stable")
            values = values.take(pa.array(order))
        offsets = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(at)))))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values), end

    def _long_arrays(
        self, item: AvroType, at: np.ndarray, rows: np.ndarray, end: np.ndarray
    ) -> tuple[pa.Array, np.ndarray]:
        """The elements of the arrays of these rows, and the row of each; sets their ends."""
        walk = self._walk.skip(item)
        starts: list[int] = []
        counts = []

        def walk_items(data: bytes, start: int) -> tuple[list[int], int]:
            return items_at(data, start, walk)

        for row in rows.tolist():
            found, end[row] = walked(walk_items, self._bytes, int(at[row]))
            starts += found
            counts.append(len(found))
        return self.read(item, np.array(starts, np.int64))[0], np.repeat(rows, counts)

    def _nested_array(self, kind: AvroType, at: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        """Arrays of PostgreSQL (ST-134): their dimensions, and their elements in order."""
        walk = NestedArrays(self._bytes, kind, self._walk)
        starts: list[int] = []
        dimensions: list[list[int]] = []
        counts = [0]
        end = at.copy()
        for row, start in enumerate(at.tolist()):
            shape, end[row] = walked(walk.read, start, starts)
            dimensions.append(shape)
            counts.append(len(starts))
        values, _end = self.read(kind.members[1], np.array(starts, np.int64))
        elements = pa.ListArray.from_arrays(pa.array(counts, pa.int32()), values)
        shapes = pa.array(dimensions, pa.list_(pa.int32()))
        return pa.StructArray.from_arrays([shapes, elements], ["dimensions", "elements"]), end


def _by_row(rows: int, parts: int) -> np.ndarray:
    """Where the values of each row are, of which each part has one per row."""
    return np.arange(rows * parts).reshape(parts, rows).T.ravel()


class NestedArrays:
    """Walks over the arrays of one column, which are recursive records."""

    def __init__(self, data: bytes, kind: AvroType, walks: AvroWalk) -> None:
        self._data = data
        nested, element = kind.members
        self._null = [branch.kind == "null" for branch in nested.members]
        self._element = walks.skip(element)

    def read(self, at: int, starts: list[int], level: int = 0) -> tuple[list[int], int]:
        """The lengths in each dimension of the array that starts here, and its end. Appends the
        start of each element to `starts`. An element has no dimensions."""
        if level > MOST_DIMENSIONS:
            raise RecursionError
        branch, at = number_at(self._data, at)
        if branch < 0:
            raise IndexError
        if self._null[branch]:
            starts.append(at)
            return [], self._element(self._data, at)
        shape: list[int] | None = None
        length = 0
        while count_and_end := number_at(self._data, at):
            count, at = count_and_end
            if not count:
                break
            if count < 0:
                _size, at = number_at(self._data, at)
            if abs(count) > len(self._data) - at:
                raise IndexError
            for _element in range(abs(count)):
                inner, at = self.read(at, starts, level + 1)
                if shape is not None and inner != shape:
                    raise UnreadableEvents("an array has rows of different lengths")
                shape = inner
            length += abs(count)
        # The array has no value of its own.
        at = self._element(self._data, at)
        if not length:
            return ([0] if level else []), at
        return [length, *(shape or [])], at


def walked(walk: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of a walk over untrusted bytes. Raises UnreadableEvents."""
    try:
        return walk(*args, **kwargs)
    except IndexError:
        raise UnreadableEvents("an array goes beyond the end of its block") from None
    except RecursionError:
        raise UnreadableEvents("an array is nested too deep") from None


def is_nested_array(kind: AvroType) -> bool:
    """Whether a record type is that of an array of PostgreSQL."""
    if kind.names != ["nestedArray", "elementValue"]:
        return False
    array = kind.members[0].optional
    return array is not None and array.kind == "array" and array.members[0] is kind


def texts(values: pa.Array) -> pa.Array:
    """Scalar values as text. Raises UnreadableEvents for values that are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowException as error:
        raise UnreadableEvents(f"a text is not UTF-8: {str(error)[:100]}") from None


def joined(parts: list[pa.Array]) -> pa.Array:
    """Concatenated values; an array of only NULLs takes the type of the others."""
    kind = next((part.type for part in parts if not pa.types.is_null(part.type)), pa.null())
    return pa.concat_arrays([pa.nulls(0, kind), *(part.cast(kind) for part in parts)])
