"""Encodes nested arrays, from the innermost dimension outwards (ST-134), and plain lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.encode.fragments import (
    Encode,
    Fragment,
    binary,
    data_of,
    joined,
    offsets_of,
    optional,
)


@dataclass(frozen=True, slots=True)
class Nesting:
    """How a format encodes an array.

    element, after: the bytes before and after the value of an element.
    group: the bytes before the elements, given their number; close: after them.
    empty: an array without elements.
    separator: before every element except the first of its array.
    """

    element: bytes
    group: Callable[[np.ndarray], list[Fragment]]
    close: bytes
    empty: bytes
    after: bytes = b""
    separator: bytes = b""


def nested(values: pa.StructArray, encode: Encode, form: Nesting) -> pa.Array:
    """Encode each array. values: without nulls, of the `payload_type` of an array.

    encode: encodes elements, which may be null. Raises ValueError when the elements do not fill the
        dimensions.
    """
    dimensions = pc.struct_field(values, "dimensions")
    elements = pc.struct_field(values, "elements")
    depth = pc.list_value_length(dimensions).to_numpy(zero_copy_only=False)
    found: list[pa.Array] = []
    indexes: list[np.ndarray] = []
    for one in np.unique(depth):
        rows = np.flatnonzero(depth == one)
        chosen = pa.array(rows)
        lengths = dimensions.take(chosen).flatten().to_numpy().reshape(len(rows), one)
        flat = elements.take(chosen).flatten()
        if one == 0:
            found.append(joined([form.empty], len(rows)))
        else:
            found.append(_of_depth(flat, lengths.astype(np.int64), encode, form))
        indexes.append(rows)
    order = np.argsort(np.concatenate(indexes), kind="stable") if indexes else np.empty(0, np.int64)
    return pa.concat_arrays(found).take(pa.array(order)) if found else pa.array([], pa.binary())


def listed(values: pa.ListArray, encode: Encode, form: Nesting) -> list[Fragment]:
    """Encode each list of a field of the metadata. values: without nulls.

    Raises ValueError when an element is null.
    """
    if len(values) == 0:
        return []
    if values.flatten().null_count:
        raise ValueError("null in a list where a value has to be")
    is_empty = pc.equal(pc.list_value_length(values), 0)
    held = pc.if_else(is_empty, pa.scalar(None, values.type), values)

    def of_elements(found: pa.ListArray) -> list[Fragment]:
        lengths = pc.list_value_length(found).to_numpy().astype(np.int64)
        return [_of_depth(found.flatten(), lengths[:, None], encode, form)]

    return optional(held, of_elements, form.empty, b"")


def _of_depth(flat: pa.Array, lengths: np.ndarray, encode: Encode, form: Nesting) -> pa.Array:
    """Encode arrays with the same number of dimensions. lengths: arrays x dimensions."""
    if int(lengths.prod(axis=1).sum()) != len(flat):
        raise ValueError("the elements of an array do not fill its dimensions")
    fragments: list[Fragment] = [form.element, *encode(flat), form.after]
    for level in reversed(range(lengths.shape[1])):
        # The sizes of the groups at this level, for all arrays.
        counts = np.repeat(lengths[:, level], lengths[:, :level].prod(axis=1).astype(np.int64))
        ends = np.cumsum(counts)
        inner = joined([*_separators(ends, form.separator), *fragments], int(ends[-1]))
        offsets = offsets_of(inner).astype(np.int64)[np.concatenate(([0], ends))]
        fragments = [*form.group(counts), binary(np.diff(offsets), data_of(inner)), form.close]
    return joined(fragments, len(lengths))


def _separators(ends: np.ndarray, separator: bytes) -> list[Fragment]:
    """The separator before each element of groups that end at `ends`."""
    if not separator:
        return []
    lengths = np.full(int(ends[-1]), len(separator), np.int64)
    lengths[0] = lengths[ends[:-1]] = 0
    return [binary(lengths, np.frombuffer(separator * int(ends[-1]), np.uint8))]
