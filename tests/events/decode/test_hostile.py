"""Avro files that are damaged, or made to do harm: a reason, and no memory."""

from __future__ import annotations

import contextlib
import io
import json
import tracemalloc
import zlib
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.decode import avro_events as module
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.reading import read_events
from tests.events.decode.files import (
    avro,
    column,
    event,
    nested,
    payload,
    read,
    repacked,
    schema,
)
from tests.profiles import ACTIVE, tries

GOOD = avro([event(n) for n in range(20)], sync_interval=1_000)


def reason(content: bytes) -> str:
    with pytest.raises(UnreadableEvents) as caught:
        list(read_events(io.BytesIO(content)))
    return str(caught.value)


def with_header(schema_text: bytes, codec: str = "null") -> bytes:
    head = io.BytesIO()
    told = {"avro.schema": schema_text, "avro.codec": codec.encode()}
    fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, told)
    return b"Obj\x01" + head.getvalue() + bytes(16)


def block(count: int, data: bytes, size: int | None = None) -> bytes:
    out = io.BytesIO()
    for number in (count, len(data) if size is None else size):
        fastavro.schemaless_writer(out, "long", number)
    return out.getvalue() + data + bytes(16)


def of_schema(fields: list[dict[str, Any]]) -> bytes:
    told = {"type": "record", "name": "r", "fields": fields}
    return with_header(json.dumps(told).encode())


PLAIN = with_header(json.dumps(schema()).encode())


@pytest.mark.clause("ST-253")
def test_a_file_that_ends_anywhere_is_refused() -> None:
    whole = payload(GOOD)
    blocks_end = {len(GOOD)}
    for end in range(4, len(GOOD), 7):
        try:
            found = payload(GOOD[:end])
        except UnreadableEvents:
            continue
        # Only where a block ends is what is left a file.
        blocks_end.add(end)
        assert found == whole[: len(found)]
    assert len(blocks_end) < 20


@pytest.mark.full
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Obj\x01", "ends within the header"),
        (b"Obj\x01" + b"\xff" * 20, "more than 64 bits"),
        (with_header(b"{}"), "has a type"),
        (with_header(b"{"), "not JSON"),
        (with_header(b'"string"'), "not a record"),
        (with_header(b"[" * 100_000), "not JSON"),
        (with_header(json.dumps(schema()).encode(), "zip"), "codec b'zip'"),
        (PLAIN + block(-1, b""), "-1 events"),
        (PLAIN + block(1, b"", 1 << 60), "has 1 events in"),
        (PLAIN + block(1, b"", 200 << 20), "ends within block 1"),
        (PLAIN + block(1 << 40, b"ab"), "says that it has"),
        (PLAIN + block(3, b"ab"), "cannot have"),
        (PLAIN + block(1, b"ab"), "do not fill"),
        (PLAIN + block(1, b"\x01" * 500), "do not fill"),
        (GOOD[:-16] + bytes(16), "sync marker"),
        (of_schema([{"name": "payload", "type": "string"}]), "is none of events"),
        (of_schema([{"name": "a", "type": "string"}] * 2), "two fields"),
        (of_schema([{"name": "a", "type": "unheard"}]), "names the type 'unheard'"),
        (
            of_schema([{"name": "a", "type": {"type": "fixed", "name": "f", "size": 1 << 40}}]),
            "fixed",
        ),
        (of_schema([{"name": f"c{n}", "type": "int"} for n in range(30_000)]), "20000 types"),
    ],
    ids=range(20),
)
def test_what_is_wrong_is_said(content: bytes, said: str) -> None:
    assert said in reason(content)


def test_a_schema_that_is_nested_deep_is_refused() -> None:
    kind: Any = "int"
    for _level in range(200):
        kind = {"type": "array", "items": kind}
    assert "64 levels" in reason(of_schema([{"name": "a", "type": kind}]))


@pytest.mark.parametrize("precision", [0, -1, 77, 2 * 10**9, "many", None])
def test_a_decimal_that_no_type_holds_is_refused(precision: Any) -> None:
    told = schema([column(types.decimal(4, 2))])
    told["fields"][-1]["type"]["fields"][0]["type"][1]["precision"] = precision
    assert "none of events" in reason(with_header(json.dumps(told).encode()))


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_block_that_is_damaged_or_unpacks_to_too_much_is_refused(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = (
        repacked(avro([event()]), codec)
        if codec in {"snappy", "zstandard"}
        else avro([event()], codec=codec)
    )
    assert payload(packed) == [event()["payload"]]
    middle = len(packed) - 60
    damaged = packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :]
    with contextlib.suppress(UnreadableEvents):
        assert payload(damaged)  # a codec without a checksum may not see it
    monkeypatch.setattr("mirrorlake.events.decode.avro_file.MOST_BLOCK", 100)
    assert "the event, or one before it in its block" in read(packed).rejected[0]


