"""Converts JSON values to the unified types (ST-112 to ST-134), through their texts."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import types
from mirrorlake.events.decode.fitting import fitted
from mirrorlake.events.decode.iso import Moments, flaw, moments, times
from mirrorlake.events.decode.json.lines import Digits, escaped, json_text, text_of
from mirrorlake.events.decode.json.marked_texts import MarkedTexts
from mirrorlake.events.decode.unified import numbers
from mirrorlake.events.rows import payload_type
from mirrorlake.events.types import UnifiedKind, UnifiedType
from mirrorlake.model.arrow import decimals

_INTERVAL = (
    r"^(?P<sign>-?)P(?:(?P<years>-?[0-9]+)Y)?(?:(?P<months>-?[0-9]+)M)?(?:(?P<weeks>-?[0-9]+)W)?"
    r"(?:(?P<days>-?[0-9]+)D)?(?:T(?:(?P<hours>-?[0-9]+)H)?(?:(?P<minutes>-?[0-9]+)M)?"
    r"(?:(?P<seconds>-?[0-9]+)(?:\.(?P<part>[0-9]{1,6}))?S)?)?$"
)
_ZONED = {
    UnifiedKind.TIMESTAMP,
    UnifiedKind.TIMESTAMP_WITH_TIME_ZONE,
    UnifiedKind.TIME_WITH_TIME_ZONE,
}
_TIMES = {*_ZONED, UnifiedKind.DATE, UnifiedKind.DATETIME, UnifiedKind.TIME}
_DAY = 86_400_000_000
_NUMERIC = {
    UnifiedKind.DECIMAL,
    UnifiedKind.DOUBLE,
    UnifiedKind.FLOAT,
    UnifiedKind.INTEGER,
    UnifiedKind.LONG,
    UnifiedKind.TIME_INTERVAL,
}
_PADDED = "^[+-]?0[0-9]"
"""Texts with leading zeros, which no number of JSON has."""
_64_BITS = 1 << 63
_WHOLE = re.compile("-?[0-9]{1,19}")


def texts_of(
    values: Sequence[Any], convert: Callable[[Any], str | None] = text_of
) -> tuple[pa.Array, list[int]]:
    """Each value as text, and the rows that cannot be represented as text, which are NULL."""
    if isinstance(values, MarkedTexts) and convert is text_of:
        return values.texts, []
    try:
        return pa.array([convert(value) for value in values], pa.string()), []
    except (UnicodeEncodeError, RecursionError):
        found = [_text_or_none(value, convert) for value in values]
    bad = [row for row, value in enumerate(values) if value is not None and found[row] is None]
    return pa.array(found, pa.string()), bad


def column_of(
    values: Sequence[Any], kind: UnifiedType, *, has_documents: bool = False
) -> tuple[pa.Array, list[int]]:
    """The values of a column, of its `payload_type`, and the rows whose value does not fit.

    has_documents: whether a string of JSON in a JSON column is a document (ST-160), and not a
        string.
    """
    target = payload_type(kind)
    match kind.kind:
        case UnifiedKind.UNSUPPORTED:
            return pa.nulls(len(values)), []
        case UnifiedKind.ARRAY | UnifiedKind.GEOMETRY | UnifiedKind.BYTES:
            return _by_one(values, kind, target)
        case UnifiedKind.JSON:
            return texts_of(values, _document if has_documents else _nested)
        case UnifiedKind.BOOLEAN:
            return _booleans(values)
    texts, bad = texts_of(values)
    found, unfit = fitted(texts, target, lambda part: _from_texts(part, kind, target))
    return found, sorted({*bad, *unfit})


def _booleans(values: Sequence[Any]) -> tuple[pa.Array, list[int]]:
    if isinstance(values, MarkedTexts) and not len(values.strings) + len(values.numbers):
        return pc.equal(values.texts, "true"), []
    values = list(values)
    try:
        return pa.array(values, pa.bool_()), []
    except pa.ArrowException:
        bad = [row for row, one in enumerate(values) if not isinstance(one, bool | None)]
    found = [one if isinstance(one, bool) else None for one in values]
    return pa.array(found, pa.bool_()), bad


def flaw_of(value: Any, kind: UnifiedType) -> str:
    """Why a value does not fit its type, as far as that is not obvious; "" otherwise."""
    if kind.kind in _NUMERIC and isinstance(value, str) and re.search(_PADDED, value):
        return "as a number, the text would lose its leading zeros"
    is_time = kind.kind in _TIMES and isinstance(value, str)
    return flaw(value, has_zone=kind.kind in _ZONED) if is_time else ""


def inferred(values: Sequence[Any]) -> UnifiedType:
    """The type that holds all these values exactly; UNSUPPORTED when all are null."""
    kinds = (
        set(_kinds_in(values))
        if isinstance(values, MarkedTexts)
        else {_kind_of(value) for value in values if value is not None}
    )
    if not kinds:
        return types.UNSUPPORTED
    if kinds <= {types.LONG, types.NUMBER}:
        return types.NUMBER if types.NUMBER in kinds else types.LONG
    return kinds.pop() if len(kinds) == 1 else types.STRING


def _kind_of(value: Any) -> UnifiedType:
    match value:
        case bool():
            return types.BOOLEAN
        case Digits():
            fits = _WHOLE.fullmatch(value) and -_64_BITS <= int(value) < _64_BITS
            return types.LONG if fits else types.NUMBER
        case str():
            return types.STRING
        case _:
            return types.JSON


def _kinds_in(values: MarkedTexts) -> Iterator[UnifiedType]:
    """The same, of all values but null."""
    if len(values.strings):
        yield types.STRING
    if len(values.booleans):
        yield types.BOOLEAN
    if len(values.numbers):
        yield types.LONG if _fit_64_bits(values.numbers) else types.NUMBER


def _fit_64_bits(digits: pa.StringArray) -> bool:
    if not pc.all(pc.match_substring_regex(digits, f"^{_WHOLE.pattern}$")).as_py():
        return False
    try:
        digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return False
    return True


def _from_texts(texts: pa.Array, kind: UnifiedType, target: pa.DataType) -> pa.Array:
    """Raises pa.ArrowException or ValueError when a text does not fit the type."""
    match kind.kind:
        case UnifiedKind.DATE:
            micros = _local(moments(texts))
            days = pc.divide(micros, _DAY)
            _refuse(pc.not_equal(pc.multiply(days, _DAY), micros))
            found = days.cast(pa.int32()).cast(pa.date32())
        case UnifiedKind.DATETIME:
            found = _local(moments(texts))
        case UnifiedKind.TIMESTAMP | UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
            # Moments outside the calendar, including infinity, are written in microseconds.
            digits = pc.match_substring_regex(texts, "^-?[0-9]+$")
            counted = pc.if_else(digits, texts, None).cast(pa.int64())
            parsed = moments(pc.if_else(digits, None, texts))
            _refuse(parsed.is_cut)
            found = pc.coalesce(counted, parsed.instant)
            if kind.kind is UnifiedKind.TIMESTAMP_WITH_TIME_ZONE:
                offset = pc.if_else(digits, 0, pc.multiply(parsed.offset, 1000))
                found = _struct(texts, target, found, offset)
        case UnifiedKind.TIME:
            found = _local(times(texts))
        case UnifiedKind.TIME_WITH_TIME_ZONE:
            parsed = times(texts)
            _refuse(parsed.is_cut)
            found = _struct(texts, target, parsed.micros, pc.multiply(parsed.offset, 1000))
        case UnifiedKind.INTERVAL:
            found = _intervals(texts, target)
        case UnifiedKind.DECIMAL:
            _refuse(pc.match_substring_regex(texts, _PADDED))
            found = decimals(texts, target)
        case UnifiedKind.NUMBER:
            found = numbers(texts)
        case UnifiedKind.DOUBLE | UnifiedKind.FLOAT:
            _refuse(pc.match_substring_regex(texts, _PADDED))
            found = texts.cast(target)
            _refuse(pc.and_(pc.is_inf(found), pc.match_substring_regex(texts, "[0-9]")))
        case UnifiedKind.INTEGER | UnifiedKind.LONG | UnifiedKind.TIME_INTERVAL:
            _refuse(pc.invert(pc.match_substring_regex(texts, "^-?(0|[1-9][0-9]*)$")))
            found = texts
        case _:
            found = texts
    found = found.cast(target)
    first = found if not pa.types.is_struct(target) else pc.struct_field(found, 0)
    _refuse(pc.and_(texts.is_valid(), first.is_null()))
    return found


def _local(parsed: Moments) -> pa.Array:
    """Microseconds of times without a zone. Raises ValueError for one with an offset from UTC."""
    _refuse(pc.or_(parsed.is_cut, pc.not_equal(parsed.offset, 0)))
    return parsed.micros


def _struct(texts: pa.Array, target: pa.StructType, *members: pa.Array) -> pa.Array:
    given = [member.cast(one.type) for member, one in zip(members, target, strict=True)]
    return pa.StructArray.from_arrays(given, fields=list(target), mask=texts.is_null())


def _refuse(wrong: pa.Array) -> None:
    if pc.any(wrong).as_py():
        raise ValueError("a text is none of the type")


def _intervals(texts: pa.Array, target: pa.StructType) -> pa.Array:
    """`P1Y2M3DT4H5M6.789S`; a day has 24 hours. Raises pa.ArrowInvalid for a number that the
    record does not hold."""
    found = pc.extract_regex(texts, _INTERVAL)
    names = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")
    years, months, weeks, days, hours, minutes, seconds = (
        pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64())
        for text in (pc.struct_field(found, name) for name in names)
    )
    part = pc.utf8_rpad(pc.struct_field(found, "part"), 6, "0").cast(pa.int64())
    minus = pc.match_substring_regex(texts, r"-[0-9]+\.[0-9]*S$|-0+\.")
    part = pc.if_else(minus, pc.negate(part), part)
    sign = pc.if_else(pc.equal(pc.struct_field(found, "sign"), "-"), -1, 1)
    product, total = pc.multiply_checked, pc.add_checked
    days = total(days, product(weeks, 7))
    micros = total(product(total(product(minutes, 60), seconds), 1_000_000), part)
    return _struct(
        texts,
        target,
        product(total(product(years, 12), months), sign),
        product(total(product(days, 24), hours), sign),
        product(micros, sign),
    )


# -- one value at a time ---------------------------------------------------------------------------


def _by_one(
    values: Sequence[Any], kind: UnifiedType, target: pa.DataType
) -> tuple[pa.Array, list[int]]:
    found: list[Any] = []
    bad = []
    for row, value in enumerate(values):
        try:
            found.append(None if value is None else _one(value, kind))
        except (ValueError, TypeError, KeyError, RecursionError):
            found.append(None)
            bad.append(row)
    if kind.kind is not UnifiedKind.ARRAY:
        return pa.array(found, target), bad
    return _arrays(found, kind, target, bad)


def _one(value: Any, kind: UnifiedType) -> Any:
    if kind.kind is UnifiedKind.BYTES:
        if isinstance(value, Digits):
            raise TypeError("a number")
        return base64.b64decode(value, validate=True)
    if kind.kind is UnifiedKind.GEOMETRY:
        binary = base64.b64decode(value["value"], validate=True)
        return {"value": binary, "srid": int(value["srid"]), "type": str(value["type"])}
    elements: list[Any] = []
    shape = _dimensions(value, elements)
    return ([] if shape == [0] else shape), elements


def _dimensions(value: Any, elements: list[Any]) -> list[int]:
    """The lengths of a nested list in each dimension; of one without elements, 0. Appends its
    elements to `elements`.

    The value is a JSON list, or the record of the Avro schema (ST-134).
    """
    if isinstance(value, dict):
        value = value["nestedArray"]
    if not isinstance(value, list):
        raise TypeError("no array")
    inner: list[int] | None = None
    for one in value:
        is_record = isinstance(one, dict) and one.keys() == {"nestedArray", "elementValue"}
        if isinstance(one, list) or (is_record and one["nestedArray"] is not None):
            shape = _dimensions(one, elements)
        else:
            elements.append(one["elementValue"] if is_record else one)
            shape = []
        if inner is not None and shape != inner:
            raise ValueError("an array has rows of different lengths")
        inner = shape
    return [0] if inner is None else [len(value), *inner]


def _arrays(
    found: list[Any], kind: UnifiedType, target: pa.StructType, bad: list[int]
) -> tuple[pa.Array, list[int]]:
    assert kind.element is not None
    flat = [element for one in found if one is not None for element in one[1]]
    values, unfit = column_of(flat, kind.element)
    lengths = [0 if one is None else len(one[1]) for one in found]
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    bad = sorted({*bad, *(int(np.searchsorted(offsets, at, "right")) - 1 for at in unfit)})
    missing = np.array([one is None for one in found], bool)
    missing[bad] = True
    shapes = pa.array([[] if one is None else one[0] for one in found], target.field(0).type)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    members = [shapes, lists.cast(target.field(1).type)]
    return pa.StructArray.from_arrays(members, fields=list(target), mask=pa.array(missing)), bad


def _nested(value: Any) -> str | None:
    """Nested JSON as text. Its null is not distinguished from that of the database (ST-099)."""
    return None if value is None else json_text(value)


def _document(value: Any) -> str | None:
    """As `_nested`; a string that contains a document already is one (ST-160)."""
    if isinstance(value, str) and not isinstance(value, Digits) and value[:1] in {"{", "["}:
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return json_text(value)
        return escaped(value)
    return _nested(value)


def _text_or_none(value: Any, convert: Callable[[Any], str | None]) -> str | None:
    try:
        text = convert(value)
        (text or "").encode()
    except (UnicodeEncodeError, RecursionError):
        return None
    return text
