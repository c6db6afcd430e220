"""Numbers of Avro that are read together, and the search for the bytes that begin events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrorlake.events.decode import avro_scan
from mirrorlake.events.decode.avro_columns import AvroColumns
from mirrorlake.events.decode.avro_scan import AvroWalk, number_at, occurrences
from mirrorlake.events.decode.avro_types import parse_schema
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.storage.varints import PADDING
from tests.profiles import tries

LOW, HIGH = -(2**63), 2**63 - 1


@settings(max_examples=tries(100))
@given(st.lists(st.integers(LOW, HIGH)), st.integers(0, 2))
@example([LOW, HIGH, 0, -1, 63, 64, 2**55, -(2**56), 2**62, -(2**62)], 0)
def test_numbers_are_read_as_one_by_one(numbers: list[int], more: int) -> None:
    # A number may be longer than it has to be.
    encoded = [_encoded(number, more) for number in numbers]
    data = b"".join(encoded)
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    found, ends = _columns(data).numbers(starts[:-1])
    assert found.tolist() == numbers
    assert ends.tolist() == starts[1:].tolist()
    assert [number_at(data, at) for at in starts[:-1].tolist()] == list(
        zip(numbers, ends.tolist(), strict=True)
    )


@pytest.mark.parametrize("data", [b"\x80", b"\xff" * 8, b"\xff" * 9, b"\xff" * 3])
def test_a_number_that_the_data_does_not_have_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableEvents, match="beyond the end"):
        _columns(data).numbers(np.array([0]))


@pytest.mark.parametrize("last", [b"\x02", b"\x7f", b"\x81\x00"])
def test_a_number_of_more_than_64_bits_is_refused(last: bytes) -> None:
    with pytest.raises(UnreadableEvents, match="more than 64 bits"):
        _columns(b"\xff" * 9 + last + bytes(3)).numbers(np.array([0]))


@settings(max_examples=tries(100))
@given(
    st.lists(st.sampled_from(["ab", "a", "b", "aab", "\0"])), st.sampled_from(["ab", "aab", "b"])
)
def test_bytes_are_found_wherever_they_are(parts: list[str], value: str) -> None:
    data, sought = "".join(parts).encode(), value.encode()
    places = [at for at in range(len(data)) if data.startswith(sought, at)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(avro_scan, "_PART", 3)  # so that they lie across the parts, too
        found = occurrences(np.frombuffer(data, np.uint8), sought, len(places))
        assert found.tolist() == places
        if places:
            assert len(occurrences(np.frombuffer(data, np.uint8), sought, len(places) - 1)) >= 1


@pytest.mark.parametrize("size", [100, 50_000])
def test_only_short_values_are_searched(size: int) -> None:
    # Each byte of the value is compared in each part of the data.
    walk = AvroWalk(
        parse_schema(
            b'{"type": "record", "name": "r", "fields": [{"name": "object", "type": "string"}]}'
        )
    )
    event = _encoded(size, 0) + b"t" * size
    found = walk.guessed(np.frombuffer(event * 3, np.uint8), event, 3, "object")
    expected = [0, len(event), 2 * len(event), 3 * len(event)]
    assert (None if found is None else found.tolist()) == (expected if size == 100 else None)


def _columns(data: bytes) -> AvroColumns:
    padded = np.frombuffer(data + bytes(PADDING), np.uint8)
    return AvroColumns(
        padded, AvroWalk(parse_schema(b'{"type": "record", "name": "r", "fields": []}'))
    )


def _encoded(number: int, more: int) -> bytes:
    rest = (number << 1) ^ (number >> 63)
    found = bytearray()
    while rest >= 0x80:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    for _byte in range(min(more, 10 - len(found))):
        found[-1] |= 0x80
        found.append(0)
    return bytes(found)
