"""The hashes of rows, which are stored beside tables: they never change."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.model import row_hashes
from mirrorlake.model.row_hashes import content_of
from tests.profiles import tries

SHORT = 64 * 8
_WHOLE = 2**64


@settings(max_examples=tries(60))
@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 2))
@example([bytes(range(256)) * 2, b"a" * (SHORT + 1), b"", None, b"b" * 2000, b"c"], 1)
@example([b"a" * 2000, None], 0)
@example([None, None], 0)
@example([b"a"], 1)
@example([b"\xff" * 8, b"\xff" * 7, b"\0", b"\0\0"], 0)
def test_bytes_have_the_hash_of_their_words(values: list[bytes | None], skipped: int) -> None:
    rows = pa.table({"a": pa.array(values, pa.binary()).slice(skipped)})
    assert content_of(rows).tolist() == [_hash_of("a", value) for value in values[skipped:]]


def test_null_counts_as_missing_whatever_bytes_are_there() -> None:
    values = pa.array([b"one", b"two", b"three"])
    _valid, ends, data = values.buffers()
    masked = pa.Array.from_buffers(pa.binary(), 3, [pa.py_buffer(b"\x05"), ends, data])
    assert masked.to_pylist() == [b"one", None, b"three"]
    expected = [_hash_of("a", b"one"), 0, _hash_of("a", b"three")]
    assert content_of(pa.table({"a": masked})).tolist() == expected


def test_large_values_are_hashed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_hashes, "_LARGE", 20)
    values = [b"x" * 21, b"y" * 20, None, b"z"]
    large = int.from_bytes(hashlib.blake2b(values[0] or b"", digest_size=8).digest(), "big")
    expected = [_mixed(large ^ _name("a")), *(_hash_of("a", value) for value in values[1:])]
    assert content_of(pa.table({"a": pa.array(values)})).tolist() == expected


def _hash_of(name: str, value: bytes | None) -> int:
    if value is None:
        return 0
    found, power = len(value), 1
    for start in range(0, len(value), 8):
        power = power * 0x100000001B3 % _WHOLE
        word = int.from_bytes(value[start : start + 8], "little")
        found += _mixed((word + 1) % _WHOLE) * power
    return _mixed(found % _WHOLE ^ _name(name))


def _name(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _mixed(number: int) -> int:
    number ^= number >> 30
    number = number * 0xBF58476D1CE4E5B9 % _WHOLE
    number ^= number >> 27
    number = number * 0x94D049BB133111EB % _WHOLE
    return number ^ number >> 31
