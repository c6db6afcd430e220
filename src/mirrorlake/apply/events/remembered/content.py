"""Hashes of the content of events, and identities of events.

They are stored beside tables and must never change; therefore no library's hash is used.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.records import SECTION_NAMES
from mirrorlake.model.arrow import contiguous

_BASE = np.uint64(0x100000001B3)
_WORD = 8
_LARGE = 1 << 20
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def content_of(rows: pa.Table) -> np.ndarray:
    """A hash of each row, uint64: equal for equal values under equal names. NULL counts as a
    missing column."""
    found = np.zeros(rows.num_rows, np.uint64)
    for name in rows.column_names:
        values = contiguous(rows.column(name))
        column = _mixed(_hashed(values) ^ _of_text(name))
        column[values.is_null().to_numpy(zero_copy_only=False)] = 0
        found += column
    return found


def identities(order: pa.Table) -> pa.Array:
    """The identity of each event, 16 bytes: its uuid if it has one, else its position, times and
    content (ST-234). order: ORDER."""
    names = ["backfill", "log", *SECTION_NAMES, "source_ms", "deletion", "content"]
    places = zip(*(order.column(name).to_pylist() for name in names), strict=True)
    named = zip(
        order.column("read_batch").to_pylist(), order.column("counter").to_pylist(), strict=True
    )
    found = [
        _digest(("u", batch, counter) if batch or counter else ("p", *place))
        for (batch, counter), place in zip(named, places, strict=True)
    ]
    return pa.array(found, pa.binary())


def _digest(what: tuple[object, ...]) -> bytes:
    return hashlib.blake2b(repr(what).encode(), digest_size=16).digest()


def _of_text(text: str) -> np.uint64:
    return np.uint64(_of_large(text.encode()))


def _of_large(value: bytes | pa.Buffer) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")


def _hashed(values: pa.Array) -> np.ndarray:
    """Hashes of values of one type; undefined for NULL."""
    kind = values.type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
        kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _of_bytes(pc.fill_null(values.cast(pa.binary()), b""))
    if pa.types.is_floating(kind):
        wide = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
        bits: np.ndarray = np.where(np.isnan(wide), np.nan, wide).view(np.uint64)
        return bits
    if kind.bit_width == 32 and pa.types.is_temporal(kind):
        values = values.cast(pa.int32())
    whole = values.cast(pa.int64()) if not pa.types.is_boolean(kind) else values.cast(pa.int8())
    numbers = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)
    found: np.ndarray = np.ascontiguousarray(numbers.astype(np.int64)).view(np.uint64)
    return found


def _of_bytes(values: pa.Array) -> np.ndarray:
    """A polynomial of the 8-byte words of each value, zero-padded, and of its length. Large values
    are hashed one by one to save memory."""
    large = pc.greater(pc.binary_length(values), _LARGE).to_numpy(zero_copy_only=False)
    if large.any():
        which = pa.array(large)
        both = np.empty(len(values), np.uint64)
        both[~large] = _of_bytes(values.filter(pc.invert(which)))
        both[large] = [_of_large(value.as_buffer()) for value in values.filter(which)]
        return both
    values = pa.concat_arrays([values])
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1).astype(np.int64)
    lengths = np.diff(ends)
    found: np.ndarray = lengths.astype(np.uint64)
    counts = -(-lengths // _WORD)
    if not counts.any():
        return found
    data = values.buffers()[2].slice(ends[0], ends[-1] - ends[0]).to_pybytes() + bytes(_WORD)
    # A word may start at any byte.
    words = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    first = np.cumsum(counts) - counts
    place = np.arange(counts.sum()) - np.repeat(first, counts)
    found_words = words[np.repeat(ends[:-1] - ends[0], counts) + place * _WORD]
    rest = np.repeat(lengths, counts) - place * _WORD
    short = rest < _WORD
    found_words[short] &= (np.uint64(1) << (rest[short].astype(np.uint64) << 3)) - np.uint64(1)
    powers = np.cumprod(np.full(int(counts.max()), _BASE, np.uint64))
    terms = _mixed(found_words + np.uint64(1)) * powers[place]
    full = counts > 0
    found[full] += np.add.reduceat(terms, first[full])
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
