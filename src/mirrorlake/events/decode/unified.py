"""Converts Avro values to the unified types (ST-112 to ST-134)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType

_DAY = 86_400_000_000
_WORD = 8
_TEXTS = {UnifiedKind.STRING, UnifiedKind.VARCHAR, UnifiedKind.JSON}
_NUMBER = r"^(?i:[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?|nan|[+-]?inf(inity)?)$"


def unified(values: pa.Array, kind: UnifiedType) -> pa.Array:  # noqa: PLR0911  (one per type)
    """The values of a column, of the `payload_type` of its unified type.

    Raises pa.ArrowException, ValueError or OverflowError when a value does not fit.
    """
    target = payload_type(kind)
    if pa.types.is_null(values.type) or kind.kind is UnifiedKind.UNSUPPORTED:
        return pa.nulls(len(values), target)
    match kind.kind:
        case UnifiedKind.DECIMAL:
            return _decimals(values, target)
        case UnifiedKind.DATE:
            return values.cast(pa.int32()).cast(target)
        case UnifiedKind.DATETIME:
            days = pc.multiply_checked(pc.struct_field(values, "date"), _DAY)
            found = pc.add_checked(days, pc.struct_field(values, "time"))
            return found.cast(pa.int64()).cast(target)
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            return _arrays(values, kind.element, target)
        case _ if pa.types.is_struct(target):
            return _struct(values, target)
        case UnifiedKind.NUMBER:
            return numbers(values.cast(pa.string()))
        case _ if kind.kind in _TEXTS:
            return values.cast(pa.string())
        case _:
            return values.cast(target)


def numbers(texts: pa.Array) -> pa.Array:
    """The same texts. Raises ValueError if one of them is no number (ST-124)."""
    if not pc.all(pc.match_substring_regex(texts, _NUMBER), min_count=0).as_py():
        raise ValueError("a text is no number")
    return texts


def _struct(values: pa.StructArray, target: pa.StructType) -> pa.Array:
    members = [pc.struct_field(values, field.name).cast(field.type) for field in target]
    return pa.StructArray.from_arrays(members, fields=list(target), mask=values.is_null())


def _arrays(values: pa.StructArray, element: UnifiedType, target: pa.StructType) -> pa.Array:
    dimensions, lists = pc.struct_field(values, "dimensions"), pc.struct_field(values, "elements")
    length = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(length))), pa.int32())
    elements = pa.ListArray.from_arrays(offsets, unified(lists.flatten(), element))
    return pa.StructArray.from_arrays(
        [dimensions.cast(target.field(0).type), elements.cast(target.field(1).type)],
        fields=list(target),
        mask=values.is_null(),
    )


def _decimals(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Two's complement, big-endian, in as many bytes as each value has."""
    width = target.bit_width // 8
    length = pc.fill_null(pc.binary_length(values), 1).to_numpy(zero_copy_only=False)
    if len(length) and not (length.min() > 0 and length.max() <= width):
        raise ValueError("a decimal has no digits, or too many")
    plain = pa.concat_arrays([pc.fill_null(values, b"\x00").cast(pa.large_binary())])
    starts = np.frombuffer(plain.buffers()[1], np.int64, len(plain))
    flat = np.frombuffer(plain.buffers()[2] or b"", np.uint8)
    if not len(length) or length.max() <= _WORD:
        found = _short_decimals(flat, starts, length, target)
        return pc.if_else(values.is_valid(), found, pa.scalar(None, target))
    # Starting at the last byte, which is the lowest; the rest is filled with the sign.
    back = np.arange(width)
    inside = back < length[:, None]
    sign = np.where(flat[starts] >= 0x80, 0xFF, 0).astype(np.uint8)
    places = np.where(inside, (starts + length - 1)[:, None] - back, 0)
    raw = np.where(inside, flat[places], sign[:, None])
    found = _decimals_of(np.ascontiguousarray(raw), target)
    return pc.if_else(values.is_valid(), found, pa.scalar(None, target))


def _short_decimals(
    flat: np.ndarray, starts: np.ndarray, length: np.ndarray, target: pa.DataType
) -> pa.Array:
    """Decimals of at most eight bytes each."""
    padded = np.zeros(len(flat) + _WORD, np.uint8)
    padded[: len(flat)] = flat
    # A value may start at any byte; what follows it in its word is shifted out.
    words = np.ndarray(len(flat) + 1, ">i8", padded, strides=(1,))
    numbers = words[starts].astype(np.int64) >> (8 * (_WORD - length)).astype(np.int64)
    parts = np.empty((len(numbers), target.bit_width // 64), np.int64)
    parts[:, 0] = numbers
    parts[:, 1:] = (numbers >> np.int64(63))[:, None]
    return _decimals_of(parts, target)


def _decimals_of(raw: np.ndarray, target: pa.DataType) -> pa.Array:
    """Decimals of their bytes, the lowest first. Raises pa.ArrowException for a digit too many."""
    found = pa.Array.from_buffers(target, len(raw), [None, pa.py_buffer(raw)])
    found.validate(full=True)
    return found
