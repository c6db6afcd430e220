"""Events of one table from Arrow columns to bytes of Avro and to lines of JSON, on one core.

A file of each run of rows is made and let go. The peers are fastavro's writer and orjson, which
take rows as Python objects. Making these from the same columns is part of their seconds; what they
take for objects that are there already is told beside it. Moments are made as each of them writes
fastest: numbers for Avro, texts for JSON. Equal: every event that either wrote, read back by
fastavro and by json. Seconds are those of the processor.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import numpy as np
import orjson
import pyarrow as pa

from bench.result import Result
from bench.rounds import Plan, medians
from mirrorlake.events import types
from mirrorlake.events.encode.container import container
from mirrorlake.events.encode.json_lines import json_lines
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows, payload_type
from mirrorlake.events.types import EventColumn

ROWS = 150_000
RUN = 15_000
"""Rows that are encoded at once: about what a change batch has."""
TARGET = 3.0
LEAST = 150_000
"""Events a second and core."""

COLUMNS = (
    EventColumn("id", types.LONG),
    EventColumn("customer", types.INTEGER),
    EventColumn("note", types.STRING),
    EventColumn("amount", types.NUMBER),
    EventColumn("weight", types.DOUBLE),
    EventColumn("paid", types.BOOLEAN),
    EventColumn("placed", types.DATE),
    EventColumn("changed", types.TIMESTAMP),
)
OBJECT = EventObject("projects/0/streams/bench", "public_orders", EventSource.POSTGRESQL, COLUMNS)


def run(plan: Plan) -> list[Result]:
    rows = _rows(plan.sized(ROWS, RUN))
    runs = [rows.slice(start, RUN) for start in range(0, len(rows), RUN)]
    schema = fastavro.parse_schema(_untyped(OBJECT.schema))
    told = [_told(run) for run in runs]
    printed = [[_printed(event) for event in events] for events in told]

    def avro(events: list[dict[str, Any]]) -> bytes:
        out = io.BytesIO()
        fastavro.writer(out, schema, events, sync_interval=1 << 20)
        return out.getvalue()

    def lines(events: list[dict[str, Any]]) -> bytes:
        option = orjson.OPT_APPEND_NEWLINE
        return b"".join(orjson.dumps(event, option=option) for event in events)

    def ours_avro() -> Iterator[bytes]:
        return (b"".join(container(OBJECT, run)) for run in runs)

    def peer_avro() -> Iterator[bytes]:
        return (avro(_told(run)) for run in runs)

    def ours_json() -> Iterator[bytes]:
        return (b"".join(json_lines(OBJECT, run)) for run in runs)

    def peer_json() -> Iterator[bytes]:
        return (lines([_printed(event) for event in _told(run)]) for run in runs)

    same_avro = _events(ours_avro(), schema) == _events(map(avro, told), schema)
    read = map(json.loads, b"".join(ours_json()).splitlines())
    same_json = [*read] == [event for events in printed for event in events]
    sides = {
        "ours avro": ours_avro,
        "ours json": ours_json,
        "fastavro": peer_avro,
        "orjson": peer_json,
        "fastavro, objects": lambda: map(avro, told),
        "orjson, objects": lambda: map(lines, printed),
    }
    seconds = medians(plan, {name: _clocked(write) for name, write in sides.items()})
    return [
        _result("avro", "fastavro", seconds, len(rows), equal=same_avro),
        _result("json", "orjson", seconds, len(rows), equal=same_json),
    ]


def _result(name: str, peer: str, seconds: dict[str, float], count: int, *, equal: bool) -> Result:
    ours = seconds[f"ours {name}"]
    rate = round(count / ours)
    return Result(
        f"events-{name}",
        ours,
        peer,
        seconds[peer],
        target=TARGET,
        equal=equal,
        over="" if rate >= LEAST else f"{rate:,} events a second, {LEAST:,} are the target",
        more={
            "rows": count,
            "events_per_second": rate,
            "peer_seconds_of_objects": round(seconds[f"{peer}, objects"], 3),
        },
    )


def _clocked(write: Callable[[], Iterator[bytes]]) -> Callable[[int], float]:
    def side(_number: int) -> float:
        began = time.process_time()
        for _content in write():
            pass
        return time.process_time() - began

    return side


def _rows(count: int) -> EventRows:
    random = np.random.default_rng(7)
    number = np.arange(count)
    changed = 1_767_225_600_000 + number // 10
    lsn = pa.array([f"16/{n * 56 + 0xCB002DB0:X}" for n in number.tolist()])
    notes = ["left at the door", "gift", None, "call before delivery, second floor"]
    amounts = pa.array([f"{n / 100:.2f}" for n in random.integers(0, 10**7, count).tolist()])
    values = [
        pa.array(number),
        pa.array(random.integers(0, 100_000, count), pa.int32()),
        pa.array([notes[n] for n in random.integers(0, len(notes), count).tolist()]),
        amounts,
        pa.array(np.round(random.random(count), 6)),
        pa.array(random.random(count) < 0.5),
        pa.array(random.integers(18_000, 21_000, count), pa.int32()).cast(pa.date32()),
        pa.array(changed * 1000 + random.integers(0, 1000, count)),
    ]
    return EventRows(
        ReadMethod(EventSource.POSTGRESQL, ReadKind.CDC),
        pa.array([f"ee7534b0-71d8-4164-8ad8-1eaf{n:08x}" for n in number.tolist()]),
        1_767_225_700_000,
        changed,
        {
            "schema": "public",
            "table": "orders",
            "is_deleted": pa.array(random.random(count) < 0.1),
            "change_type": pa.array(
                [("INSERT", "UPDATE", "DELETE")[n] for n in random.integers(0, 3, count).tolist()]
            ),
            "tx_id": pa.array([str(n // 10) for n in number.tolist()]),
            "lsn": lsn,
            "primary_keys": ["id"],
        },
        [pa.array(changed), lsn],
        [
            value.cast(payload_type(column.type))
            for value, column in zip(values, COLUMNS, strict=True)
        ],
    )


def _told(rows: EventRows) -> list[dict[str, Any]]:
    """The events as fastavro takes them; moments and days as numbers."""
    count = len(rows)
    metadata = {name: _column(value, count) for name, value in rows.metadata.items()}
    keys = [_column(value, count) for value in rows.sort_keys]
    payload = {
        column.name: (
            values.cast(pa.int32() if column.type == types.DATE else pa.int64()).to_pylist()
            if column.type in {types.DATE, types.TIMESTAMP}
            else values.to_pylist()
        )
        for column, values in zip(COLUMNS, rows.payload, strict=True)
    }
    uuids = rows.uuid.to_pylist()
    return [
        {
            "uuid": uuids[n],
            "read_timestamp": rows.read_timestamp,
            "source_timestamp": int(rows.source_timestamp[n]),
            "object": OBJECT.name,
            "read_method": str(rows.read_method),
            "stream_name": OBJECT.stream,
            "schema_key": OBJECT.schema_key,
            "sort_keys": [key[n] for key in keys],
            "source_metadata": {name: values[n] for name, values in metadata.items()},
            "payload": {name: values[n] for name, values in payload.items()},
        }
        for n in range(count)
    ]


def _column(value: Any, count: int) -> list[Any]:
    return value.to_pylist() if isinstance(value, pa.Array) else [value] * count


def _printed(event: dict[str, Any]) -> dict[str, Any]:
    """The event as orjson takes it: moments and days as texts."""
    payload = event["payload"]
    return event | {
        "read_timestamp": f"{np.datetime64(event['read_timestamp'], 'ms')}Z",
        "source_timestamp": f"{np.datetime64(event['source_timestamp'], 'ms')}Z",
        "payload": payload
        | {
            "placed": str(np.datetime64(payload["placed"], "D")),
            "changed": f"{np.datetime64(payload['changed'], 'us')}Z",
        },
    }


def _untyped(schema: Any) -> Any:
    """Without logical types, which cost fastavro a look at each value."""
    if isinstance(schema, list):
        return [_untyped(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _untyped(value) for name, value in schema.items() if name != "logicalType"}


def _events(files: Iterator[bytes], schema: Any) -> list[Any]:
    return [
        fastavro.schemaless_reader(block.bytes_, schema, None)
        for content in files
        for block in fastavro.block_reader(io.BytesIO(content))
        for _ in range(block.num_records)
    ]
