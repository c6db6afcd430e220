"""Avro files and JSON lines, as others read them."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.encode.avro import avro_rows
from mirrorlake.events.encode.container import BLOCK_BYTES, container
from mirrorlake.events.encode.fragments import varints
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType
from tests.events.values import (
    KINDS,
    Drawn,
    clock,
    columns,
    decoded,
    described,
    moment,
    nested,
    physical,
    rows,
    zone_of,
)
from tests.profiles import tries


def avro_file(drawn: list[Drawn], *, deflate: bool = False) -> bytes:
    return b"".join(container(described(drawn), rows(drawn), deflate=deflate))


def lines(drawn: list[Drawn]) -> list[dict[str, Any]]:
    text = b"".join(json_lines(described(drawn), rows(drawn))).decode()
    assert text.endswith("\n")
    found = text.removesuffix("\n").split("\n")
    return [json.loads(line, parse_float=Decimal, parse_int=Decimal) for line in found]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other) or (
            math.isnan(one) and math.isnan(other)
        )
    return bool(one == other)


@pytest.mark.clause("ST-016", "ST-020", "ST-099", "ST-135")
@settings(max_examples=tries(100))
@given(columns(KINDS))
def test_a_reader_of_avro_finds_every_value(drawn: list[Drawn]) -> None:
    found = decoded(avro_file(drawn))
    for one in drawn:
        expected = [physical(one.column.type, value) for value in one.values]
        told = [event["payload"][one.column.name] for event in found]
        assert all(map(same, told, expected)), (one.column, told, expected)


def as_json(kind: UnifiedType, value: Any) -> Any:  # noqa: PLR0911, PLR0912
    match kind.kind:
        case _ if value is None:
            return None
        case UnifiedKind.BYTES:
            return base64.b64encode(value).decode()
        case UnifiedKind.DATE:
            return moment(value * 86_400_000_000, "")[:10]
        case UnifiedKind.DATETIME:
            return moment(value, "")
        case UnifiedKind.DOUBLE | UnifiedKind.FLOAT if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case UnifiedKind.GEOMETRY:
            return {**value, "value": base64.b64encode(value["value"]).decode()}
        case UnifiedKind.INTERVAL:
            seconds = Decimal(value["micros"]).scaleb(-6)
            return f"P{value['months']}MT{value['hours']}H{seconds:.6f}S"
        case UnifiedKind.JSON:
            return json.loads(value, parse_float=Decimal, parse_int=Decimal)
        case UnifiedKind.TIME:
            return clock(value)
        case UnifiedKind.TIMESTAMP:
            return moment(value, "Z")
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            beyond = isinstance(moment(value["timestamp"], ""), Decimal)
            shift = 0 if beyond else value["offset"] * 1000
            return moment(value["timestamp"] + shift, zone_of(value["offset"]))
        case UnifiedKind.TIME_WITH_TIME_ZONE:
            return clock(value["time"]) + zone_of(value["offset"])
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            element = kind.element
            return nested(value, lambda one: as_json(element, one))
        case _:
            return value


def same_json(kind: UnifiedType, told: Any, expected: Any) -> bool:
    if isinstance(expected, float):
        read = float(told)
        return read == expected if kind is types.DOUBLE else np.float32(read) == expected
    return bool(told == expected)


@pytest.mark.clause("ST-019", "ST-025", "ST-028", "ST-099", "ST-135")
@settings(max_examples=tries(100))
@given(columns(KINDS))
def test_a_reader_of_json_finds_every_value(drawn: list[Drawn]) -> None:
    found = lines(drawn)
    for one in drawn:
        kind = one.column.type
        for event, value in zip(found, one.values, strict=True):
            told = event["payload"][one.column.name]
            assert same_json(kind, told, as_json(kind, value)), (kind, told, value)


ONE = [Drawn(EventColumn("id", types.LONG), [1]), Drawn(EventColumn("val", types.LONG), [None])]
EVENT = {
    "uuid": "ee7534b0-71d8-4164-8ad8-1eaf00000000",
    "read_timestamp": "2025-01-21T11:09:21.898Z",
    "source_timestamp": "2025-01-21T11:08:15.000Z",
    "object": "shop_orders",
    "read_method": "mysql-cdc-binlog",
    "stream_name": "projects/0/locations/us-central1/streams/s",
    "schema_key": described(ONE).schema_key,
    "sort_keys": [1737457695000, "mysql-bin.000131", 4],
    "source_metadata": {
        "table": "orders",
        "database": "shop",
        "primary_keys": ["c0"],
        "log_file": "mysql-bin.000131",
        "log_position": 4,
        "change_type": "INSERT",
        "is_deleted": False,
    },
    "payload": {"id": 1, "val": None},
}


@pytest.mark.clause("ST-010", "ST-013", "ST-025", "ST-026", "ST-044", "ST-199")
def test_an_event_of_json_is_this_line() -> None:
    content = b"".join(json_lines(described(ONE), rows(ONE)))
    assert content == json.dumps(EVENT, separators=(",", ":")).encode() + b"\n"


@pytest.mark.clause("ST-010", "ST-013", "ST-022", "ST-044", "ST-199")
def test_an_event_of_avro_has_these_values_in_this_order() -> None:
    (found,) = decoded(avro_file(ONE))
    times = {"read_timestamp": 1737457761898, "source_timestamp": 1737457695000}
    assert found == EVENT | times
    assert list(found) == list(EVENT)


@pytest.mark.clause("ST-145")
def test_values_of_a_genuine_row_have_its_bytes_and_digits() -> None:
    drawn = [
        Drawn(EventColumn("price", types.decimal(10, 2)), [Decimal("456.12")]),
        Drawn(EventColumn("flags", types.LONG), [102]),
        Drawn(EventColumn("ratio", types.FLOAT), [45.67]),
        Drawn(EventColumn("at", types.TIME_INTERVAL), [29730000000]),
    ]
    encoded = avro_rows(described(drawn), rows(drawn))[0].as_py()
    price = b"\x02" + b"\x06" + bytes.fromhex("00b22c")
    ratio = b"\x02" + struct.pack("<f", 45.67)
    flags = b"\x02" + varints(np.array([102])).to_pylist()[0]
    assert price + flags + ratio in encoded
    (found,) = decoded(avro_file(drawn))
    assert found["payload"]["ratio"] == 45.66999816894531
    assert found["payload"]["at"] == 29730000000
    assert found["payload"]["flags"] == 102


@pytest.mark.clause("ST-024")
def test_a_file_has_no_codec_unless_asked_for() -> None:
    plain = fastavro.reader(io.BytesIO(avro_file(ONE)))
    assert set(plain.metadata) == {"avro.schema"}
    packed = avro_file(ONE, deflate=True)
    assert fastavro.reader(io.BytesIO(packed)).metadata["avro.codec"] == "deflate"
    assert decoded(packed) == decoded(avro_file(ONE))


@pytest.mark.clause("ST-176")
def test_lines_of_json_are_packed_by_gzip_and_name_no_moment() -> None:
    packed = b"".join(json_lines(described(ONE), rows(ONE), gzip=True))
    assert gzip.decompress(packed) == b"".join(json_lines(described(ONE), rows(ONE)))
    assert packed[4:8] == bytes(4)


def test_large_rows_stand_in_blocks_of_their_own() -> None:
    sizes = [10, BLOCK_BYTES, 20, 3 * BLOCK_BYTES, 5]
    drawn = [Drawn(EventColumn("a", types.BYTES), [bytes(size) for size in sizes])]
    content = avro_file(drawn)
    assert [len(event["payload"]["a"]) for event in decoded(content)] == sizes
    counts = [block.num_records for block in fastavro.block_reader(io.BytesIO(content))]
    assert sum(counts) == len(sizes)
    assert len(counts) > 2


@settings(max_examples=tries(100))
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_are_written_as_avro_has_them(values: list[int]) -> None:
    expected = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, "long", value)
        expected.append(out.getvalue())
    assert varints(np.array(values, np.int64)).to_pylist() == expected


def test_slices_are_written_as_the_rows_they_show() -> None:
    drawn = [
        Drawn(EventColumn("a", types.STRING), ["x", None, 'y"', "zz"]),
        Drawn(EventColumn("b", types.BOOLEAN), [True, False, None, True]),
        Drawn(EventColumn("c", types.decimal(9, 2)), [Decimal("1.20"), None, Decimal(3), None]),
        Drawn(EventColumn("d", types.BYTES), [b"1", b"22", None, b"333"]),
    ]
    whole = rows(drawn)
    for write in (container, json_lines):
        cut = b"".join(write(described(drawn), whole.slice(1, 2)))
        assert cut != b"".join(write(described(drawn), whole))
    found = decoded(b"".join(container(described(drawn), whole.slice(1, 2))))
    assert [event["payload"] for event in found] == [
        {"a": None, "b": False, "c": None, "d": b"22"},
        {"a": 'y"', "b": None, "c": Decimal(3), "d": None},
    ]


def of_sqlserver(locations: pa.Array, indexes: pa.Array) -> tuple[EventObject, EventRows]:
    count = len(locations)
    constant = {"table": "t", "database": "d", "schema": "s", "lsn": None, "tx_id": None}
    kind = {"is_deleted": False, "change_type": "INSERT"}
    lists = {"physical_location": locations, "replication_index": indexes}
    told = EventRows(
        ReadMethod(EventSource.SQLSERVER, ReadKind.CDC),
        pa.array(map(str, range(count)), pa.string()),
        1,
        np.arange(count),
        {**constant, **kind, **lists},
        [pa.array(np.arange(count)), ""],
    )
    return EventObject("s", "s_t", EventSource.SQLSERVER, ()), told


@pytest.mark.clause("ST-079", "ST-080")
@settings(max_examples=tries(100))
@given(
    st.lists(
        st.tuples(
            st.none() | st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
            st.none() | st.lists(st.text('"\\\na,é', max_size=3), max_size=3),
        ),
        max_size=6,
    ),
    st.integers(0, 6),
    st.sampled_from([pa.int32(), pa.int64()]),
)
def test_lists_of_the_metadata_differ_from_row_to_row(
    pairs: list[tuple[list[int] | None, list[str] | None]], start: int, kind: pa.DataType
) -> None:
    locations = pa.array([one for one, _other in pairs], pa.list_(kind))
    indexes = pa.array([other for _one, other in pairs], pa.list_(pa.string()))
    told, events = of_sqlserver(locations, indexes)
    cut = events.slice(start, len(pairs))
    lines = b"".join(json_lines(told, cut)).decode().removesuffix("\n")
    in_json = [json.loads(line) for line in lines.split("\n")] if lines else []
    for found in (decoded(b"".join(container(told, cut))), in_json):
        facts = [event["source_metadata"] for event in found]
        read = [(one["physical_location"], one["replication_index"]) for one in facts]
        assert read == pairs[start:]


@pytest.mark.parametrize("write", [container, json_lines])
def test_a_list_with_a_null_is_no_metadata(write: Callable[..., Iterator[bytes]]) -> None:
    told, events = of_sqlserver(
        pa.array([[1, None]], pa.list_(pa.int32())), pa.array([["a"]], pa.list_(pa.string()))
    )
    with pytest.raises(ValueError, match="null in a list"):
        list(write(told, events))


def test_a_null_in_a_field_of_avro_that_has_none_is_no_event() -> None:
    drawn = [Drawn(EventColumn("a", types.LONG), [1, 2])]
    whole = rows(drawn)
    facts = {**whole.metadata, "log_file": pa.array(["a", None])}
    with pytest.raises(ValueError, match="null where a value has to be"):
        list(container(described(drawn), replace(whole, metadata=facts)))


def test_a_value_that_is_null_within_is_no_event() -> None:
    drawn = [Drawn(EventColumn("a", types.INTERVAL), [{"months": None, "hours": 1, "micros": 2}])]
    with pytest.raises(ValueError, match="months is null"):
        avro_file(drawn)


def test_the_whole_file_is_the_same_each_time() -> None:
    assert avro_file(ONE, deflate=True) == avro_file(ONE, deflate=True)
    assert zlib.crc32(avro_file(ONE)) == zlib.crc32(avro_file(ONE))
    assert isinstance(rows(ONE).payload[0], pa.Array)
