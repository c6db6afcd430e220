"""Avro files whose schema or header claims far more than the file has."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from tests.events.decode.files import Event, event, schema
from tests.events.decode.test_hostile import block, with_header

NODE: Event = {
    "type": "record",
    "name": "node",
    "fields": [{"name": "left", "type": ["null", "node"]},
               {"name": "right", "type": ["null", "node"]}],
}  # fmt: skip
"""A record that may hold two of itself."""

ENDLESS: Event = {"type": "record", "name": "node", "fields": [{"name": "own", "type": "node"}]}
"""A record that always holds itself."""


def doubled(levels: int, leaf: Any) -> Any:
    """A type of few bytes that has two to the power of `levels` columns: each record has the one
    before it twice, by name."""
    kind, name = leaf, leaf
    for level in range(levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": name}]
        name = f"r{level}"
        kind = {"type": "record", "name": name, "fields": fields}
    return kind


def chained(records: int) -> Any:
    """A record whose fields are records, each of which has the one before it, by name."""
    fields: list[Event] = [{"name": "c0", "type": {"type": "record", "name": "c0", "fields": []}}]
    for number in range(1, records):
        own = [{"name": "v", "type": f"c{number - 1}"}]
        kind = {"type": "record", "name": f"c{number}", "fields": own}
        fields.append({"name": f"c{number}", "type": kind})
    return {"type": "record", "name": "chain", "fields": fields}


def deep(levels: int) -> bytes:
    """A NODE that holds one, and so on."""
    return b"\x02" * levels + bytes(levels + 2)


def tree(levels: int) -> bytes:
    """A NODE that holds two, which hold two, and so on."""
    found = b"\x00\x00"
    for _level in range(levels):
        found = (b"\x02" + found) * 2
    return found


def beside(kind: Any, value: bytes, *, first: bool = False) -> bytes:
    """A file of one event with one more field beside the payload. value: of that field; first:
    whether it comes before the others."""
    told, body = schema(), io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema()), event())
    told["fields"].insert(0 if first else len(told["fields"]), {"name": "more", "type": kind})
    data = value + body.getvalue() if first else body.getvalue() + value
    return with_header(json.dumps(told).encode()) + block(1, data)


def claimed_entries() -> bytes:
    """A header of two billion entries."""
    return b"Obj\x01" + _number(2_000_000_000) + b"\x02a\x02b" * 50


def claimed_value() -> bytes:
    """A header whose schema has two billion bytes."""
    return b"Obj\x01\x02\x16avro.schema" + _number(2_000_000_000) + b'{"type": "record"'


def _number(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()
