"""Numbers that stand for the content of events, and texts that stand for the events themselves.

They are kept beside tables, so that they never change: nothing of a library decides about them.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.order.records import SECTION_NAMES
from mirrorlake.model.arrow import contiguous

_BASE = np.uint64(0x100000001B3)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def content_of(rows: pa.Table) -> np.ndarray:
    """A hash of each row, uint64: the same for the same values under the same names. A value that
    is NULL counts as one that is not there."""
    found = np.zeros(rows.num_rows, np.uint64)
    for name in rows.column_names:
        values = contiguous(rows.column(name))
        column = _mixed(_hashed(values) ^ _of_text(name))
        column[values.is_null().to_numpy(zero_copy_only=False)] = 0
        found += column
    return found


def identities(order: pa.Table) -> pa.Array:
    """What tells each event from all others, 16 bytes: its uuid where it has one, else place, times
    and content (ST-234). order: ORDER."""
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
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big"))


def _hashed(values: pa.Array) -> np.ndarray:
    """Of values of one type; of NULL anything."""
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
    """A polynomial of the bytes of each value."""
    values = pa.concat_arrays([values])
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1).astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    lengths = np.diff(ends)
    found: np.ndarray = lengths.astype(np.uint64)
    if not len(data):
        return found
    powers = np.cumprod(np.full(int(lengths.max()), _BASE, np.uint64))
    place = np.arange(len(data)) - np.repeat(ends[:-1], lengths)
    terms = _mixed(data.astype(np.uint64) + np.uint64(1)) * powers[place]
    full = lengths > 0
    found[full] += np.add.reduceat(terms, ends[:-1][full])
    return found


def _mixed(numbers: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
