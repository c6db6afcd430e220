"""Encodes values without nulls as JSON text, one column at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.encode.fragments import (
    Fragment,
    binary,
    data_of,
    fixed,
    joined,
    narrowed,
    numbers_of,
    offsets_of,
)

_BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8
)
_ESCAPES = {ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
_FIRST_MOMENT, _LAST_MOMENT = -62135596800, 253402300799
"""Seconds since the epoch of the years 1 to 9999, which have four digits."""
_HOUR, _MINUTE, _SECOND = 3_600_000_000, 60_000_000, 1_000_000


def digits(values: pa.Array) -> list[Fragment]:
    """Numbers and booleans as Arrow prints them, with all their digits."""
    return [values.cast(pa.string()).cast(pa.binary())]


def floats(values: pa.Array) -> list[Fragment]:
    """The shortest digits that parse to the same number; a string for values that JSON cannot
    represent."""
    found = values.cast(pa.string())
    if not pc.all(pc.is_finite(values), min_count=0).as_py():
        for printed, name in (("inf", "Infinity"), ("-inf", "-Infinity"), ("nan", "NaN")):
            found = pc.if_else(pc.equal(found, printed), f'"{name}"', found)
        found = pc.if_else(pc.equal(found, "-nan"), '"NaN"', found)
    return [found.cast(pa.binary())]


def quoted(values: pa.Array) -> list[Fragment]:
    """Quoted strings."""
    return [b'"', escaped(values), b'"']


def escaped(values: pa.Array) -> pa.Array:
    """Strings with JSON escapes, without quotes."""
    held = np.frombuffer(data_of(values), np.uint8)
    if (held == ord("\\")).any():
        values = pc.replace_substring(values, "\\", "\\\\")
    if (held == ord('"')).any():
        values = pc.replace_substring(values, '"', '\\"')
    if len(held) and held.min() < ord(" "):
        for code in np.unique(held[held < ord(" ")]).tolist():
            values = pc.replace_substring(values, chr(code), _ESCAPES.get(code, f"\\u{code:04x}"))
    return values.cast(pa.binary())


def nested_json(values: pa.Array) -> list[Fragment]:
    """JSON as it is, on one line: line breaks occur only between its tokens."""
    for end in ("\n", "\r"):
        values = pc.replace_substring(values, end, " ")
    return [values.cast(pa.binary())]


def days(values: pa.Array) -> list[Fragment]:
    """ISO 8601 dates; for a year without four digits, days since 1970."""
    return _calendar(values, numbers_of(values) * 86_400, 10, b"")


def moments(values: pa.Array, zone: bytes) -> list[Fragment]:
    """ISO 8601 moments without quotes, with the digits of their unit."""
    width = {"ms": 23, "us": 26}[values.type.unit]
    scale = 1_000 if values.type.unit == "ms" else 1_000_000
    return _calendar(values, np.floor_divide(numbers_of(values), scale), width, zone)


def timestamps(values: pa.Array) -> list[Fragment]:
    """Quoted moments; outside the calendar, microseconds since 1970 (ST-157)."""
    seconds = np.floor_divide(numbers_of(values), _SECOND)
    within = _within(seconds)
    if within.all():
        return [b'"', *moments(values, b"Z"), b'"']
    return _either(
        within,
        joined(timestamps(values.filter(pa.array(within))), int(within.sum())),
        digits(values.filter(pa.array(~within)).cast(pa.int64()))[0],
    )


def zoned(values: pa.Array, offset: np.ndarray) -> list[Fragment]:
    """Moments in local time at an offset (milliseconds) from UTC."""
    micros = numbers_of(values)
    within = _within(np.floor_divide(micros, _SECOND) - 86_400) & _within(
        np.floor_divide(micros, _SECOND) + 86_400
    )
    if within.all():
        local = pa.array(micros + offset * 1000).cast(pa.timestamp("us"))
        return [b'"', *moments(local, b""), *zones(offset), b'"']
    return _either(
        within,
        joined(zoned(values.filter(pa.array(within)), offset[within]), int(within.sum())),
        joined(timestamps(values.filter(pa.array(~within))), int((~within).sum())),
    )


def zones(offset: np.ndarray) -> list[Fragment]:
    """Offsets from UTC in milliseconds: `Z`, `+02:00`; with seconds if not zero."""
    if not offset.any():
        return [b"Z"]
    seconds = np.abs(offset) // 1000
    parts = (seconds // 3600, seconds // 60 % 60, seconds % 60)
    matrix = np.full((len(offset), 9), ord(":"), np.uint8)
    matrix[:, 0] = np.where(offset < 0, ord("-"), ord("+"))
    for at, part in zip((1, 4, 7), parts, strict=True):
        _two_digits(matrix, at, part)
    matrix[offset == 0, 0] = ord("Z")
    lengths = np.where(offset == 0, 1, np.where(parts[2] == 0, 6, 9))
    return [narrowed(matrix, lengths.astype(np.int64))]


def clock(micros: np.ndarray) -> pa.Array:
    """Times of day: `08:15:30.000000`."""
    matrix = np.full((len(micros), 15), ord(":"), np.uint8)
    _two_digits(matrix, 0, micros // _HOUR)
    _two_digits(matrix, 3, micros // _MINUTE % 60)
    _two_digits(matrix, 6, micros // _SECOND % 60)
    matrix[:, 8] = ord(".")
    rest = micros % _SECOND
    for at, unit in ((9, 10_000), (11, 100), (13, 1)):
        _two_digits(matrix, at, rest // unit % 100)
    return fixed(matrix)


def intervals(values: pa.StructArray) -> list[Fragment]:
    """ISO 8601 durations, each part with its sign: `P14MT-3H1.500000S`."""
    months, hours, micros = (pc.struct_field(values, n) for n in ("months", "hours", "micros"))
    # 19 digits, 6 of them after the decimal point.
    seconds = pa.Array.from_buffers(
        pa.decimal128(19, 6), len(values), [None, pa.py_buffer(_wide(numbers_of(micros)))]
    )
    return [b'"P', *digits(months), b"MT", *digits(hours), b"H", *digits(seconds), b'S"']


def base64(values: pa.Array) -> list[Fragment]:
    """Bytes as quoted base64."""
    offsets = offsets_of(values).astype(np.int64)
    lengths = np.diff(offsets)
    groups = -(-lengths // 3)
    source = np.frombuffer(data_of(values), np.uint8)
    padded = np.zeros(int(groups.sum()) * 3, np.uint8)
    shift = 3 * (np.cumsum(groups) - groups) - (offsets[:-1] - offsets[0])
    padded[np.arange(len(source)) + np.repeat(shift, lengths)] = source
    three = padded.reshape(-1, 3).astype(np.uint32)
    bits = three[:, 0] << 16 | three[:, 1] << 8 | three[:, 2]
    four = np.stack([_BASE64[bits >> at & 63] for at in (18, 12, 6, 0)], axis=1)
    lasts = np.cumsum(groups) - 1
    four[lasts[lengths % 3 != 0], 3] = ord("=")
    four[lasts[lengths % 3 == 1], 2] = ord("=")
    return [b'"', binary(4 * groups, np.ascontiguousarray(four).ravel()), b'"']


def _calendar(values: pa.Array, seconds: np.ndarray, width: int, zone: bytes) -> list[Fragment]:
    """Moments as Arrow prints them, with a fixed width as long as the year has four digits."""
    within = _within(seconds)
    if not within.all():
        inside = values.filter(pa.array(within))
        return _either(
            within,
            joined(_calendar(inside, seconds[within], width, zone), len(inside)),
            digits(pa.array(numbers_of(values)[~within]))[0],
        )
    text = np.frombuffer(data_of(values.cast(pa.string())), np.uint8).reshape(len(values), width)
    if width > 10:
        text = text.copy()
        text[:, 10] = ord("T")
    return [fixed(text), zone]


def _within(seconds: np.ndarray) -> np.ndarray:
    found: np.ndarray = (seconds >= _FIRST_MOMENT) & (seconds <= _LAST_MOMENT)
    return found


def _either(which: np.ndarray, these: pa.Array, those: pa.Array) -> list[Fragment]:
    """The values of two arrays, merged: `these` where `which` is true, else `those`."""
    order = np.empty(len(which), np.int64)
    order[which] = np.arange(len(these))
    order[~which] = len(these) + np.arange(len(those))
    return [pa.concat_arrays([these, those]).take(pa.array(order))]


def _two_digits(matrix: np.ndarray, at: int, number: np.ndarray) -> None:
    matrix[:, at] = ord("0") + number // 10
    matrix[:, at + 1] = ord("0") + number % 10


def _wide(values: np.ndarray) -> np.ndarray:
    """64-bit integers as 128 bits, the low half first."""
    wide = np.empty((len(values), 2), np.int64)
    wide[:, 0], wide[:, 1] = values, values >> 63
    return wide
