"""Arrays in the binary format of PostgreSQL, as the texts that it would write.

The format is that of `array_send`: the number of dimensions, whether there are NULLs, the type of
the elements; of each dimension its length and lower bound; then the size and bytes of each element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.sources.postgresql.types.binary_values import Fields, NotItsType, numbers_at

MOST_ELEMENTS = 10_000
"""Of an array whose elements have to be found one after the other."""

_HEAD, _DIMENSION, _SIZE = 12, 8, 4
_MOST_DIMENSIONS = 6


@dataclass(frozen=True, slots=True)
class Elements:
    """write: texts of elements, as without an array around them; size: bytes of each, 0 if they
    differ; is_quoted: the texts may have any characters."""

    write: Callable[[Fields], pa.Array]
    size: int = 0
    is_quoted: bool = False


def arrays(fields: Fields, elements: Elements) -> pa.Array:
    """Texts of arrays, in which every element is quoted that could be. Raises NotItsType."""
    sent = np.ones(len(fields.begin), bool) if fields.is_null is None else ~fields.is_null
    dimensions = np.where(sent, fields.numbers(">i4"), 0)
    if ((dimensions < 0) | (dimensions > _MOST_DIMENSIONS)).any():
        raise NotItsType(f"an array has more than {_MOST_DIMENSIONS} dimensions")
    count = (dimensions > 0).astype(np.int64)
    lengths, lowest = [], []
    for dimension in range(int(dimensions.max(initial=0))):
        has = dimensions > dimension
        at = np.where(has, _HEAD + _DIMENSION * dimension, 0)
        lengths.append(np.where(has, fields.numbers(">i4", at), 1))
        lowest.append(np.where(has, fields.numbers(">i4", np.where(has, at + _SIZE, 0)), 1))
        count *= lengths[-1]
    found, end = _found(fields, count, _HEAD + _DIMENSION * dimensions, elements.size)
    if (end - fields.begin != fields.size)[sent].any():
        raise NotItsType("an array has other elements than it says")
    texts = elements.write(found)
    if elements.is_quoted:
        for special in ("\\", '"'):
            texts = pc.replace_substring(texts, special, "\\" + special)
        texts = pc.binary_join_element_wise('"', texts, '"', "")
    texts = _nested(pc.fill_null(texts, "NULL"), count, dimensions, lengths)
    bounds = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=bounds[1:])
    lists = pa.ListArray.from_arrays(pa.array(bounds), texts)
    before = _bounds(dimensions, lengths, lowest)
    whole = pc.binary_join_element_wise(before, "{", pc.binary_join(lists, ","), "}", "")
    return whole if sent.all() else pc.if_else(pa.array(sent), whole, None)


def _bounds(
    dimensions: np.ndarray, lengths: Sequence[np.ndarray], lowest: Sequence[np.ndarray]
) -> pa.Array | str:
    """What stands before arrays: the bounds of all dimensions, if one begins elsewhere than at 1.
    lengths, lowest: of each dimension in each array."""
    is_odd = np.zeros(len(dimensions), bool)
    for low in lowest:
        is_odd |= low != 1
    if not is_odd.any():
        return ""
    texts = [""] * len(dimensions)
    for row in np.flatnonzero(is_odd).tolist():
        both = zip(lowest[: dimensions[row]], lengths[: dimensions[row]], strict=True)
        bounds = [f"[{low[row]}:{low[row] + n[row] - 1}]" for low, n in both]
        texts[row] = "".join(bounds) + "="
    return pa.array(texts, pa.string())


def _nested(
    texts: pa.Array, count: np.ndarray, dimensions: np.ndarray, lengths: Sequence[np.ndarray]
) -> pa.Array:
    """The elements with the braces of all dimensions but the first around them. lengths: of each
    dimension in each array."""
    if len(lengths) <= 1:
        return texts
    row, number = _numbered(count)
    opened, closed = np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    within = np.ones(len(count), np.int64)
    for dimension in reversed(range(1, len(lengths))):
        within *= lengths[dimension]
        has = (dimensions > dimension)[row]
        opened += has & (number % within[row] == 0)
        closed += has & (number % within[row] == within[row] - 1)
    begin, end = pc.binary_repeat("{", pa.array(opened)), pc.binary_repeat("}", pa.array(closed))
    return pc.binary_join_element_wise(begin, texts, end, "")


def _numbered(count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each element of all arrays, which array it is in, and its number there."""
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)


def _found(
    fields: Fields, count: np.ndarray, head: np.ndarray, size: int
) -> tuple[Fields, np.ndarray]:
    """The elements of all arrays, one after the other, and where each array ends. head: bytes
    before them."""
    content, begin = fields.content, fields.begin + head
    if size:
        row, number = _numbered(count)
        at = begin[row] + number * (_SIZE + size)
        fits = at + _SIZE + size <= (fields.begin + fields.size)[row]
        if fits.all() and (numbers_at(content, ">i4", at) == size).all():
            sizes = np.full(len(row), size)
            return Fields(content, at + _SIZE, sizes, None), begin + count * (_SIZE + size)
    if count.max(initial=0) > MOST_ELEMENTS:
        raise NotItsType("an array has too many elements")
    at, rows, done = begin.copy(), np.flatnonzero(count > 0), 0
    steps: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    last = len(content) - _SIZE
    while len(rows):
        if (at[rows] > last).any():
            raise NotItsType("an array ends before its elements")
        sizes = numbers_at(content, ">i4", at[rows]).astype(np.int64)
        steps.append((rows, at[rows] + _SIZE, sizes))
        at[rows] += _SIZE + np.maximum(sizes, 0)
        done += 1
        rows = rows[count[rows] > done]
    if not steps:
        nothing = np.zeros(0, np.int64)
        return Fields(content, nothing, nothing, None), at
    row, start, sizes = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(row, kind="stable")
    start, sizes = start[order], sizes[order]
    is_null = sizes < 0
    sizes = np.maximum(sizes, 0)
    return Fields(content, start, sizes, is_null if is_null.any() else None), at
