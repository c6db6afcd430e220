"""Values as a source gives them, as values of the unified types.

What a source gives as text because no type of a table holds it (times of day, intervals, arrays) is
parsed here. A text that is not valid for its type raises BadValue; it is never replaced.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.capture.events.infinities import CLAMPED, Infinities
from mirrorlake.errors import BadValue
from mirrorlake.events import types
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType

_TIME = (
    r"^(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?:\.(?P<f>\d{1,6}))?"
    r"(?:(?P<sign>[+-])(?P<zh>\d\d)(?::(?P<zm>\d\d))?(?::(?P<zs>\d\d))?)?$"
)
_INTERVAL = (
    r"^P(?:(?P<y>-?\d+)Y)?(?:(?P<mo>-?\d+)M)?(?:(?P<w>-?\d+)W)?(?:(?P<d>-?\d+)D)?"
    r"(?:T(?:(?P<h>-?\d+)H)?(?:(?P<mi>-?\d+)M)?(?:(?P<sign>-?)(?P<s>\d+)(?:\.(?P<f>\d{1,6}))?S)?)?$"
)
_TEXTS = {UnifiedKind.STRING, UnifiedKind.VARCHAR, UnifiedKind.JSON}
_HOUR = 3_600_000_000
_MOST_HOURS, _LEAST_HOURS = (1 << 31) - 1, -(1 << 31)


Finite = Callable[[pa.Array, UnifiedType], pa.Array]
"""Replaces texts that no event can hold (`infinities`). Raises BadValue."""


class _Unfit(ValueError):
    """A value that its type does not hold; the text says why."""


def converted(
    values: pa.Array,
    kind: UnifiedType,
    *,
    table: str,
    column: str,
    infinities: Infinities = CLAMPED,
    is_key: bool = False,
) -> pa.Array:
    """The values as `payload_type(kind)`. infinities: how values that no event can hold are
    treated; is_key: rows are found by the column. Raises BadValue."""
    finite = partial(infinities.replaced, table=table, column=column, is_key=is_key)
    try:
        if pa.types.is_string(values.type):
            return _of_text(values, kind, finite)
        return _of_values(values, kind)
    except (pa.ArrowException, ValueError) as error:
        why = str(error) if isinstance(error, _Unfit) else type(error).__name__
        raise BadValue(
            f"a value of column {column} is no {kind}: {why}",
            table=table,
            hint=f"Leave the column out (source.columns), or convert it, and run `mirrorlake "
            f"reset {table}`.",
        ) from error


def _of_values(values: pa.Array, kind: UnifiedType) -> pa.Array:
    target = payload_type(kind)
    match kind.kind:
        case UnifiedKind.TIMESTAMP | UnifiedKind.DATETIME:
            return values.cast(target)
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            moment = values.cast(pa.timestamp("us"))
            return _struct(target, moment, _zeros(moment, pa.int32()), like=moment)
        case UnifiedKind.UNSUPPORTED:
            return pa.nulls(len(values))
        case _:
            return values.cast(target)


def _of_text(  # noqa: PLR0911  (one per form)
    values: pa.Array, kind: UnifiedType, finite: Finite
) -> pa.Array:
    target = payload_type(kind)
    match kind.kind:
        case _ if kind.kind in _TEXTS:
            return values
        case UnifiedKind.NUMBER:
            # Money has a sign of its currency and groups of digits.
            return pc.replace_substring_regex(values, "[$,]", "")
        case UnifiedKind.BYTES:
            return values.cast(pa.binary())  # of bits: their digits
        case UnifiedKind.TIME:
            return _micros(_matched(values, _TIME))
        case UnifiedKind.TIME_WITH_TIME_ZONE:
            found = _matched(values, _TIME)
            return _struct(target, _micros(found), _offset(found), like=values)
        case UnifiedKind.INTERVAL:
            return _intervals(finite(values, kind), target)
        case UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            moment = pa.timestamp("us", "UTC")
            return _of_values(_on_calendar(values, kind, moment, finite), kind)
        case UnifiedKind.DATE | UnifiedKind.TIMESTAMP:
            return _on_calendar(values, kind, target, finite)
        case UnifiedKind.ARRAY:
            assert kind.element is not None
            return _arrays(values, kind.element, target, finite)
        case UnifiedKind.UNSUPPORTED:
            return pa.nulls(len(values))
        case _:
            return values.cast(target)


def _on_calendar(
    values: pa.Array, kind: UnifiedType, target: pa.DataType, finite: Finite
) -> pa.Array:
    """Dates or moments. Raises pa.ArrowInvalid."""
    try:
        return values.cast(target)
    except pa.ArrowInvalid:  # few have others
        return finite(values, kind).cast(target)


def _matched(values: pa.Array, pattern: str) -> pa.StructArray:
    """The parts of each text, "" where a part is missing. Raises ValueError."""
    found = pc.extract_regex(values, pattern)
    if found.null_count != values.null_count:
        raise ValueError("not in the form of its type")
    return found


def _number(found: pa.StructArray, name: str) -> pa.Array:
    text = pc.struct_field(found, name)
    return pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64())


def _fraction(found: pa.StructArray) -> pa.Array:
    """Microseconds behind the point."""
    return pc.utf8_rpad(pc.struct_field(found, "f"), 6, "0").cast(pa.int64())


def _sign(found: pa.StructArray) -> pa.Array:
    minus = pc.equal(pc.struct_field(found, "sign"), "-")
    return pc.if_else(minus, pa.scalar(-1, pa.int64()), pa.scalar(1, pa.int64()))


def _seconds(hours: pa.Array, minutes: pa.Array, seconds: pa.Array) -> pa.Array:
    return pc.add(pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60), seconds)


def _micros(found: pa.StructArray) -> pa.Array:
    seconds = _seconds(*(_number(found, name) for name in ("h", "m", "s")))
    return pc.add(pc.multiply(seconds, 1_000_000), _fraction(found))


def _offset(found: pa.StructArray) -> pa.Array:
    """Milliseconds that the clock is ahead of UTC."""
    seconds = _seconds(*(_number(found, name) for name in ("zh", "zm", "zs")))
    return pc.multiply(pc.multiply(seconds, _sign(found)), 1000).cast(pa.int32())


def _intervals(values: pa.Array, target: pa.DataType) -> pa.Array:
    """`P1Y2M3DT4H5M6.5S`: a day has 24 hours. Hours that 32 bits do not hold are carried into the
    microseconds. Raises ValueError."""
    found = _matched(values, _INTERVAL)
    try:
        return _struct(target, *_durations(found), like=values)
    except pa.ArrowInvalid as error:
        raise _Unfit("it is longer than 2^31 months, or than about 196 million days") from error


def _durations(found: pa.StructArray) -> list[pa.Array]:
    """Months, hours and microseconds. Raises pa.ArrowInvalid for a number that does not fit."""
    product, total = pc.multiply_checked, pc.add_checked
    months = total(product(_number(found, "y"), 12), _number(found, "mo"))
    days = total(product(_number(found, "w"), 7), _number(found, "d"))
    hours = total(product(days, 24), _number(found, "h"))
    held = pc.max_element_wise(
        pc.min_element_wise(hours, _MOST_HOURS, skip_nulls=False), _LEAST_HOURS, skip_nulls=False
    )
    carried = product(pc.subtract_checked(hours, held), _HOUR)
    minutes = product(_number(found, "mi"), 60_000_000)
    # With the sign before it is added: the least number has no positive one.
    sign = _sign(found)
    seconds = product(product(_number(found, "s"), sign), 1_000_000)
    parts = total(seconds, product(_fraction(found), sign))
    micros = total(carried, total(minutes, parts))
    return [months.cast(pa.int32()), held.cast(pa.int32()), micros]


def _arrays(
    values: pa.Array, element: UnifiedType, target: pa.DataType, finite: Finite
) -> pa.Array:
    """Arrays as JSON texts, one after the other: no operation on columns reads nested lists."""
    dimensions: list[list[int] | None] = []
    counts: list[int] = []
    leaves: list[str | None] = []
    for text in values.to_pylist():
        array = None if text is None else json.loads(text, parse_float=str, parse_int=str)
        before = len(leaves)
        dimensions.append(None if array is None else _flattened(array, leaves))
        counts.append(len(leaves) - before)
    found = _leaves(pa.array(leaves, pa.string()), element, finite)
    offsets = pa.array([0, *counts]).cast(pa.int32())
    elements = pa.ListArray.from_arrays(pc.cumulative_sum(offsets), found)
    return _struct(target, pa.array(dimensions, pa.list_(pa.int32())), elements, like=values)


def _flattened(array: list[Any], leaves: list[str | None]) -> list[int]:
    """Appends the elements; returns how many there are in each dimension, none for nothing."""
    if array and isinstance(array[0], list):
        inner = [_flattened(nested, leaves) for nested in array]
        if any(lengths != inner[0] for lengths in inner):
            raise ValueError("an array that is not rectangular")
        return [len(array), *inner[0]]
    leaves.extend(map(_leaf, array))
    return [len(array)] if array else []


def _leaf(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, str):
        return value
    raise ValueError("an element that is none")


def _leaves(values: pa.Array, element: UnifiedType, finite: Finite) -> pa.Array:
    if element.kind is UnifiedKind.BYTES:
        decoded = [None if v is None else _bytes(v) for v in values.to_pylist()]
        return pa.array(decoded, pa.binary())
    return _of_text(values, element, finite)


def _bytes(text: str) -> bytes:
    """A bytea in hex, or the digits of bits."""
    return bytes.fromhex(text[2:]) if text.startswith("\\x") else text.encode()


def _zeros(like: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(0, kind), len(like))


def _struct(target: pa.StructType, *members: pa.Array, like: pa.Array) -> pa.Array:
    """A record, which is null where `like` is."""
    fields = [target.field(number) for number in range(target.num_fields)]
    mask = like.is_null() if like.null_count else None
    return pa.StructArray.from_arrays(list(members), fields=fields, mask=mask)


def supported(kind: UnifiedType) -> UnifiedType:
    """The type as it is written. Elements that are JSON themselves cannot be
    distinguished from arrays within the array: such a column is JSON."""
    nested = kind.kind is UnifiedKind.ARRAY and kind.element == types.JSON
    return types.JSON if nested else kind
