"""Values in the binary format of PostgreSQL as the texts that it would write.

The formats are those of the send functions (`src/backend/utils/adt`), and the texts those of the
output functions with the settings of our connections (`connect`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mirrorlake.sources.postgresql.types.binary_values import HEX, Fields, NotItsType

MOST_BYTES = 256 << 20
"""Of the texts of a column: a number of a few bytes may have a text of 131,072 digits."""

_ZERO = ord("0")
_BASE_DIGITS = 4
_NEGATIVE, _NAN = 0x4000, 0xC000
_NAMES = {_NAN: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_SCALE = 0x3FFF
_DAY = 86_400_000_000


def numbers(fields: Fields) -> pa.Array:
    """Texts of `numeric`: the digits of base 10000, of which the first may have zeros in front, up
    to the scale."""
    head = fields.numbers(">i8")
    sent = np.ones(len(head), bool) if fields.is_null is None else ~fields.is_null
    head[~sent] = 0
    count, power = head >> 48, (head >> 32).astype(np.int16).astype(np.int64)
    sign, scale = head >> 16 & 0xFFFF, head & _SCALE
    fields.check_size(8 + 2 * count)
    first = np.where(count > 0, fields.numbers(">i2", np.where(count > 0, 8, 0)), 0)
    digits = 1 + (first >= 10) + (first >= 100) + (first >= 1000)
    whole = np.where(power < 0, 1, np.maximum(power, 0) * _BASE_DIGITS + digits) * sent
    is_odd = sign >= _NAN
    minus = (sign == _NEGATIVE).astype(np.int64)
    length = minus + whole + np.where(scale > 0, scale + 1, 0)
    for code, name in _NAMES.items():
        length[sign == code] = len(name)
    begin, out = _room(length)
    point = begin + minus + whole
    out[begin[minus > 0]] = ord("-")
    out[point[(scale > 0) & ~is_odd]] = ord(".")
    rows = np.flatnonzero((count > 0) & ~is_odd)
    group = 0
    while len(rows):
        digit = fields.only(rows).numbers(">i2", 8 + 2 * group).astype(np.int64)
        left = power[rows] - group  # groups behind this one up to the point
        at = point[rows] - (left + 1) * _BASE_DIGITS + (left < 0)
        start, end = begin[rows] + minus[rows], begin[rows] + length[rows]
        for place in range(_BASE_DIGITS):
            char = digit // 10 ** (_BASE_DIGITS - 1 - place) % 10 + _ZERO
            fits = (at + place >= start) & (at + place < end)
            out[(at + place)[fits]] = char[fits]
        group += 1
        rows = rows[count[rows] > group]
    for row in np.flatnonzero(is_odd).tolist():
        name = _NAMES[int(sign[row])]
        out[begin[row] : begin[row] + len(name)] = np.frombuffer(name, np.uint8)
    return _strings(fields, out, length)


def times(fields: Fields) -> pa.Array:
    """Texts of `time`: microseconds of the day, of which there are `24:00:00` as well."""
    fields.check_size(8)
    return _masked(fields, *_clocks(_without_null(fields, fields.numbers(">i8"))))


def zoned_times(fields: Fields) -> pa.Array:
    """Texts of `timetz`: those of `time`, and the seconds that the zone is west of UTC."""
    fields.check_size(12)
    chars, is_shown = _clocks(_without_null(fields, fields.numbers(">i8")))
    west = _without_null(fields, fields.numbers(">i4", 8)).astype(np.int64)
    zone, of_zone = _digits(len(west), "+00:00:00")
    zone[west > 0, 0] = ord("-")
    east = np.abs(west)
    for at, value in ((1, east // 3600), (4, east // 60 % 60), (7, east % 60)):
        zone[:, at], zone[:, at + 1] = value // 10 + _ZERO, value % 10 + _ZERO
    of_zone[:, 3:6] = (east % 3600 != 0)[:, None]
    of_zone[:, 6:] = (east % 60 != 0)[:, None]
    return _masked(fields, np.hstack((chars, zone)), np.hstack((is_shown, of_zone)))


def _clocks(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds as texts, as of `_masked`."""
    if ((moments < 0) | (moments > _DAY)).any():
        raise NotItsType("a time is none of a day")
    seconds, fraction = np.divmod(moments, 1_000_000)
    chars, is_shown = _digits(len(moments), "00:00:00.000000")
    for at, value in ((0, seconds // 3600), (3, seconds // 60 % 60), (6, seconds % 60)):
        chars[:, at], chars[:, at + 1] = value // 10 + _ZERO, value % 10 + _ZERO
    is_shown[:, 8] = fraction != 0
    for place in range(6):
        left = 10 ** (6 - place)  # what is left behind the places before
        chars[:, 9 + place] = fraction % left // (left // 10) + _ZERO
        is_shown[:, 9 + place] = fraction % left != 0
    return chars, is_shown


def characters(fields: Fields) -> pa.Array:
    """Texts of `"char"`, of which zero is an empty one. Servers write others than ASCII in several
    ways."""
    fields.check_size(1)
    values = _without_null(fields, fields.numbers("u1"))
    if (values >= 0x80).any():
        raise NotItsType("a character is not ASCII")
    return _masked(fields, values[:, None], (values != 0)[:, None])


def macs(fields: Fields, count: int) -> pa.Array:
    """Texts of `macaddr` and `macaddr8`, of so many bytes."""
    fields.check_size(count)
    chars = np.full((len(fields.begin), 3 * count - 1), ord(":"), np.uint8)
    for number in range(count):
        value = _without_null(fields, fields.numbers("u1", number))
        chars[:, 3 * number], chars[:, 3 * number + 1] = HEX[value >> 4], HEX[value & 15]
    return _masked(fields, chars, np.ones(chars.shape, bool))


def _digits(count: int, form: str) -> tuple[np.ndarray, np.ndarray]:
    """So many texts like this one, as of `_masked`."""
    row = np.frombuffer(form.encode(), np.uint8)
    return np.tile(row, (count, 1)), np.ones((count, len(row)), bool)


def _masked(fields: Fields, chars: np.ndarray, is_shown: np.ndarray) -> pa.Array:
    """Texts of the bytes in each row of a matrix that are shown; none of NULL."""
    if fields.is_null is not None:
        is_shown = is_shown & ~fields.is_null[:, None]
    return _strings(fields, chars[is_shown], is_shown.sum(axis=1))


def _room(length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where texts of these lengths begin, and as many zeros. Raises NotItsType."""
    end = np.cumsum(length)
    total = int(end[-1]) if len(end) else 0
    if total > MOST_BYTES:
        raise NotItsType(f"numbers have {total:,} digits together")
    return end - length, np.full(total, _ZERO, np.uint8)


def _strings(fields: Fields, data: np.ndarray, length: np.ndarray) -> pa.Array:
    offsets = np.zeros(len(length) + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    buffers = [fields.validity(), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.string(), len(length), buffers, fields.nulls())


def _without_null(fields: Fields, values: np.ndarray) -> np.ndarray:
    """With zero where NULL is."""
    return (
        values
        if fields.is_null is None
        else np.where(fields.is_null, 0, values).astype(values.dtype)
    )
