"""Hashes of rows.

They are stored beside tables, and in landed files, and must never change; therefore no library's
hash is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import contiguous

_BASE = np.uint64(0x100000001B3)
_WORD = 8
_LARGE = 1 << 20
_SHORT = 64 * _WORD
"""Bytes of a value whose words are hashed with the same ones of other values."""
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)

HASHES = 256
"""How many different hashes `HashRange` tells apart."""


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


@dataclass(frozen=True, slots=True)
class HashRange:
    """The rows of which a hash of some columns, less than HASHES, is at least `first` and less than
    `end`. Equal values have equal hashes, in whole numbers, decimals, floating point, and dates and
    moments of any width and scale.

    columns: in this order; in any case. A row that lacks one has NULL. kinds: their types in the
    source, of which other values may come.
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    first: int = 0
    end: int = HASHES

    def of(self, rows: pa.Table) -> np.ndarray:
        """The hash of each row; uint8."""
        names = {name.casefold(): name for name in rows.column_names}
        found = np.zeros(rows.num_rows, np.uint64)
        for index, name in enumerate(self.columns):
            if (there := names.get(name.casefold())) is None:
                continue
            values = _comparable(contiguous(rows.column(there)))
            column = _mixed(_hashed(values) ^ _of_text(str(index)))
            column[values.is_null().to_numpy(zero_copy_only=False)] = 0
            found += column
        return (_mixed(found) >> np.uint64(56)).astype(np.uint8)

    def contains(self, rows: pa.Table) -> np.ndarray:
        """Whether each row is in the range; bool."""
        found = self.of(rows)
        return np.asarray((found >= self.first) & (found < self.end))

    def as_record(self) -> dict[str, Any]:
        kinds = list(self.kinds)
        return {"columns": list(self.columns), "kinds": kinds, "first": self.first, "end": self.end}

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `as_record`. Raises ValueError, KeyError, TypeError."""
        columns, kinds = (tuple(map(str, record[name])) for name in ("columns", "kinds"))
        found = cls(columns, kinds, int(record["first"]), int(record["end"]))
        if not 0 <= found.first <= found.end <= HASHES:
            raise ValueError(f"not a range of hashes: {found.first} to {found.end}")
        return found


def _comparable(values: pa.Array) -> pa.Array:
    kind = values.type
    if pa.types.is_floating(kind):
        return pc.add(values.cast(pa.float64()), 0.0)  # negative zero becomes zero
    if pa.types.is_decimal(kind):  # each has one text at the scale that all fit in
        return values.cast(pa.decimal256(76, 38)).cast(pa.string())
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return values.cast(pa.timestamp("us")).cast(pa.int64())
    return values


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
        return _of_bytes(values.cast(pa.binary()))
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
    if not len(values):
        return np.zeros(0, np.uint64)
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    ends = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    lengths = np.where(valid, np.diff(ends), 0)
    large = lengths > _LARGE
    if large.any():
        which = pa.array(large)
        both = np.empty(len(values), np.uint64)
        both[~large] = _of_bytes(values.filter(pc.invert(which)))
        both[large] = [_of_large(value.as_buffer()) for value in values.filter(which)]
        return both
    first, last = int(ends[0]), int(ends[-1])
    data = np.zeros(last - first + _WORD, np.uint8)
    if last > first:
        data[:-_WORD] = np.frombuffer(values.buffers()[2], np.uint8)[first:last]
    # A word may start at any byte.
    words = np.ndarray(len(data) - _WORD + 1, "<u8", data, strides=(1,))
    starts = ends[:-1].astype(np.int64) - first
    short, found = lengths <= _SHORT, np.empty(len(values), np.uint64)
    for which, hashed in ((short, _of_short), (~short, _of_long)):
        if which.any():
            found[which] = hashed(words, starts[which], lengths[which])
    return found


def _of_short(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The first words of all values, then the second ones, and so on."""
    found: np.ndarray = lengths.astype(np.uint64)
    rows = np.flatnonzero(lengths)
    at, left, power = starts[rows], lengths[rows], np.full(1, _BASE)
    while len(rows):
        found[rows] += _mixed(_cut(words[at], left) + np.uint64(1)) * power
        longer = left > _WORD
        if not longer.all():
            rows, at, left = rows[longer], at[longer], left[longer]
        at, left, power = at + _WORD, left - _WORD, power * _BASE
    return found


def _of_long(words: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """All words at once, so that one long value does not take a step for each of its words."""
    found: np.ndarray = lengths.astype(np.uint64)
    counts = -(-lengths // _WORD)
    first = np.cumsum(counts) - counts
    place = np.arange(counts.sum()) - np.repeat(first, counts)
    at = np.repeat(starts, counts) + place * _WORD
    cut = _cut(words[at], np.repeat(lengths, counts) - place * _WORD)
    powers = np.cumprod(np.full(int(counts.max()), _BASE, np.uint64))
    found += np.add.reduceat(_mixed(cut + np.uint64(1)) * powers[place], first)
    return found


def _cut(words: np.ndarray, left: np.ndarray) -> np.ndarray:
    """The words without what follows their values, which have so many bytes from there on."""
    ends = left < _WORD
    words[ends] &= (np.uint64(1) << (left[ends].astype(np.uint64) << np.uint64(3))) - np.uint64(1)
    return words


def _mixed(numbers: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(30))
    mixed *= _FIRST
    mixed ^= mixed >> np.uint64(27)
    mixed *= _SECOND
    mixed ^= mixed >> np.uint64(31)
    return mixed
