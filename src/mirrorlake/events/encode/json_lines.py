"""Encodes events as lines of JSON (ST-019, ST-025, ST-026)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope, types
from mirrorlake.events.encode import json_text
from mirrorlake.events.encode.container import blocks
from mirrorlake.events.encode.fragments import Fragment, joined, numbers_of, optional
from mirrorlake.events.encode.nested import Nesting, listed, nested
from mirrorlake.events.metadata import metadata_fields
from mirrorlake.events.rows import Constant, EventObject, EventRows
from mirrorlake.events.types import UnifiedKind, UnifiedType

_NULL = b"null"
_NESTING = Nesting(
    element=b'{"nestedArray":null,"elementValue":',
    group=lambda _counts: [b'{"nestedArray":['],
    close=b'],"elementValue":null}',
    empty=b'{"nestedArray":[],"elementValue":null}',
    after=b"}",
    separator=b",",
)
_LIST = Nesting(element=b"", group=lambda _counts: [b"["], close=b"]", empty=b"[]", separator=b",")


def json_lines(
    described: EventObject, rows: EventRows, *, gzip: bool = False
) -> Iterator[bytes | memoryview]:
    """The file, in fragments. Deterministic: the same rows give the same bytes."""
    yield from lines_of(json_rows(described, rows), gzip=gzip)


def lines_of(encoded: pa.Array, *, gzip: bool = False) -> Iterator[bytes | memoryview]:
    """The file of events that are encoded already (`json_rows`)."""
    # zlib writes no file name and no time into the header.
    packer = zlib.compressobj(6, zlib.DEFLATED, 31) if gzip else None
    for _count, data in blocks(encoded):
        yield packer.compress(data) if packer else data
    if packer:
        yield packer.flush()


def json_rows(described: EventObject, rows: EventRows) -> pa.Array:
    """Each event as a JSON object followed by a line feed: binary."""
    return joined([*_fragments(described, rows), b"\n"], len(rows))


def json_texts(values: pa.Array, kind: UnifiedType) -> pa.Array:
    """Each value of a unified type as JSON text; NULL for NULL."""
    found = joined(_optional(values, kind), len(values)).cast(pa.string())
    return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.string()))


def _fragments(described: EventObject, rows: EventRows) -> Iterator[Fragment]:
    moment = pa.array([rows.read_timestamp], pa.timestamp("ms"))
    changed = pa.array(rows.source_timestamp).cast(pa.timestamp("ms"))
    members: dict[str, list[Fragment]] = {
        envelope.UUID: [b'"', rows.uuid.cast(pa.binary()), b'"'],
        envelope.READ_TIMESTAMP: [
            b'"',
            joined(json_text.moments(moment, b"Z"), 1)[0].as_py(),
            b'"',
        ],
        envelope.SOURCE_TIMESTAMP: [b'"', *json_text.moments(changed, b"Z"), b'"'],
        envelope.OBJECT: [_constant(described.name)],
        envelope.READ_METHOD: [_constant(str(rows.read_method))],
        envelope.STREAM_NAME: [_constant(described.stream)],
        envelope.SCHEMA_KEY: [_constant(described.schema_key)],
        envelope.SORT_KEYS: _list([_plain(key) for key in rows.sort_keys]),
        envelope.SOURCE_METADATA: _object(
            [
                (field.name, _plain(rows.metadata[field.name]))
                for field in metadata_fields(described.source, described.switches)
            ]
        ),
        envelope.PAYLOAD: _object(
            [
                (column.name, _optional(values, column.type))
                for column, values in zip(described.columns, rows.payload, strict=True)
            ]
        ),
    }
    yield from _object([(name, members[name]) for name in envelope.FIELDS])


def _object(members: Sequence[tuple[str, list[Fragment]]]) -> list[Fragment]:
    fragments: list[Fragment] = [b"{"]
    for number, (name, value) in enumerate(members):
        fragments += [b"," if number else b"", _constant(name) + b":", *value]
    return [*fragments, b"}"]


def _list(elements: Sequence[list[Fragment]]) -> list[Fragment]:
    fragments: list[Fragment] = [b"["]
    for number, value in enumerate(elements):
        fragments += [b"," if number else b"", *value]
    return [*fragments, b"]"]


def _constant(value: Constant) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(values: pa.Array | Constant) -> list[Fragment]:
    """A field of the metadata, or a part of the sort keys."""
    if not isinstance(values, pa.Array):
        return [_constant(values)]
    return optional(values, _plain_values, _NULL, b"")


def _plain_values(values: pa.Array) -> list[Fragment]:
    if pa.types.is_list(values.type):
        return listed(values, _plain_values, _LIST)
    return (json_text.quoted if pa.types.is_string(values.type) else json_text.digits)(values)


def _optional(values: pa.Array, kind: UnifiedType) -> list[Fragment]:
    if kind.kind is UnifiedKind.UNSUPPORTED:
        return [_NULL]
    return optional(values, lambda found: _values(found, kind), _NULL, b"")


_SIMPLE: dict[UnifiedKind, Callable[[pa.Array], list[Fragment]]] = {
    UnifiedKind.BOOLEAN: json_text.digits,
    UnifiedKind.BYTES: json_text.base64,
    UnifiedKind.DATE: lambda values: [b'"', *json_text.days(values), b'"'],
    UnifiedKind.DATETIME: lambda values: [b'"', *json_text.moments(values, b""), b'"'],
    UnifiedKind.DECIMAL: json_text.digits,
    UnifiedKind.DOUBLE: json_text.floats,
    UnifiedKind.FLOAT: json_text.floats,
    UnifiedKind.INTEGER: json_text.digits,
    UnifiedKind.INTERVAL: json_text.intervals,
    UnifiedKind.JSON: json_text.nested_json,
    UnifiedKind.LONG: json_text.digits,
    UnifiedKind.NUMBER: json_text.quoted,
    UnifiedKind.STRING: json_text.quoted,
    UnifiedKind.TIME: lambda values: [b'"', json_text.clock(numbers_of(values)), b'"'],
    UnifiedKind.TIME_INTERVAL: json_text.digits,
    UnifiedKind.TIMESTAMP: json_text.timestamps,
    UnifiedKind.VARCHAR: json_text.quoted,
}


def _values(values: pa.Array, kind: UnifiedType) -> list[Fragment]:
    """Encode values without nulls."""
    match kind.kind:
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            element = kind.element
            return [nested(values, lambda found: _optional(found, element), _NESTING)]
        case UnifiedKind.GEOMETRY:
            value, srid, shape = (pc.struct_field(values, n) for n in ("value", "srid", "type"))
            return _object(
                [
                    ("value", _optional(value, types.BYTES)),
                    ("srid", _optional(srid, types.INTEGER)),
                    ("type", _optional(shape, types.STRING)),
                ]
            )
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            moment, offset = (pc.struct_field(values, n) for n in ("timestamp", "offset"))
            return json_text.zoned(moment, numbers_of(offset))
        case UnifiedKind.TIME_WITH_TIME_ZONE:
            time, offset = (pc.struct_field(values, n) for n in ("time", "offset"))
            zone = json_text.zones(numbers_of(offset))
            return [b'"', json_text.clock(numbers_of(time)), *zone, b'"']
        case _:
            return _SIMPLE[kind.kind](values)
