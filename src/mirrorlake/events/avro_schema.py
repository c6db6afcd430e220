"""The Avro schema of the events of one object (ST-020 to ST-023, ST-112 to ST-134).

One schema describes a whole file: the generic fields, the metadata of the source, and the columns
of the payload with their unified types. `event_schema` builds it, `payload_columns` reads it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.events import envelope, types
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.metadata import (
    AS_CHOSEN,
    MetadataField,
    MetadataSwitches,
    MetadataType,
    metadata_fields,
)
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType

Avro = Any
"""A schema as parsed JSON: a string, an object or a list."""

TRUE_NAME = "sourceName"
"""Attribute of a field with the column's name in the source, if it is not a valid Avro name."""

_MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
_MICROS = {"type": "long", "logicalType": "timestamp-micros"}
_TIME = {"type": "long", "logicalType": "time-micros"}
_DATE = {"type": "int", "logicalType": "date"}
_OFFSET = {"type": "int", "logicalType": "time-millis"}
_SIMPLE: Mapping[UnifiedKind, Avro] = {
    UnifiedKind.BOOLEAN: "boolean",
    UnifiedKind.BYTES: "bytes",
    UnifiedKind.DATE: _DATE,
    UnifiedKind.DOUBLE: "double",
    UnifiedKind.FLOAT: "float",
    UnifiedKind.INTEGER: "int",
    UnifiedKind.JSON: {"type": "string", "logicalType": "json"},
    UnifiedKind.LONG: "long",
    UnifiedKind.NUMBER: {"type": "string", "logicalType": "number"},
    UnifiedKind.STRING: "string",
    UnifiedKind.TIME: _TIME,
    UnifiedKind.TIME_INTERVAL: {"type": "long", "logicalType": "time-interval-micros"},
    UnifiedKind.TIMESTAMP: _MICROS,
    UnifiedKind.UNSUPPORTED: {"type": "null", "logicalType": "unsupported"},
}
_RECORDS: Mapping[UnifiedKind, tuple[str, Sequence[tuple[str, Avro]]]] = {
    UnifiedKind.DATETIME: ("datetime", (("date", _DATE), ("time", _TIME))),
    UnifiedKind.GEOMETRY: ("geometry", (("value", "bytes"), ("srid", "int"), ("type", "string"))),
    UnifiedKind.INTERVAL: (
        "interval",
        (("months", "int"), ("hours", "int"), ("micros", "long")),
    ),
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE: (
        "timestampTz",
        (("timestamp", _MICROS), ("offset", _OFFSET)),
    ),
    UnifiedKind.TIME_WITH_TIME_ZONE: ("timeTz", (("time", _TIME), ("offset", _OFFSET))),
}
RECORD_FIELDS: Mapping[UnifiedKind, Sequence[str]] = {
    kind: [name for name, _type in fields] for kind, (_record, fields) in _RECORDS.items()
}
"""The fields of the unified types that are records, in order."""
_KIND_OF_RECORD = {name: kind for kind, (name, _fields) in _RECORDS.items()}
_METADATA: Mapping[MetadataType, Avro] = {
    MetadataType.STRING: "string",
    MetadataType.LONG: "long",
    MetadataType.BOOLEAN: "boolean",
    MetadataType.STRINGS: {"type": "array", "items": "string"},
    MetadataType.INTEGERS: {"type": "array", "items": "int"},
}
_GENERIC: Mapping[str, Avro] = {
    **dict.fromkeys(
        (
            envelope.UUID,
            envelope.OBJECT,
            envelope.READ_METHOD,
            envelope.STREAM_NAME,
            envelope.SCHEMA_KEY,
        ),
        "string",
    ),
    envelope.READ_TIMESTAMP: _MILLIS,
    envelope.SOURCE_TIMESTAMP: _MILLIS,
    envelope.SORT_KEYS: {"type": "array", "items": ["string", "long"]},
}


