"""Columns of every unified type, and what each value of them is told as in Avro and in JSON."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from mirrorlake.events import types
from mirrorlake.events.change_types import inserted
from mirrorlake.events.envelope import EventSource, ReadKind, ReadMethod
from mirrorlake.events.rows import EventObject, EventRows, payload_type
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType

STREAM = "projects/0/locations/us-central1/streams/s"
EPOCH, FIRST_DAY = datetime(1970, 1, 1), date(1970, 1, 1)  # noqa: DTZ001
LONGS = st.integers(-(2**63), 2**63 - 1)
INTEGERS = st.integers(-(2**31), 2**31 - 1)
DAY = 86_400_000_000
MICROS = st.integers(-62135596800 * 10**6, 253402300799 * 10**6)
TIMES = st.integers(0, DAY)
OFFSETS = st.integers(-15 * 3600, 15 * 3600).map(lambda seconds: seconds * 1000) | st.just(0)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.text('"\\\n\t\x00/é€😀')
ENDLESS = st.sampled_from([types.POSITIVE_INFINITY, types.NEGATIVE_INFINITY])
JSONS = st.recursive(
    st.none() | st.booleans() | INTEGERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
ELEMENTS = (
    types.INTEGER,
    types.STRING,
    types.BYTES,
    types.decimal(9, 3),
    types.TIMESTAMP_WITH_TIME_ZONE,
)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    wide = Context(prec=100)
    return st.integers(-most, most).map(lambda value: Decimal(value).scaleb(-scale, wide))


STRATEGIES: dict[UnifiedKind, st.SearchStrategy[Any]] = {
    UnifiedKind.BOOLEAN: st.booleans(),
    UnifiedKind.BYTES: st.binary(max_size=20),
    UnifiedKind.DATE: st.integers(-719162, 2932896),
    UnifiedKind.DATETIME: MICROS,
    UnifiedKind.DOUBLE: st.floats(),
    UnifiedKind.FLOAT: st.floats(width=32),
    UnifiedKind.GEOMETRY: st.fixed_dictionaries(
        {"value": st.binary(max_size=9), "srid": INTEGERS, "type": TEXTS}
    ),
    UnifiedKind.INTEGER: INTEGERS,
    UnifiedKind.INTERVAL: st.fixed_dictionaries(
        {"months": INTEGERS, "hours": INTEGERS, "micros": LONGS}
    ),
    UnifiedKind.JSON: st.tuples(JSONS, st.sampled_from([None, 1])).map(
        lambda told: json.dumps(told[0], indent=told[1])
    ),
    UnifiedKind.LONG: LONGS,
    UnifiedKind.NUMBER: st.integers(-(10**40), 2**64 - 1).map(str),
    UnifiedKind.STRING: TEXTS,
    UnifiedKind.TIME: TIMES,
    UnifiedKind.TIME_INTERVAL: LONGS,
    UnifiedKind.TIMESTAMP: MICROS | ENDLESS,
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: st.fixed_dictionaries(
        {"timestamp": MICROS | ENDLESS, "offset": OFFSETS}
    ),
    UnifiedKind.TIME_WITH_TIME_ZONE: st.fixed_dictionaries({"time": TIMES, "offset": OFFSETS}),
    UnifiedKind.UNSUPPORTED: st.none(),
    UnifiedKind.VARCHAR: TEXTS,
}


@dataclass(frozen=True)
class Drawn:
    """A column and its values as Arrow takes them; moments are microseconds."""

    column: EventColumn
    values: list[Any]

    def array(self) -> pa.Array:
        return pa.array(self.values, payload_type(self.column.type))


@st.composite
def arrays(draw: st.DrawFn, element: UnifiedType) -> dict[str, Any]:
    dimensions = draw(st.lists(st.integers(1, 2), max_size=3))
    count = int(np.prod(dimensions)) if dimensions else 0
    values = st.none() | values_of(element)
    elements = draw(st.lists(values, min_size=count, max_size=count))
    return {"dimensions": dimensions, "elements": elements}


def values_of(kind: UnifiedType) -> st.SearchStrategy[Any]:
    if kind.kind is UnifiedKind.DECIMAL:
        return decimals(kind.precision, kind.scale)
    if kind.kind is UnifiedKind.ARRAY:
        assert kind.element is not None
        return arrays(kind.element)
    return STRATEGIES[kind.kind]


KINDS = [
    *(UnifiedType(kind) for kind in STRATEGIES if kind is not UnifiedKind.VARCHAR),
    types.varchar(20),
    types.decimal(10, 2),
    types.decimal(38, 0),
    types.decimal(65, 30),
    *map(types.array, ELEMENTS),
]


@st.composite
def columns(draw: st.DrawFn, kinds: list[UnifiedType]) -> list[Drawn]:
    """A few columns of these types."""
    count = draw(st.integers(1, 4))
    drawn = []
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))):
        values = st.none() | values_of(kind) if draw(st.booleans()) else values_of(kind)
        found = draw(st.lists(values, min_size=count, max_size=count))
        drawn.append(Drawn(EventColumn(f"c{number}", kind), found))
    return drawn


def described(drawn: list[Drawn], source: EventSource = EventSource.MYSQL) -> EventObject:
    return EventObject(STREAM, "shop_orders", source, tuple(one.column for one in drawn))


def rows(drawn: list[Drawn]) -> EventRows:
    """Events of MySQL with these payloads."""
    count = len(drawn[0].values)
    position = pa.array(range(4, 4 + count), pa.int64())
    return EventRows(
        ReadMethod(EventSource.MYSQL, ReadKind.CDC),
        pa.array([f"ee7534b0-71d8-4164-8ad8-1eaf{n:08x}" for n in range(count)]),
        1737457761898,
        np.arange(count) * 1000 + 1737457695000,
        {
            "table": "orders",
            "database": "shop",
            "primary_keys": ["c0"],
            "log_file": "mysql-bin.000131",
            "log_position": position,
            "change_type": str(inserted(EventSource.MYSQL)),
            "is_deleted": pa.array([n % 2 == 1 for n in range(count)]),
        },
        [pa.array(np.arange(count) * 1000 + 1737457695000), "mysql-bin.000131", position],
        [one.array() for one in drawn],
    )


def nested(told: dict[str, Any], told_element: Any) -> dict[str, Any]:
    """The record of an array of any dimensions."""

    def level(dimensions: list[int], elements: list[Any]) -> dict[str, Any]:
        if not dimensions:
            (element,) = elements
            value = None if element is None else told_element(element)
            return {"nestedArray": None, "elementValue": value}
        step = len(elements) // dimensions[0]
        runs = [elements[n * step : (n + 1) * step] for n in range(dimensions[0])]
        return {"nestedArray": [level(dimensions[1:], run) for run in runs], "elementValue": None}

    if not told["dimensions"]:
        return {"nestedArray": [], "elementValue": None}
    return level(told["dimensions"], told["elements"])


def physical(kind: UnifiedType, value: Any) -> Any:
    """The value as fastavro reads it from a schema without logical types other than decimals."""
    match kind.kind:
        case _ if value is None:
            return None
        case UnifiedKind.DATETIME:
            return {"date": value // DAY, "time": value % DAY}
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            element = kind.element
            return nested(value, lambda one: physical(element, one))
        case _:
            return value


def moment(micros: int, zone: str) -> Any:
    if not -62135596800 * 10**6 <= micros <= 253402300799 * 10**6 + 999_999:
        return Decimal(micros)
    return (EPOCH + timedelta(microseconds=micros)).isoformat(timespec="microseconds") + zone


def zone_of(offset: int) -> str:
    seconds = abs(offset) // 1000
    parts = [seconds // 3600, seconds // 60 % 60, *([seconds % 60] if seconds % 60 else [])]
    return ("-" if offset < 0 else "+") + ":".join(f"{p:02}" for p in parts) if offset else "Z"


def clock(micros: int) -> str:
    seconds, rest = divmod(micros, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:06}"


def untyped(schema: Any) -> Any:
    """The schema without logical types but decimals, so that values are read as they are stored."""
    if isinstance(schema, list):
        return [untyped(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: untyped(value) for name, value in schema.items()}
    return (
        kept
        if kept.get("logicalType") == "decimal"
        else {name: value for name, value in kept.items() if name != "logicalType"}
    )


def decoded(content: bytes) -> list[dict[str, Any]]:
    blocks = fastavro.block_reader(io.BytesIO(content))
    schema = fastavro.parse_schema(untyped(blocks.writer_schema))
    return [
        fastavro.schemaless_reader(block.bytes_, schema, None)  # type: ignore[misc]
        for block in blocks
        for _ in range(block.num_records)
    ]
