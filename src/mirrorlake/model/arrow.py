"""The Arrow types of columns, as used in memory and in Parquet, and operations on Arrow columns."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.table import Column, Schema
from mirrorlake.model.types import DataType

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    # Delta's timestamp is an instant; microseconds in UTC on every path, so that two writers
    # cannot disagree on isAdjustedToUTC.
    "timestamp": pa.timestamp("us", "UTC"),
}


def arrow_type(data_type: DataType) -> pa.DataType:
    """The Arrow type of values of `data_type`."""
    if data_type.name == "decimal":
        return pa.decimal128(data_type.precision, data_type.scale)
    if data_type.name == "array":
        return pa.list_(arrow_type(data_type.members[0][1]))
    if data_type.name == "struct":
        return pa.struct([(name, arrow_type(kind)) for name, kind in data_type.members])
    return _ARROW[data_type.name]


def arrow_field(column: Column) -> pa.Field:
    return pa.field(column.name, arrow_type(column.type), nullable=column.nullable)


def arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([arrow_field(column) for column in schema])


def nullable_schema(schema: Schema) -> pa.Schema:
    """The schema with every column nullable, because deletes may contain only the key (LZ-103)."""
    return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in schema])


def contiguous(column: Any) -> pa.Array:
    """One array with the values of a chunked column."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def rows_of_elements(lists: pa.ListArray) -> np.ndarray:
    """The row of each element of `lists.flatten()`; int64. Unlike `list_parent_indices`, without
    those of NULL lists, which may have elements that nobody sees."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    return np.repeat(np.arange(len(lists)), lengths)


ROOM = 1 << 30
"""Maximum bytes of texts per array; an array with 32-bit offsets can hold twice as many."""


def taken(rows: pa.Table, indexes: np.ndarray | pa.Array) -> pa.Table:
    """The rows with these indexes. Texts that are too large for one array become several chunks."""
    columns = [taken_values(column, indexes) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def taken_values(column: pa.ChunkedArray, indexes: np.ndarray | pa.Array) -> pa.ChunkedArray:
    """As `taken`, for one column. No index may occur twice."""
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not is_text or column.nbytes <= ROOM:
        return column.take(pa.array(indexes))
    # Take from an array with 64-bit offsets, and split the result into chunks of ROOM bytes.
    long = pa.large_string() if pa.types.is_string(kind) else pa.large_binary()
    found = contiguous(column.cast(long)).take(pa.array(indexes))
    length = pc.fill_null(pc.binary_length(found), 0).to_numpy(zero_copy_only=False)
    block = np.cumsum(length, dtype=np.int64) // ROOM
    starts = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(found)]
    blocks = [
        # A slice keeps its offset into the whole array, which may not fit 32 bits; a copy starts
        # at 0.
        pa.concat_arrays([found.slice(start, end - start)]).cast(kind)
        for start, end in itertools.pairwise(starts)
        if end > start
    ]
    return pa.chunked_array(blocks, kind)


def decoded(values: pa.DictionaryArray) -> pa.Array:
    """The values of a dictionary-encoded array."""
    known = values.dictionary
    # Polars dictionaries are string views, from which Arrow cannot take values by index.
    for view, plain in ((pa.string_view(), pa.string()), (pa.binary_view(), pa.binary())):
        if known.type == view:
            values = pa.DictionaryArray.from_arrays(values.indices, known.cast(plain))
    return values.dictionary_decode()


_DAYS = (-719_162, 2_932_896)
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
"""From the first to the last day, and moment, of the years 1 to 9999."""


def beyond_calendar(column: pa.ChunkedArray) -> dict[int, str]:
    """The dates and moments before the year 1 and after the year 9999, which Python does not have
    and Arrow prints with another year, as ISO 8601 by row."""
    if pa.types.is_timestamp(column.type):
        numbers, unit, bounds = column.cast(pa.timestamp("us")).cast(pa.int64()), "us", _MICROS
    elif pa.types.is_date32(column.type):
        numbers, unit, bounds = column.cast(pa.int32()).cast(pa.int64()), "D", _DAYS
    else:
        return {}
    is_beyond = pc.or_(pc.less(numbers, bounds[0]), pc.greater(numbers, bounds[1]))
    if not pc.any(is_beyond, min_count=0).as_py():
        return {}
    rows = np.flatnonzero(contiguous(pc.fill_null(is_beyond, False)))
    found = contiguous(numbers.take(pa.array(rows))).to_numpy().view(f"datetime64[{unit}]")
    texts = np.datetime_as_string(found).tolist()
    return {
        row: text if text.startswith("-") or text.index("-") == 4 else f"+{text}"
        for row, text in zip(rows.tolist(), texts, strict=True)
    }


def python_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as `to_pylist` has them, except that a date or moment `beyond_calendar` is text."""
    beyond = {
        name: beyond_calendar(column)
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
    for index, texts in enumerate(beyond.values()):
        if texts:
            is_there = np.ones(rows.num_rows, bool)
            is_there[list(texts)] = False
            left = pc.if_else(pa.array(is_there), rows.column(index), None)
            rows = rows.set_column(index, rows.schema.field(index), left)
    found: list[dict[str, Any]] = rows.to_pylist()
    for name, texts in beyond.items():
        is_moment = pa.types.is_timestamp(rows.schema.field(name).type)
        offset = "+00:00" if is_moment and rows.schema.field(name).type.tz else ""
        for row, text in texts.items():
            found[row][name] = text + offset
    return found


def first_failing(values: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> int:
    """The index of the first value that cannot be converted, by bisection. There must be one."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            convert(values.slice(low, middle - low))
        except (pa.ArrowException, ValueError):
            high = middle
        else:
            low = middle
    return low


PLAIN = 19
"""Digits before and after the decimal point up to which Arrow parses decimals of every type."""


def decimals(texts: pa.Array, target: pa.Decimal128Type | pa.Decimal256Type) -> pa.Array:
    """Parse texts with sign, digits, decimal point and exponent.

    Raises ValueError for a text that is not a number, or whose value does not fit the type; zeros
    beyond the scale are accepted. Arrow (26.0) reads beyond its table of powers of ten if a text
    has many more places than the type: `5e-41` becomes 0.00, and `1e-400000000` ends the process.
    """
    plain = pc.match_substring_regex(texts, rf"^-?[0-9]{{1,{PLAIN}}}(\.[0-9]{{0,{PLAIN}}})?$")
    if pc.all(plain, min_count=0).as_py():
        return texts.cast(target)
    # Some have many digits or an exponent, which Arrow may parse wrongly: parse one by one.
    context = Context(prec=target.precision)
    unit = Decimal(1).scaleb(-target.scale, Context(prec=100))
    found = [None if text is None else _exact(text, unit, context) for text in texts.to_pylist()]
    return pa.array(found, target)


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _exact(text: str, unit: Decimal, context: Context) -> Decimal:
    # Python also reads `1_0`, blanks and the digits of other scripts.
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a decimal")
    try:
        number = Decimal(text)
        exact = number.quantize(unit, context=context)
    except InvalidOperation:
        raise ValueError("not a decimal of the type") from None
    if exact != number:
        raise ValueError("more decimal places than the type has")
    return exact
