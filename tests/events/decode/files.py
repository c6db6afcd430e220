"""Event files as others write them: Avro by fastavro, JSON by the standard library."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Sequence
from typing import Any

import fastavro
import pyarrow as pa

from mirrorlake.events import types
from mirrorlake.events.avro_schema import event_schema
from mirrorlake.events.decode.avro_file import AvroFile
from mirrorlake.events.decode.batch import EventBatch
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.reading import read_events
from mirrorlake.events.types import EventColumn, UnifiedType

Event = dict[str, Any]

COLUMNS = (EventColumn("id", types.LONG), EventColumn("val", types.STRING))

MYSQL = {
    "table": "my_table",
    "database": "ea-main",
    "primary_keys": ["id"],
    "log_file": "mysql-bin.000131",
    "log_position": 2550,
    "change_type": "INSERT",
    "is_deleted": False,
}


def event(number: int = 0, /, payload: Event | None = None, **changed: Any) -> Event:
    """A genuine event of MySQL; `changed` are fields of the envelope or of the metadata."""
    found: Event = {
        "uuid": f"ee7534b0-71d8-4164-8ad8-1eaf{number:08b}",
        "read_timestamp": 1737457761898,
        "source_timestamp": 1737457695000,
        "object": "ea-main_my_table",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/0/locations/us-central1/streams/s",
        "schema_key": "491139293433ac07c1895612433c0d61c5265fdb",
        "sort_keys": [1737457695000, "mysql-bin.000131", 2550],
        "source_metadata": dict(MYSQL),
        "payload": {"id": number, "val": f"v{number}"} if payload is None else payload,
    }
    for name, value in changed.items():
        (found if name in found else found["source_metadata"])[name] = value
    return found


def schema(columns: Sequence[EventColumn] = COLUMNS) -> Event:
    return event_schema("ea-main_my_table", EventSource.MYSQL, columns)


def avro(
    events: Sequence[Event],
    written: Event | None = None,
    codec: str = "null",
    sync_interval: int = 16_000,
) -> bytes:
    file = io.BytesIO()
    told = fastavro.parse_schema(schema() if written is None else written)
    fastavro.writer(file, told, events, codec=codec, sync_interval=sync_interval)
    return file.getvalue()


def lines(events: Sequence[Event | str], *, packed: bool = False) -> bytes:
    text = "".join((e if isinstance(e, str) else json.dumps(e)) + "\n" for e in events)
    return gzip.compress(text.encode()) if packed else text.encode()


def read(content: bytes, columns: Sequence[EventColumn] | None = None) -> EventBatch:
    """All events of a small file."""
    (batch,) = read_events(io.BytesIO(content), columns=columns)
    return batch


def payload(content: bytes) -> list[Event]:
    return [row for b in read_events(io.BytesIO(content)) for row in b.payload.to_pylist()]


def in_memory(values: Sequence[Any], target: pa.DataType) -> pa.Array:
    """Values as the tests write them: times as numbers."""
    if pa.types.is_timestamp(target) or pa.types.is_date(target):
        return pa.array(values, pa.int32() if pa.types.is_date(target) else pa.int64()).cast(target)
    if pa.types.is_struct(target):
        members = [
            in_memory([None if one is None else one[field.name] for one in values], field.type)
            for field in target
        ]
        mask = pa.array([one is None for one in values], pa.bool_())
        return pa.StructArray.from_arrays(members, fields=list(target), mask=mask)
    return pa.array(values, target)


def nested(dimensions: Sequence[int], elements: Sequence[Any]) -> Event:
    """An array of PostgreSQL as Avro has it."""
    if not dimensions:
        return {"nestedArray": [], "elementValue": None}
    step = len(elements) // dimensions[0]
    parts = [elements[i * step : (i + 1) * step] for i in range(dimensions[0])]
    if len(dimensions) == 1:
        found = [{"nestedArray": None, "elementValue": part[0]} for part in parts]
    else:
        found = [nested(dimensions[1:], part) for part in parts]
    return {"nestedArray": found, "elementValue": None}


def column(kind: UnifiedType) -> EventColumn:
    return EventColumn("c", kind)


def repacked(content: bytes, codec: str) -> bytes:
    """An Avro file without a codec, packed by one that fastavro has no library for."""
    found = AvroFile(io.BytesIO(content))
    head = io.BytesIO()
    told = {"avro.codec": codec, "avro.schema": json.dumps(found.schema.schema)}
    fastavro.schemaless_writer(head, {"type": "map", "values": "string"}, told)
    file = b"Obj\x01" + head.getvalue() + bytes(16)
    for block in found.blocks():
        if codec == "snappy":
            packed = pa.Codec("snappy").compress(block.data, asbytes=True)
            packed += zlib.crc32(block.data).to_bytes(4, "big")
        else:
            packed = pa.Codec("zstd").compress(block.data, asbytes=True)
        file += _long(block.count) + _long(len(packed)) + packed + bytes(16)
    return file


def _long(value: int) -> bytes:
    found = io.BytesIO()
    fastavro.schemaless_writer(found, "long", value)
    return found.getvalue()
