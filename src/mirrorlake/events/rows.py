"""Events of one object in columns, and the constants that all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.avro_schema import event_schema, schema_key
from mirrorlake.events.envelope import EventSource, ReadMethod
from mirrorlake.events.metadata import AS_CHOSEN, MetadataSwitches
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType

Constant = str | int | bool | Sequence[str] | Sequence[int] | None
"""A value that all events of some rows share."""

_ARROW = {
    UnifiedKind.BOOLEAN: pa.bool_(),
    UnifiedKind.BYTES: pa.binary(),
    UnifiedKind.DATE: pa.date32(),
    UnifiedKind.DATETIME: pa.timestamp("us"),
    UnifiedKind.DOUBLE: pa.float64(),
    UnifiedKind.FLOAT: pa.float32(),
    UnifiedKind.GEOMETRY: pa.struct(
        [("value", pa.binary()), ("srid", pa.int32()), ("type", pa.string())]
    ),
    UnifiedKind.INTEGER: pa.int32(),
    UnifiedKind.INTERVAL: pa.struct(
        [("months", pa.int32()), ("hours", pa.int32()), ("micros", pa.int64())]
    ),
    UnifiedKind.JSON: pa.string(),
    UnifiedKind.LONG: pa.int64(),
    UnifiedKind.NUMBER: pa.string(),
    UnifiedKind.STRING: pa.string(),
    UnifiedKind.TIME: pa.int64(),  # PostgreSQL has the time 24:00:00, Arrow does not
    UnifiedKind.TIME_INTERVAL: pa.int64(),
    UnifiedKind.TIMESTAMP: pa.timestamp("us"),
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: pa.struct(
        [("timestamp", pa.timestamp("us")), ("offset", pa.int32())]
    ),
    UnifiedKind.TIME_WITH_TIME_ZONE: pa.struct([("time", pa.int64()), ("offset", pa.int32())]),
    UnifiedKind.UNSUPPORTED: pa.null(),
    UnifiedKind.VARCHAR: pa.string(),
}
_MOST_DIGITS = 38


def payload_type(kind: UnifiedType) -> pa.DataType:
    """The Arrow type of values of a unified type: times in microseconds, offsets in milliseconds.

    An array is a list of its lengths in each dimension, empty for an empty array, and its elements
    in order.
    """
    match kind.kind:
        case UnifiedKind.DECIMAL:
            wide = kind.precision > _MOST_DIGITS
            return (pa.decimal256 if wide else pa.decimal128)(kind.precision, kind.scale)
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            elements = pa.list_(payload_type(kind.element))
            return pa.struct([("dimensions", pa.list_(pa.int32())), ("elements", elements)])
        case _:
            return _ARROW[kind.kind]


@dataclass(frozen=True)
class EventObject:
    """An object with one schema: the description of its files.

    stream: the full name of the stream.
    """

    stream: str
    name: str
    source: EventSource
    columns: tuple[EventColumn, ...]
    switches: MetadataSwitches = AS_CHOSEN

    @cached_property
    def schema(self) -> dict[str, Any]:
        return event_schema(self.name, self.source, self.columns, self.switches)

    @cached_property
    def schema_key(self) -> str:
        return schema_key(self.stream, self.name, self.schema)


@dataclass(frozen=True, slots=True)
class EventRows:
    """n events of one object, in order.

    uuid: string. read_timestamp: milliseconds. source_timestamp: int64, milliseconds.
    metadata: the fields of `source_metadata`, each an array of n or a constant; fields that are
        arrays have lists, as `list<string>` or `list<int32>`.
    sort_keys: each an array of n strings or int64, or a constant.
    payload: an array of n for each column, of its `payload_type`.
    """

    read_method: ReadMethod
    uuid: pa.Array
    read_timestamp: int
    source_timestamp: np.ndarray
    metadata: Mapping[str, pa.Array | Constant]
    sort_keys: Sequence[pa.Array | str | int]
    payload: Sequence[pa.Array] = field(default_factory=tuple)

    def __len__(self) -> int:
        return len(self.uuid)

    @property
    def size(self) -> int:
        """Bytes of the payload in memory."""
        return sum(int(column.nbytes) for column in self.payload)

    @property
    def text_sizes(self) -> np.ndarray:
        """Bytes of the texts and binary values of each event, which are written with at least as
        many; int64."""
        found = np.zeros(len(self), np.int64)
        for column in self.payload:
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                found += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        return found

    def slice(self, start: int, count: int) -> EventRows:
        def cut(value: Any) -> Any:
            return value.slice(start, count) if isinstance(value, pa.Array) else value

        return EventRows(
            self.read_method,
            cut(self.uuid),
            self.read_timestamp,
            self.source_timestamp[start : start + count],
            {name: cut(value) for name, value in self.metadata.items()},
            [cut(value) for value in self.sort_keys],
            [cut(value) for value in self.payload],
        )
