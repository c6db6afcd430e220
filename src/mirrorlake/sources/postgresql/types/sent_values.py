"""Columns of values as pgoutput sends them in binary format, as Arrow arrays.

A COPY can be asked for the text of a column, and pgoutput has one format for all of them. So more
types are read here than by `binary_values`: their values become the text that PostgreSQL would
write, from the formats of the send functions (`src/backend/utils/adt`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.sources.postgresql.types.binary_values import (
    HEX,
    Fields,
    NotItsType,
    Read,
    binary_reader,
    booleans,
    jsonb_texts,
    texts,
    uuids,
)
from mirrorlake.sources.postgresql.types.mapping import Form
from mirrorlake.sources.postgresql.types.sent_arrays import Elements, arrays
from mirrorlake.sources.postgresql.types.values import ColumnDecoder

Write = Callable[[Fields], pa.Array]
"""Writes values as PostgreSQL does: string. Raises NotItsType, for what has to come as text."""

MOST_BYTES = 256 << 20
"""Of the texts of a column: a number of a few bytes may have a text of 131,072 digits."""

_ZERO = ord("0")
_BASE_DIGITS = 4
_NEGATIVE, _NAN = 0x4000, 0xC000
_NAMES = {_NAN: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_SCALE = 0x3FFF
_DAY = 86_400_000_000


class TextNeeded(Exception):
    """Values came in a binary format that is not read here: they have to come as text."""


def sent_reader(decoder: ColumnDecoder) -> Read | None:
    """What reads the values of a column; None for those that have to come as text."""
    sent, form = decoder.type.sent, decoder.type.form
    if form is Form.ARRAY:
        elements = _ELEMENTS.get(sent)
        if elements is None:
            return None
        return lambda fields: decoder.decode(arrays(fields, elements))
    if read := binary_reader(sent, decoder):
        return read
    write = _TEXTS.get(sent)
    if write is None or form not in {Form.TEXT, Form.DECIMAL}:
        return None
    return lambda fields: decoder.decode(write(fields))


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
    moments = _without_null(fields, fields.numbers(">i8"))
    if ((moments < 0) | (moments > _DAY)).any():
        raise NotItsType("a time is none of a day")
    seconds, fraction = np.divmod(moments, 1_000_000)
    chars = np.full((len(moments), 15), ord(":"), np.uint8)
    for at, value in ((0, seconds // 3600), (3, seconds // 60 % 60), (6, seconds % 60)):
        chars[:, at], chars[:, at + 1] = value // 10 + _ZERO, value % 10 + _ZERO
    chars[:, 8] = ord(".")
    zeros = np.zeros(len(moments), np.int64)  # at the end of the fraction
    for place in range(6):
        chars[:, 9 + place] = fraction // 10 ** (5 - place) % 10 + _ZERO
        zeros += fraction % 10 ** (place + 1) == 0
    return _cut(fields, chars, np.where(zeros == 6, 8, 15 - zeros))


def characters(fields: Fields) -> pa.Array:
    """Texts of `"char"`, of which zero is an empty one. Servers write others than ASCII in several
    ways."""
    fields.check_size(1)
    values = _without_null(fields, fields.numbers("u1"))
    if (values >= 0x80).any():
        raise NotItsType("a character is not ASCII")
    return _cut(fields, values[:, None], (values != 0).astype(np.int64))


def macs(fields: Fields, count: int) -> pa.Array:
    """Texts of `macaddr` and `macaddr8`, of so many bytes."""
    fields.check_size(count)
    chars = np.full((len(fields.begin), 3 * count - 1), ord(":"), np.uint8)
    for number in range(count):
        value = _without_null(fields, fields.numbers("u1", number))
        chars[:, 3 * number], chars[:, 3 * number + 1] = HEX[value >> 4], HEX[value & 15]
    return _cut(fields, chars, np.full(len(chars), chars.shape[1]))


def _integers(fields: Fields, sent: str) -> pa.Array:
    fields.check_size(np.dtype(sent).itemsize)
    values = fields.numbers(sent).astype(np.int64)
    return pa.array(values, mask=fields.is_null).cast(pa.string())


def _letters(fields: Fields) -> pa.Array:
    """Texts of `boolean`."""
    return pc.if_else(booleans(fields), "t", "f")


def _cut(fields: Fields, chars: np.ndarray, length: np.ndarray) -> pa.Array:
    """Texts that are the first bytes of rows of a matrix; none of NULL."""
    if fields.is_null is not None:
        length = np.where(fields.is_null, 0, length)
    return _strings(fields, chars[np.arange(chars.shape[1]) < length[:, None]], length)


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


_TEXTS: Mapping[int, Write] = {
    18: characters,
    774: partial(macs, count=8),
    829: partial(macs, count=6),
    1083: times,
    1700: numbers,
}
"""By the oid of a type what writes its values."""

_ANY_TEXT = Elements(texts, is_quoted=True)
_ELEMENTS: Mapping[int, Elements] = {
    16: Elements(_letters, 1),
    18: Elements(characters, 1, is_quoted=True),
    20: Elements(partial(_integers, sent=">i8"), 8),
    21: Elements(partial(_integers, sent=">i2"), 2),
    23: Elements(partial(_integers, sent=">i4"), 4),
    26: Elements(partial(_integers, sent=">u4"), 4),  # oid
    829: Elements(partial(macs, count=6), 6),
    1083: Elements(times, 8),
    1700: Elements(numbers),
    2950: Elements(uuids, 16),
    3802: Elements(jsonb_texts, is_quoted=True),
    **dict.fromkeys((19, 25, 114, 1042, 1043), _ANY_TEXT),  # name, text, json, bpchar, varchar
}
"""By the oid of their type."""
