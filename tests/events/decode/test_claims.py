"""A schema or a header that claims more than the file has costs no memory and no time."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.reading import read_events
from tests.events.decode.claims import (
    ENDLESS,
    NODE,
    beside,
    chained,
    claimed_entries,
    claimed_value,
    deep,
    doubled,
    tree,
)
from tests.events.decode.files import event, payload

MOST = 24 << 20
"""Bytes; a part of a file that is read ahead has up to 16 MiB."""


@pytest.mark.clause("ST-024", "ST-253")
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (claimed_entries(), "the file ends within the header"),
        (claimed_value(), "the header is larger than"),
        ((doubled(31, "null"), b""), "200000 types"),
        ((doubled(31, "int"), bytes(1 << 20)), "200000 types"),
        ((chained(400), b""), "64 levels"),
        ((ENDLESS, b""), "event 1 of a block is nested too deep"),
        ((NODE, deep(5_000)), "event 1 of a block is nested too deep"),
    ],
    ids=["entries", "schema", "columns", "filled", "chain", "endless", "deep"],
)
def test_the_reason_of_a_claim(
    content: bytes | tuple[object, bytes], said: str, first: bool
) -> None:
    file = content if isinstance(content, bytes) else beside(*content, first=first)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableEvents, match=said):
            list(read_events(io.BytesIO(file)))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST


def test_a_record_that_holds_itself_beside_the_payload_is_passed_over() -> None:
    """Decoded, each of its 65,000 records would be a column."""
    file = beside(NODE, tree(15))
    tracemalloc.start()
    try:
        assert payload(file) == [event()["payload"]]
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST


def test_types_that_are_named_several_times_are_read() -> None:
    assert payload(beside(doubled(5, "int"), bytes(32))) == [event()["payload"]]
    assert payload(beside(chained(20), b"")) == [event()["payload"]]
