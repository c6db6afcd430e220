"""Fragments of encoded rows: bytes that all rows share, or an array with the bytes of each row.

An encoded row is the concatenation of its fragments. A column gives one or several fragments, and
all are joined at once, so that no value becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Fragment: TypeAlias = bytes | pa.Array
"""Bytes that every row has, or a binary array without nulls with the bytes of each row."""

Encode = Callable[[pa.Array], list[Fragment]]
"""Encodes values without nulls."""


def joined(fragments: Iterable[Fragment], count: int) -> pa.Array:
    """The rows: binary, without nulls. Raises pa.ArrowCapacityError beyond 2 GiB."""
    merged = _merged(fragments)
    if not merged:
        return pa.repeat(_scalar(b""), count)
    if len(merged) == 1 and isinstance(merged[0], bytes):
        return pa.repeat(_scalar(merged[0]), count)
    if len(merged) == 1:
        return merged[0]
    columns = [_scalar(part) if isinstance(part, bytes) else part for part in merged]
    return pc.binary_join_element_wise(*columns, _scalar(b""))


def optional(values: pa.Array, encode: Encode, null: bytes, present: bytes) -> list[Fragment]:
    """Encode values of which some may be null. null: the bytes of a null; present: the prefix of a
    value."""
    if values.null_count == 0:
        return [present, *encode(values)]
    if values.null_count == len(values):
        return [null]
    marks = pc.if_else(values.is_null(), _scalar(null), _scalar(present))
    found = values.drop_null()
    rows = joined(encode(found), len(found))
    lengths = np.zeros(len(values), np.int64)
    lengths[values.is_valid().to_numpy(zero_copy_only=False)] = np.diff(offsets_of(rows))
    return [marks, binary(lengths, data_of(rows))]


def varints(values: np.ndarray) -> pa.Array:
    """Integers (int64) as Avro encodes them: zigzag, seven bits a byte."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    if len(rest) == 0:
        return pa.array([], pa.binary())
    width = max(1, -(-int(rest.max()).bit_length() // 7))
    digits = np.empty((len(rest), width), np.uint8)
    lengths = np.ones(len(rest), np.int64)
    for at in range(width):
        digits[:, at] = (rest & 0x7F) | 0x80
        rest = rest >> np.uint64(7)
        lengths += rest > 0
    digits[np.arange(len(digits)), lengths - 1] &= 0x7F
    return narrowed(digits, lengths)


def varint(value: int) -> bytes:
    """One integer, as in `varints`."""
    return bytes(varints(np.array([value], np.int64))[0].as_py())


def narrowed(matrix: np.ndarray, lengths: np.ndarray) -> pa.Array:
    """The first `lengths[i]` bytes of each row of a matrix."""
    width = matrix.shape[1]
    if (lengths == width).all():
        return binary(lengths, matrix.ravel())
    return binary(lengths, matrix[np.arange(width) < lengths[:, None]])


def fixed(matrix: np.ndarray) -> pa.Array:
    """The rows of a matrix of bytes as values."""
    count, width = matrix.shape
    return binary(np.full(count, width, np.int64), np.ascontiguousarray(matrix).ravel())


def binary(lengths: np.ndarray, data: np.ndarray | pa.Buffer) -> pa.Array:
    """Values of these lengths, whose bytes are concatenated in `data`."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    return pa.Array.from_buffers(pa.binary(), len(lengths), [None, pa.py_buffer(offsets), buffer])


def offsets_of(values: pa.Array) -> np.ndarray:
    """The offset of each value in its buffer, and the end of the last: int32."""
    if len(values) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(values.buffers()[1], np.int32)[
        values.offset : values.offset + len(values) + 1
    ]


def data_of(values: pa.Array) -> pa.Buffer:
    """The concatenated bytes of the values."""
    offsets = offsets_of(values)
    data = values.buffers()[2] if len(values) else None
    if data is None:
        return pa.py_buffer(b"")
    return data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def numbers_of(values: pa.Array, kind: Any = np.int64) -> np.ndarray:
    """Fixed-width values without nulls, as integers with the same bits."""
    width = values.type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], np.uint8)
    raw = raw[values.offset * width : (values.offset + len(values)) * width]
    return raw.view({4: np.int32, 8: np.int64, 2: np.int16, 1: np.int8}[width]).astype(kind)


def _merged(fragments: Iterable[Fragment]) -> Sequence[Fragment]:
    merged: list[Fragment] = []
    for fragment in fragments:
        if isinstance(fragment, bytes) and merged and isinstance(merged[-1], bytes):
            merged[-1] += fragment
        elif not isinstance(fragment, bytes) or fragment:
            merged.append(fragment)
    return merged


def _scalar(value: bytes) -> pa.Scalar:
    return pa.scalar(value, pa.binary())
