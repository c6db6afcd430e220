"""Encodes events as Avro values (ST-016, ST-112 to ST-134)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import envelope
from mirrorlake.events.avro_schema import RECORD_FIELDS
from mirrorlake.events.encode.fragments import (
    Fragment,
    binary,
    fixed,
    joined,
    numbers_of,
    offsets_of,
    optional,
    varint,
    varints,
)
from mirrorlake.events.encode.nested import Nesting, listed, nested
from mirrorlake.events.metadata import metadata_fields
from mirrorlake.events.rows import Constant, EventObject, EventRows
from mirrorlake.events.types import UnifiedKind, UnifiedType

_NULL, _PRESENT = b"\x00", b"\x02"  # the first and the second branch of a union
_END = b"\x00"  # of an array

# [...]: a branch, a count, the elements, the end of the array; and no value of its own.
_NESTING = Nesting(
    element=b"\x00",  # nestedArray is null
    group=lambda counts: [_PRESENT, varints(counts)],
    close=_END + _NULL,
    empty=_PRESENT + _END + _NULL,
)
_LIST = Nesting(element=b"", group=lambda counts: [varints(counts)], close=_END, empty=_END)


def avro_rows(described: EventObject, rows: EventRows) -> pa.Array:
    """Each event as a value of `described.schema`: binary."""
    return joined(_fragments(described, rows), len(rows))


def _fragments(described: EventObject, rows: EventRows) -> Iterator[Fragment]:
    generic: dict[str, list[Fragment]] = {
        envelope.UUID: _texts(rows.uuid),
        envelope.READ_TIMESTAMP: [varint(rows.read_timestamp)],
        envelope.SOURCE_TIMESTAMP: [varints(rows.source_timestamp)],
        envelope.OBJECT: [_text(described.name)],
        envelope.READ_METHOD: [_text(str(rows.read_method))],
        envelope.STREAM_NAME: [_text(described.stream)],
        envelope.SCHEMA_KEY: [_text(described.schema_key)],
        envelope.SORT_KEYS: _sort_keys(rows.sort_keys),
    }
    for name in envelope.FIELDS:
        yield from generic.get(name, ())
    for field in metadata_fields(described.source, described.switches):
        value = rows.metadata[field.name]
        if isinstance(value, pa.Array) and field.is_nullable:
            yield from optional(value, _plain, _NULL, _PRESENT)
        elif isinstance(value, pa.Array):
            yield from _plain(value)
        elif value is None:
            yield _NULL
        else:
            yield (_PRESENT if field.is_nullable else b"") + _constant(value)
    for column, values in zip(described.columns, rows.payload, strict=True):
        yield from _optional(values, column.type)


def _sort_keys(keys: Sequence[pa.Array | str | int]) -> list[Fragment]:
    fragments: list[Fragment] = [varint(len(keys))]
    for key in keys:
        if isinstance(key, pa.Array):
            is_text = pa.types.is_string(key.type)
            fragments += [_NULL if is_text else _PRESENT, *_plain(key)]
        else:
            fragments.append((_NULL if isinstance(key, str) else _PRESENT) + _constant(key))
    return [*fragments, _END]


def _plain(values: pa.Array) -> list[Fragment]:
    """Values of the metadata, which have no unified type. Raises ValueError for a null."""
    if values.null_count:
        raise ValueError("null where a value has to be")
    if pa.types.is_boolean(values.type):
        return [_booleans(values)]
    if pa.types.is_integer(values.type):
        return [varints(numbers_of(values))]
    if pa.types.is_list(values.type):
        return listed(values, _plain, _LIST)
    return _texts(values)


def _constant(value: Constant) -> bytes:
    match value:
        case bool():
            return bytes([value])
        case int():
            return varint(value)
        case str():
            return _text(value)
        case None:
            raise ValueError("null where a value has to be")
        case _ if len(value) == 0:
            return _END
        case _:
            return varint(len(value)) + b"".join(map(_constant, value)) + _END


def _text(value: str) -> bytes:
    encoded = value.encode()
    return varint(len(encoded)) + encoded


def _optional(values: pa.Array, kind: UnifiedType) -> list[Fragment]:
    if kind.kind is UnifiedKind.UNSUPPORTED:
        return []
    return optional(values, lambda found: _values(found, kind), _NULL, _PRESENT)


def _values(values: pa.Array, kind: UnifiedType) -> list[Fragment]:  # noqa: PLR0911  (one per form)
    """Encode values without nulls."""
    match kind.kind:
        case UnifiedKind.BOOLEAN:
            return [_booleans(values)]
        case UnifiedKind.FLOAT | UnifiedKind.DOUBLE:
            width = values.type.bit_width // 8
            whole = numbers_of(values, np.int32 if width == 4 else np.int64)
            return [fixed(whole.view(np.uint8).reshape(-1, width))]
        case UnifiedKind.DECIMAL:
            return _decimals(values)
        case UnifiedKind.DATETIME:
            micros = numbers_of(values)
            days = np.floor_divide(micros, 86_400_000_000)
            return [varints(days), varints(micros - days * 86_400_000_000)]
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            element = kind.element
            return [nested(values, lambda found: _optional(found, element), _NESTING)]
        case _ if kind.kind in RECORD_FIELDS:
            return [
                fragment for name in RECORD_FIELDS[kind.kind] for fragment in _member(values, name)
            ]
        case _ if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
            return _texts(values)
        case _:
            return [varints(numbers_of(values))]


def _member(values: pa.StructArray, name: str) -> list[Fragment]:
    member = pc.struct_field(values, name)
    if member.null_count:
        raise ValueError(f"{name} is null in a value that is not")
    is_text = pa.types.is_string(member.type) or pa.types.is_binary(member.type)
    return _texts(member) if is_text else [varints(numbers_of(member))]


def _texts(values: pa.Array) -> list[Fragment]:
    lengths = np.diff(offsets_of(values)).astype(np.int64)
    found = values if pa.types.is_binary(values.type) else values.cast(pa.binary())
    if len(lengths) and (lengths == lengths[0]).all():
        return [varint(int(lengths[0])), found]
    return [varints(lengths), found]


def _booleans(values: pa.Array) -> pa.Array:
    return fixed(values.to_numpy(zero_copy_only=False).astype(np.uint8)[:, None])


def _decimals(values: pa.Array) -> list[Fragment]:
    """Two's complement, big-endian, in the fewest bytes that hold the sign."""
    width = values.type.bit_width // 8
    raw = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, width)
    raw = raw[values.offset : values.offset + len(values)][:, ::-1]
    sign = np.where(raw[:, :1] >= 0x80, 0xFF, 0).astype(np.uint8)
    leading = np.cumprod(raw == sign, axis=1).sum(axis=1)  # bytes that only repeat the sign
    skipped = np.minimum(leading, width - 1)
    first = raw[np.arange(len(raw)), skipped]
    skipped -= ((first ^ sign[:, 0]) >= 0x80) & (skipped > 0)
    lengths = (width - skipped).astype(np.int64)
    data = raw[np.arange(width) >= skipped[:, None]]
    return [varints(lengths), binary(lengths, data)]