def event_schema(
    name: str,
    source: EventSource,
    columns: Sequence[EventColumn],
    switches: MetadataSwitches = AS_CHOSEN,
) -> dict[str, Avro]:
    """The schema of the events of the object `name`. columns: of the payload."""
    records: set[str] = set()
    nested = {
        envelope.SOURCE_METADATA: [
            metadata_field(field) for field in metadata_fields(source, switches)
        ],
        envelope.PAYLOAD: _payload(columns, records),
    }
    fields = [
        {"name": field, "type": _GENERIC[field]}
        if field in _GENERIC
        else {"name": field, "type": {"type": "record", "name": field, "fields": nested[field]}}
        for field in envelope.FIELDS
    ]
    return {"type": "record", "name": avro_name(name), "fields": fields}


def metadata_field(field: MetadataField) -> dict[str, Avro]:
    """A field of `source_metadata`."""
    kind = _METADATA[field.type]
    if not field.is_nullable:
        return {"name": field.name, "type": kind}
    return {"name": field.name, "type": ["null", kind], "default": None}


def schema_key(stream: str, name: str, schema: Mapping[str, Avro]) -> str:
    """40 lower-case hex digits that differ per object and change with the columns (ST-039)."""
    nested = {field["name"]: field["type"] for field in schema["fields"]}
    parts = [stream, name, nested[envelope.SOURCE_METADATA], nested[envelope.PAYLOAD]]
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha1(canonical.encode(), usedforsecurity=False).hexdigest()


def avro_name(name: str) -> str:
    """The name with `_` for every character that is not valid in Avro (ST-021)."""
    changed = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return changed if changed and not changed[0].isdigit() else f"_{changed}"


def avro_names(columns: Sequence[EventColumn]) -> list[str]:
    """The Avro names of columns, all different; a valid name is kept."""
    taken = {column.name for column in columns if avro_name(column.name) == column.name}
    names = []
    for column in columns:
        name = avro_name(column.name)
        if name != column.name:
            number, first = 2, name
            while name in taken:
                name, number = f"{first}_{number}", number + 1
            taken.add(name)
        names.append(name)
    return names


def payload_columns(schema: Avro) -> list[EventColumn]:
    """The columns of the payload, in order, from the schema in the header of a file (ST-017).

    Raises ValueError when there is no payload, one of its types is not a unified type, or two of
    its columns have one name.
    """
    fields = {field["name"]: field["type"] for field in _fields(schema)}
    if envelope.PAYLOAD not in fields:
        raise ValueError("the schema has no payload")
    return record_columns(fields[envelope.PAYLOAD])


def is_payload(schema: Avro) -> bool:
    """Whether a schema is that of payloads alone, and not of events. Raises ValueError."""
    others = {envelope.PAYLOAD, envelope.SOURCE_METADATA, envelope.READ_METHOD}
    return not {field["name"] for field in _fields(schema)} & others


def record_columns(payload: Avro) -> list[EventColumn]:
    """The columns of a payload, in order, from its schema. Raises ValueError as `payload_columns`
    does."""
    columns = [_payload_column(field) for field in _fields(payload)]
    named = Counter(column.name for column in columns)
    for name, count in named.items():
        if count > 1:
            raise ValueError(f"two columns have the name {name!r:.100}")
    return columns


def _payload_column(field: dict[str, Avro]) -> EventColumn:
    name = str(field.get(TRUE_NAME, field["name"]))
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"the name of column {name!r:.100} is no text")
    try:
        return EventColumn(name, unified_of(field["type"]))
    except ValueError as error:
        raise ValueError(f"column {name}: {error}") from None


def column_at(schema: Avro, index: int) -> EventColumn:
    """The name and the type of column `index` of the payload (ST-018). Raises IndexError."""
    columns = payload_columns(schema)
    if index < 0:
        raise IndexError(index)
    return columns[index]


def unified_of(kind: Avro) -> UnifiedType:
    """The unified type of an Avro type, which may be a union with null. A reference to a record is
    resolved by its name. Raises ValueError."""
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        if len(branches) != 1:
            raise ValueError(f"a union of {len(branches)} types is no unified type")
        return unified_of(branches[0])
    if isinstance(kind, str):
        return _by_name(kind)
    if not isinstance(kind, dict):
        raise ValueError(f"{kind!r} is no Avro type")  # noqa: TRY004  (of a file, and no argument)
    if kind.get("type") == "record":
        return _of_record(kind)
    if isinstance(kind.get("type"), dict | list):
        return unified_of(kind["type"])
    return _of_logical(kind)


