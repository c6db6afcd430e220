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

_WORD = 8
_IS_DIGIT_OR_SLASH = np.isin(np.arange(256), list(b"0123456789abcdefABCDEF/"))
_LAST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
_LOW, _ONES = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)
"""The lower half of each character, to which 9 is added for letters, whose bit 6 is set."""
_JOINS = [
    (np.uint64(0x00FF00FF00FF00FF), np.uint64(4)),
    (np.uint64(0x0000FFFF0000FFFF), np.uint64(8)),
    (np.uint64(0x00000000FFFFFFFF), np.uint64(16)),
]
"""How digits become half as many of twice the size: the bits that stay, and by how much others
move."""


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


def hexadecimal_pairs(column: pa.Array) -> tuple[ParsedNumbers, ParsedNumbers] | None:
    """Parse two numbers of at most eight hexadecimal digits with a slash between them, such as the
    LSNs of PostgreSQL; None if any text is another."""
    if column.null_count or not len(column):
        return None
    ends = np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, 4 * column.offset)
    ends = ends.astype(np.int64)
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    starts, ends = ends[:-1] - ends[0], ends[1:] - ends[0]
    slashes = np.flatnonzero(data == ord("/"))
    if len(slashes) != len(starts) or not (_IS_DIGIT_OR_SLASH[data]).all():
        return None
    first, second = slashes - starts, ends - slashes - 1
    for length in (first, second):  # also of a text in which another's slash would be
        if length.min() < 1 or length.max() > _WORD:
            return None
    padded = np.concatenate((np.zeros(_WORD, np.uint8), data))
    # The word that ends where a number does may begin at any byte.
    words = np.ndarray(len(data) + 1, ">u8", padded, strides=(1,))
    known = np.ones(len(column), bool)
    return (
        ParsedNumbers(_of_digits(words[slashes], first), known),
        ParsedNumbers(_of_digits(words[ends], second), known),
    )


def _of_digits(words: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The numbers of the last hexadecimal digits of words, so many of each."""
    text = words.astype(np.uint64) & _LAST_BYTES[length]
    found: np.ndarray = (text & _LOW) + (text >> np.uint64(6) & _ONES) * np.uint64(9)
    for stay, by in _JOINS:
        found = (found | found >> by) & stay
    return found


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
