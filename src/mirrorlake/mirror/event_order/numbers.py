"""Parses columns of text as numbers, because positions are never compared as text (ST-211)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import contiguous

_LARGEST = str(2**64 - 1)
_HEXADECIMAL_DIGITS = 16
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


@dataclass(frozen=True, slots=True)
class ParsedNumbers:
    """value: uint64 per row, 0 if there is none; known: bool, whether the row has a number."""

    value: np.ndarray
    known: np.ndarray


def whole(column: pa.Array) -> ParsedNumbers:
    """Parse integers of any width, or texts of decimal digits (ST-028).

    NULL, negative numbers, numbers of more than 64 bits and other texts are not known.
    """
    if pa.types.is_integer(column.type):
        allowed = pc.and_(column.is_valid(), pc.greater_equal(column, 0))
        return _numbers(column, allowed)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        digits = pc.utf8_ltrim(column, "0")
        width = pc.utf8_length(digits)
        fits = pc.or_(pc.less(width, 20), pc.and_(pc.equal(width, 20), _at_most_largest(digits)))
        shaped = pc.match_substring_regex(column, "^[0-9]+$")
        return _numbers(column, pc.and_(shaped, fits))
    return _numbers(pa.nulls(len(column), pa.uint64()), pa.array(np.zeros(len(column), bool)))


def hexadecimal(column: pa.Array) -> ParsedNumbers:
    """Parse hexadecimal digits of up to 64 bits, with or without leading zeros."""
    digits = pc.utf8_ltrim(column, "0")
    prefixed = pc.binary_join_element_wise("0x", pc.if_else(pc.equal(digits, ""), "0", digits), "")
    fits = pc.less_equal(pc.binary_length(digits), _HEXADECIMAL_DIGITS)
    try:
        return _numbers(prefixed, pc.and_(fits, pc.not_equal(column, "")))
    except pa.ArrowInvalid:  # some have other characters: matching takes longer
        shaped = pc.match_substring_regex(column, "^0*[0-9a-fA-F]{1,16}$")
        return _numbers(prefixed, shaped)


def as_hexadecimal(values: np.ndarray) -> pa.Array:
    """The 16 hexadecimal digits of each number (uint64); texts sort as the numbers."""
    shifts = np.arange(60, -4, -4, dtype=np.uint64)
    digits = _DIGITS[((values[:, None] >> shifts) & np.uint64(15)).astype(np.int64)]
    fixed = pa.Array.from_buffers(
        pa.binary(16), len(values), [None, pa.py_buffer(np.ascontiguousarray(digits))]
    )
    return fixed.cast(pa.binary()).cast(pa.string())


def _numbers(column: pa.Array, allowed: pa.Array) -> ParsedNumbers:
    known = pc.fill_null(allowed, False)
    chosen = pc.if_else(known, column, pa.scalar(None, column.type))
    value = contiguous(pc.fill_null(chosen.cast(pa.uint64()), 0))
    return ParsedNumbers(value.to_numpy(), known.to_numpy(zero_copy_only=False))


def _at_most_largest(digits: pa.Array) -> pa.Array:
    return pc.less_equal(digits, pa.scalar(_LARGEST, digits.type))