def _payload(columns: Sequence[EventColumn], records: set[str]) -> list[dict[str, Avro]]:
    fields: list[dict[str, Avro]] = []
    for column, name in zip(columns, avro_names(columns), strict=True):
        kind = _avro(column.type, name, records)
        # Avro has no union of null and null.
        field = {"name": name, "type": kind}
        if column.type.kind is not UnifiedKind.UNSUPPORTED:
            field = {"name": name, "type": ["null", kind], "default": None}
        fields.append(field if name == column.name else field | {TRUE_NAME: column.name})
    return fields


def _avro(kind: UnifiedType, column: str, records: set[str]) -> Avro:
    """records: the records that are already defined; later uses refer to them by name."""
    match kind.kind:
        case UnifiedKind.DECIMAL:
            facts = {"precision": kind.precision, "scale": kind.scale}
            return {"type": "bytes", "logicalType": "decimal", **facts}
        case UnifiedKind.VARCHAR:
            return {"type": "string", "logicalType": "varchar", "length": kind.length}
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            return _array(kind.element, column, records)
        case _ if kind.kind in _RECORDS:
            name, fields = _RECORDS[kind.kind]
            if name in records:
                return name
            records.add(name)
            described = [{"name": field, "type": type_} for field, type_ in fields]
            return {"type": "record", "name": name, "fields": described}
        case _:
            return _SIMPLE[kind.kind]


def _array(element: UnifiedType, column: str, records: set[str]) -> Avro:
    name = f"multidimensionalArray_{column}"
    nested = {"type": "array", "items": name}
    fields = [
        {"name": "nestedArray", "type": ["null", nested], "default": None},
        {
            "name": "elementValue",
            "type": ["null", _avro(element, column, records)],
            "default": None,
        },
    ]
    return {"type": "record", "name": name, "fields": fields}


def _fields(record: Avro) -> list[dict[str, Avro]]:
    if isinstance(record, list):
        record = next((branch for branch in record if isinstance(branch, dict)), None)
    if not isinstance(record, dict) or not isinstance(record.get("fields"), list):
        raise ValueError("a record was expected")  # noqa: TRY004  (of a file, and no argument)
    return list(record["fields"])


def _by_name(name: str) -> UnifiedType:
    name = name.rpartition(".")[2]
    for kind, avro in _SIMPLE.items():
        if avro == name:
            return UnifiedType(kind)
    if name in _KIND_OF_RECORD:
        return UnifiedType(_KIND_OF_RECORD[name])
    if name == "null":  # without its logical type
        return types.UNSUPPORTED
    raise ValueError(f"{name!r} is no unified type")


def _of_record(record: dict[str, Avro]) -> UnifiedType:
    name = str(record.get("name", "")).rpartition(".")[2]
    fields = {field["name"]: field["type"] for field in _fields(record)}
    if name in _KIND_OF_RECORD and list(fields) == list(RECORD_FIELDS[_KIND_OF_RECORD[name]]):
        return UnifiedType(_KIND_OF_RECORD[name])
    if list(fields) == ["nestedArray", "elementValue"]:
        element = unified_of(fields["elementValue"])
        return element if element == types.UNSUPPORTED else types.array(element)
    raise ValueError(f"the record {name!r} is no unified type")


def _of_logical(kind: dict[str, Avro]) -> UnifiedType:
    logical, physical = kind.get("logicalType"), kind.get("type")
    if logical == "decimal" and physical == "bytes":
        return types.decimal(_size(kind, "precision"), _size(kind, "scale", 0))
    if logical == "varchar" and physical == "string":
        return types.varchar(_size(kind, "length")) if "length" in kind else types.STRING
    for known, avro in _SIMPLE.items():
        if avro == {"type": physical, "logicalType": logical}:
            return UnifiedType(known)
    # As Avro requires: an unknown logical type is read as its underlying type.
    return _by_name(str(physical))


def _size(kind: dict[str, Avro], name: str, default: int | None = None) -> int:
    """A number that belongs to a logical type. Raises ValueError."""
    given = kind.get(name, default)
    logical = kind["logicalType"]
    if given is None:
        raise ValueError(f"the logical type {logical} has no {name}")
    if isinstance(given, bool) or not str(given).isdecimal():
        raise ValueError(f"the {name} of the logical type {logical} is no number: {given!r:.40}")
    return int(given)
