"""Values in the binary format of PostgreSQL as the texts that it would write.

The formats are those of the send functions (`src/backend/utils/adt`), and the texts those of the
output functions with the settings of our connections (`connect`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.sources.postgresql.types.binary_values import HEX, Fields, NotItsType

MOST_BYTES = 256 << 20
"""Of the texts of a column: a number of a few bytes may have a text of 131,072 digits."""

_ZERO = ord("0")
_BASE_DIGITS = 4
_NEGATIVE, _NAN = 0x4000, 0xC000
_NAMES = {_NAN: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}
_SCALE = 0x3FFF
_DAY = 86_400_000_000
_INTERVAL = struct.Struct("!qii")
_INFINITE = {-(2**31), 2**31 - 1}
_V4, _V6 = 2, 3
_V4_BITS, _V6_BITS = 32, 128


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


def addresses(fields: Fields, *, is_network: bool) -> pa.Array:
    """Texts of `inet` and `cidr`: the family, the bits of the network, a byte without meaning for
    us, and the address with its size. is_network: the bits are always written."""
    family = _without_null(fields, fields.numbers("u1"))
    bits = _without_null(fields, fields.numbers("u1", 1)).astype(np.int64)
    sent = np.ones(len(bits), bool) if fields.is_null is None else ~fields.is_null
    fields.check_size(np.where(family == _V4, 8, 20))
    if not np.isin(family[sent], (_V4, _V6)).all():
        raise NotItsType("an address is of an unknown family")
    is_short = family == _V4
    chars, is_shown = _digits(len(bits), "000.000.000.000/00")
    is_shown[~is_short] = False
    for number in range(4):
        value = _without_null(fields, fields.numbers("u1", 4 + number)).astype(np.int64)
        for place, unit in enumerate((100, 10, 1)):
            at = 4 * number + place
            chars[:, at] = value // unit % 10 + _ZERO
            is_shown[:, at] &= (value >= unit) | (unit == 1)
    chars[:, 16], chars[:, 17] = bits // 10 + _ZERO, bits % 10 + _ZERO
    is_shown[:, 15:] &= (is_network | (bits != _V4_BITS))[:, None]
    is_shown[:, 16] &= bits >= 10
    short = _masked(fields, chars, is_shown)
    long = sent & ~is_short
    if not long.any():
        return short
    texts = [_long(value, is_network=is_network) for value in _bytes_of(fields, long)]
    return pc.replace_with_mask(short, pa.array(long), pa.array(texts, pa.string()))


def _long(value: bytes, *, is_network: bool) -> str:
    """An address of version 6, as `pg_inet_net_ntop` writes it."""
    words = [int.from_bytes(value[4 + 2 * i : 6 + 2 * i], "big") for i in range(8)]
    runs: list[tuple[int, int]] = []  # of zeros: how many, and where they begin, negative
    at = 0
    while at < len(words):
        end = at
        while end < len(words) and words[end] == 0:
            end += 1
        if end - at > 1:
            runs.append((end - at, -at))
        at = max(end, at + 1)
    length, begin = max(runs, default=(0, 0))
    begin = -begin
    is_v4 = begin == 0 and (length == 6 or (length == 5 and words[5] == 0xFFFF))
    parts = [f"{word:x}" for word in words]
    if is_v4:
        parts[6:] = [".".join(str(byte) for byte in value[16:20])]
    text = ":".join(parts)
    if length:
        text = ":".join(parts[:begin]) + "::" + ":".join(parts[begin + length :])
    return f"{text}/{value[1]}" if is_network or value[1] != _V6_BITS else text


def intervals(fields: Fields) -> pa.Array:
    """Texts of `interval` in the form of ISO 8601: microseconds, days and months."""
    fields.check_size(16)
    sent = np.ones(len(fields.begin), bool) if fields.is_null is None else ~fields.is_null
    known: dict[bytes, str] = {}
    for value in _bytes_of(fields, sent):
        if value not in known:
            known[value] = _interval(value)
    texts = pa.array([known[value] for value in _bytes_of(fields, sent)], pa.string())
    indexes = np.cumsum(sent) - 1
    return texts if sent.all() else texts.take(pa.array(indexes, mask=~sent))


def _interval(value: bytes) -> str:
    micros, days, months = _INTERVAL.unpack(value)
    if months in _INFINITE:
        raise NotItsType("an interval may be infinite")  # not before PostgreSQL 17
    date = f"{_part(_cut(months, 12), 'Y')}{_part(_rest(months, 12), 'M')}{_part(days, 'D')}"
    seconds, fraction = _cut(micros, 10**6), abs(_rest(micros, 10**6))
    hours, minutes = _cut(seconds, 3600), _cut(_rest(seconds, 3600), 60)
    left = abs(_rest(seconds, 60))
    time = f"{_part(hours, 'H')}{_part(minutes, 'M')}"
    if left or fraction:
        decimals = f".{fraction:06}".rstrip("0") if fraction else ""
        time += f"{'-' if micros < 0 else ''}{left}{decimals}S"
    return f"P{date}{'T' if time else ''}{time}" if date or time else "PT0S"


def _part(number: int, unit: str) -> str:
    return f"{number}{unit}" if number else ""


def _cut(number: int, by: int) -> int:
    """The quotient, rounded to zero."""
    return number // by if number >= 0 else -(-number // by)


def _rest(number: int, by: int) -> int:
    return number - by * _cut(number, by)


def _bytes_of(fields: Fields, which: np.ndarray) -> Iterator[bytes]:
    """Some of the values, one after the other."""
    content = fields.content
    begin, size = fields.begin[which].tolist(), fields.size[which].tolist()
    return (content[at : at + n].tobytes() for at, n in zip(begin, size, strict=True))


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