def test_a_block_is_unpacked_no_further_than_a_block_may_be_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirrorlake.events.decode.avro_file.MOST_BLOCK", 1 << 20)
    zeros = zlib.compressobj(9, wbits=-15)
    packed = b"".join(zeros.compress(bytes(1 << 20)) for _part in range(30)) + zeros.flush()
    content = with_header(json.dumps(schema()).encode(), "deflate") + block(5, packed)
    tracemalloc.start()
    try:
        assert "do not fill its 1048576 bytes" in reason(content)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_arrays_without_an_end_and_nested_without_one_are_refused() -> None:
    told = schema([column(types.array(types.INTEGER))])
    head = avro([], told)
    file = module.AvroFile(io.BytesIO(head))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(told), event(payload={"c": None}))
    start = body.getvalue()[:-1]
    for tail in (b"\x02\x02" * 50_000, b"\x02" + b"\xfe\xff\xff\xff\x0f" * 3, b"\x02\x01\x7f"):
        data = start + tail
        content = head + block(1, data)[:-16] + head[-16:]
        assert "block" in reason(content) or "nested" in reason(content)
    assert file.schema.kind == "record"
    assert read(avro([event(payload={"c": nested([1], [1])})], told)).payload.num_rows == 1


@pytest.mark.clause("ST-253")
def test_values_that_do_not_fit_are_said_of_their_events() -> None:
    events = [event(n) for n in range(3)]
    broken = avro(events).replace(b"\x04v1", b"\x04\xff\xff")
    found = read(broken)
    assert found.rejected == {1: "the value of column val is no STRING"}
    assert found.payload.to_pylist()[2] == {"id": 2, "val": "v2"}


def test_an_event_that_is_too_large_is_said_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENT", 1000)
    events = [event(n, payload={"id": n, "val": "x" * (2000 if n == 1 else 1)}) for n in range(3)]
    found = read(avro(events))
    assert list(found.rejected) == [1]
    assert "more than 1000" in found.rejected[1]


@pytest.mark.clause("ST-177", "ST-253")
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_only_what_stands_behind_the_end_of_what_is_read_of_a_block_is_not_read(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers end a block behind a large event, so that small ones before it are read."""
    text = "".join(map(chr, range(33, 127))) * 1_000
    sizes = {5: 20_000, 9: 90_000}
    events = [event(n, payload={"id": n, "val": text[: sizes.get(n, 9)]}) for n in range(20)]
    plain = codec in {"snappy", "zstandard"}
    content = avro(events, codec="null" if plain else codec, sync_interval=30_000)
    content = repacked(content, codec) if plain else content
    monkeypatch.setattr("mirrorlake.events.decode.avro_file.MOST_BLOCK", 50_000)
    monkeypatch.setattr(module, "MOST_EVENT", 10_000)
    found = list(read_events(io.BytesIO(content)))
    rejected = {batch.first + row: why for batch in found for row, why in batch.rejected.items()}
    rows = [batch.first + row for batch in found for row in range(len(batch))]
    assert rows == list(range(20))
    ids = [one for batch in found for one in batch.payload.column("id").to_pylist()]
    unread = [one for one in rows if ids[one] != one]
    # Snappy cannot be unpacked in part.
    assert unread == (list(range(10)) if codec == "snappy" else [9])
    assert rejected.keys() == {5, *unread}


@pytest.mark.full
@pytest.mark.parametrize("count", [7, 2_000])
def test_a_large_block_is_read_in_parts(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOGETHER", 5_000)
    monkeypatch.setattr(module, "_MOST_TOGETHER", 70)
    events = [event(n, payload={"id": n, "val": "x" * (n % 7 * 1_000)}) for n in range(count)]
    content = avro(events, sync_interval=1 << 30)
    batches = list(read_events(io.BytesIO(content)))
    assert len(batches) > 1
    assert all(len(batch) <= 70 for batch in batches)
    assert [batch.first for batch in batches][1] == len(batches[0])
    assert payload(content) == [one["payload"] for one in events]


def test_memory_is_that_of_a_batch_however_large_the_file_is() -> None:
    events = [event(n, payload={"id": n, "val": "x" * 10_000}) for n in range(200)]
    whole = avro(events)
    head, body = avro([]), whole[len(avro([])) :]
    sync = whole[-16:]
    content = head[:-16] + sync + body * 20
    tracemalloc.start()
    try:
        rows = sum(len(batch) for batch in read_events(io.BytesIO(content)))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 4_000
    assert peak < 64 << 20


@pytest.mark.fuzz
@settings(max_examples=20_000 if ACTIVE == "fuzz" else tries(100))
@given(st.binary(min_size=1, max_size=8), st.integers(0, len(GOOD)), st.integers(0, 8))
def test_damage_anywhere_is_a_reason_and_nothing_else(part: bytes, at: int, cut: int) -> None:
    damaged = GOOD[:at] + part + GOOD[at + cut :]
    try:
        for batch in read_events(io.BytesIO(damaged)):
            assert len(batch) == batch.payload.num_rows == len(batch.empty)
    except UnreadableEvents:
        pass


LINE = (json.dumps(event(1)) + "\n").encode()


@pytest.mark.fuzz
@settings(max_examples=20_000 if ACTIVE == "fuzz" else tries(100))
@given(st.binary(min_size=1, max_size=8), st.integers(0, 3 * len(LINE)), st.integers(0, 8))
def test_damaged_lines_are_reasons_and_nothing_else(part: bytes, at: int, cut: int) -> None:
    damaged = (LINE * 3)[:at] + part + (LINE * 3)[at + cut :]
    try:
        for batch in read_events(io.BytesIO(damaged)):
            assert len(batch) == len(batch.empty)
    except UnreadableEvents:
        pass
