"""Converts Arrow types to those that a landed file may have (LZ-147 to LZ-155).

If a mirror would store a type as another type, it is landed as that type, so that the table is the
same for every reader of the file. Types that no mirror stores become text, or are rejected with
their name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue, SchemaMergeFailure, UnsupportedColumn
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.text.format import TYPES
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type, contiguous, decoded, first_failing
from mirrorlake.model.types import DataType
from mirrorlake.publisher.encoding.json_text import json_text

TEXT_TYPES = {kind.name: name for name, kind in TYPES.items() if name != "ITime"}
"""Types of delimited text by their Delta names (LZ-175 to LZ-186)."""


def landable(values: pa.Array | pa.ChunkedArray, *, table: str, column: str) -> pa.Array:
    """The values in a type that a landed file may have; a column of only NULL stays one.

    Raises UnsupportedColumn for an unsupported type, BadValue for a value that does not fit the
    landed type.
    """
    plain = _plain(contiguous(values))
    try:
        return _landed(plain)
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedColumn(
            f"its type {plain.type} is not supported",
            table=table,
            column=column,
            hint="Convert it to text or to a number first.",
        ) from error
    except pa.ArrowException as error:
        raise BadValue(
            f"a value is not supported: {error}",
            table=table,
            column=column,
            hint="Convert the column to a type that can hold it.",
        ) from error


def landed_type(kind: pa.DataType, *, table: str, column: str) -> DataType:
    """The type that a landed column has in the table. Raises UnsupportedColumn."""
    return parquet.column_type(pa.field(column, kind), table=table, file="")


def text_type(kind: DataType) -> DataType:
    """The type as delimited text can declare it: neither Decimal (LZ-187) nor small byte types."""
    if kind.name == "decimal":
        return types.STRING
    return types.SHORT if kind.name == "byte" else kind


def conformed(
    values: pa.Array, known: DataType, *, table: str, column: str, row: int = 0
) -> pa.Array:
    """The values in the type of the table, if every one of them fits exactly.

    row: number of rows before these. Raises SchemaMergeFailure if the types are of different kinds
    (LZ-220), BadValue for the first value that does not fit.
    """
    target = arrow_type(known)
    if values.type == target:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    found = landed_type(values.type, table=table, column=column)
    if not _is_akin(found, known):
        raise SchemaMergeFailure(
            f"incoming type {found}, existing type {known}",
            table=table,
            column=column,
            hint="Convert it, or drop the table and load it again with the new type (LZ-220).",
        )
    try:
        return _exactly(values, target)
    except pa.ArrowException:
        bad = first_failing(values, lambda part: _exactly(part, target))
        raise BadValue(
            f"the value does not fit the table's type {known}",
            table=table,
            row=row + bad + 1,
            column=column,
            value=str(values[bad].as_py()),
            hint="Correct the value, or drop the table and load it again with a wider type.",
        ) from None


def _plain(values: pa.Array) -> pa.Array:
    """The values without dictionaries, run-end encoding and extension types."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return _uuid_text(values.storage)
        return _plain(values.storage)
    if pa.types.is_dictionary(kind):
        return _plain(decoded(values))
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(values))
    return values


def _landed(values: pa.Array) -> pa.Array:
    kind, is_ = values.type, pa.types
    if is_.is_nested(kind):
        return json_text(values)
    if is_.is_null(kind):
        return values
    if is_.is_timestamp(kind):
        # Without a zone it is UTC (LZ-152); nanoseconds are truncated, because tables have none.
        values = values.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns")
        target = pa.timestamp("us", "UTC")
    elif is_.is_duration(kind):
        values = values.cast(pa.duration("us"), safe=kind.unit != "ns")
        target = pa.int64()
    elif is_.is_decimal(kind):
        target = _decimal(kind)
    elif (known := parquet.data_type_of(kind)) is not None:
        target = arrow_type(known)
    else:
        raise pa.ArrowNotImplementedError(str(kind))
    return values if kind == target else values.cast(target)


def _decimal(kind: pa.DataType) -> pa.DataType:
    """A decimal that Delta supports, or text if it has more digits."""
    precision, scale = kind.precision, kind.scale
    if scale < 0:
        precision, scale = precision - scale, 0
    precision = max(precision, scale)
    return pa.decimal128(precision, scale) if precision <= types.MAX_PRECISION else pa.string()


def _uuid_text(values: pa.Array) -> pa.Array:
    """16 bytes each, as 8-4-4-4-12 hexadecimal digits."""
    dense = pc.fill_null(values, bytes(16))
    digits = b"".join(dense.to_pylist()).hex().encode()
    cells = np.frombuffer(digits, "S1").reshape(len(values), 32)
    dash = np.full((len(values), 1), b"-", "S1")
    parts = [cells[:, a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))]
    joined = np.hstack([part for pair in zip(parts, [dash] * 5, strict=True) for part in pair][:-1])
    texts = pa.Array.from_buffers(
        pa.binary(36), len(values), [None, pa.py_buffer(np.ascontiguousarray(joined).tobytes())]
    ).cast(pa.binary())
    return pc.if_else(values.is_valid(), texts.cast(pa.string()), pa.scalar(None, pa.string()))


_WHOLE = {"byte", "short", "integer", "long", "decimal"}
_AKIN = {
    **dict.fromkeys(_WHOLE, _WHOLE | {"float", "double"}),
    "float": {"byte", "short", "integer", "long", "double"},
    "double": {"byte", "short", "integer", "long", "float"},
    "date": {"timestamp"},
    "timestamp": {"date"},
}


def _is_akin(found: DataType, known: DataType) -> bool:
    return known.name == found.name or known.name in _AKIN.get(found.name, ())


def _exactly(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert without loss. Raises pyarrow.ArrowInvalid."""
    is_ = pa.types
    if is_.is_decimal(target) and is_.is_integer(values.type):
        values = values.cast(pa.decimal128(19, 0))
        if target.scale:
            values = values.cast(pa.decimal128(38, min(target.scale, 19)))
    converted = values.cast(target)
    if is_.is_floating(target) and (is_.is_floating(values.type) or is_.is_decimal(values.type)):
        back = converted.cast(values.type)
        same = pc.or_kleene(pc.equal(back, values), _is_nan(values))
        if not pc.all(same, min_count=0).as_py():
            raise pa.ArrowInvalid("a number would lose digits")
    return converted


def _is_nan(values: pa.Array) -> pa.Array:
    if pa.types.is_floating(values.type):
        return pc.is_nan(values)
    return pa.repeat(pa.scalar(False), len(values))
