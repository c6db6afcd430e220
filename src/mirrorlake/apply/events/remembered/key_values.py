"""Values of keys in the form by which rows are found: one form for each value that the source has.

A number of any length is a text in a table, and may be written in several ways (`10`, `10.0`,
`1E1`). An `_id` of MongoDB may be of any type (ST-160), so that its text has to tell the type.

Tables of earlier releases have their keys as they were written, and go on so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.apply.events.columns import EventTableColumn
from mirrorlake.apply.events.reading import TableEvents
from mirrorlake.apply.events.remembered.state import EventTableState
from mirrorlake.events import types
from mirrorlake.events.decode.json.lines import DECODER, Digits, RepeatedNames, escaped
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.types import UnifiedType
from mirrorlake.model.arrow import contiguous

MOST_ZEROS = 400
"""Up to how many zeros a number is written without an exponent, so that a short one never becomes
much longer; more than Oracle's or a double has."""
_MOST_EXPONENT = 18
"""Digits of an exponent. A longer one is left as it is: no source has such numbers."""

_NUMBER = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]+))?")
_PLAIN = r"^(0|-?[1-9][0-9]*)$"
_UNTYPED = r"^[^\[{\"0-9tfn+-]"
"""How a text begins that is neither JSON nor a number. `-` may begin an infinity."""


BY_VALUE = "key"
"""Under which a table says the types of its key columns, by their names in it. One of an earlier
release says none."""
_ID, _MONGODB = "_id", str(EventSource.MONGODB)
_TEXTS = {types.JSON, types.STRING}


def key_types(part: TableEvents) -> dict[str, UnifiedType]:
    """The types of the key columns of a new table, of the names that the events have."""
    names = {name for key in part.keys for name in key}
    if part.source is not EventSource.MONGODB:
        return {name: part.columns[name] for name in names & part.columns.keys()}
    found = {name: part.columns[name] for name in (names | {_ID}) & part.columns.keys()}
    return {
        name: types.JSON if name == _ID and kind in {types.STRING, types.LONG} else kind
        for name, kind in found.items()
    }


def is_key(state: EventTableState, column: EventTableColumn) -> bool:
    """Whether a column is one of the key, also where the table keeps every event."""
    return column.source in state.key or (state.rule == _MONGODB and column.source == _ID)


def comparable(
    state: EventTableState, part: TableEvents
) -> tuple[pa.Table, Mapping[str, UnifiedType]]:
    """The payload of some events, and its types, with one text for each value of a key."""
    if part.source is EventSource.MONGODB:
        return _documents(state, part)
    payload = part.payload
    for name in state.key if state.is_by_value else ():
        if part.columns.get(name) == state.columns.known.get(name) == types.NUMBER:
            payload = _with(payload, name, canonical_numbers)
    return payload, part.columns


def _documents(
    state: EventTableState, part: TableEvents
) -> tuple[pa.Table, Mapping[str, UnifiedType]]:
    """The same of documents, which are JSON also where they are texts (ST-160)."""
    payload, kinds = part.payload, dict(part.columns)
    for name, kind in part.columns.items():
        wanted = state.columns.known.get(name)
        if wanted not in _TEXTS or kind not in {*_TEXTS, types.LONG}:
            continue
        if state.is_by_value and name == _ID:
            payload = _with(payload, name, _typed if kind == types.JSON else _of_texts)
        elif kind not in _TEXTS:
            continue  # it does not fit
        kinds[name] = wanted
    return payload, kinds


def _with(payload: pa.Table, name: str, form: Callable[[pa.Array], pa.Array]) -> pa.Table:
    values = form(contiguous(payload.column(name)))
    return payload.set_column(payload.column_names.index(name), name, values)


def canonical_numbers(texts: pa.Array) -> pa.Array:
    """Numbers as texts, without an exponent, leading zeros or zeros at the end of the fraction."""
    return _mapped(texts, pc.match_substring_regex(texts, _PLAIN), canonical_number)


def canonical_number(text: str) -> str:
    """text: as unified type NUMBER has it."""
    parts = _NUMBER.fullmatch(text)
    if parts is None:  # not finite
        word = "NaN" if text.casefold().lstrip("+-")[:1] == "n" else "Infinity"
        return f"-{word}" if text.startswith("-") and word != "NaN" else word
    sign, whole, fraction, exponent = parts.groups()
    if len((exponent or "").lstrip("+-0")) > _MOST_EXPONENT:
        return text
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    if not (digits := digits.rstrip("0")):
        return "0"
    minus = "-" if sign == "-" else ""
    if point > len(digits) + MOST_ZEROS or point < -MOST_ZEROS:
        rest = f".{digits[1:]}" if digits[1:] else ""
        return f"{minus}{digits[0]}{rest}E{point - 1:+}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{digits}"
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{minus}{whole}.{fraction}" if fraction else f"{minus}{whole}"


def _typed(texts: pa.Array) -> pa.Array:
    """Keys of MongoDB, from JSON. A text that cannot be mistaken for another type is itself; what
    has members is as MongoDB's own drivers write it."""
    return _mapped(texts, None, _of_json)


def _of_texts(values: pa.Array) -> pa.Array:
    """The same, from texts or numbers: what reads as JSON is JSON."""
    texts = values.cast(pa.string())
    return _mapped(texts, pc.match_substring_regex(texts, _UNTYPED), _of_text)


def _of_json(text: str) -> str:
    try:
        return _rendered(DECODER.decode(text))
    except RecursionError:
        return text


def _of_text(text: str) -> str:
    return _of_json(text) if _is_json(text) else text


def _rendered(value: Any) -> str:
    match value:
        case Digits():
            return canonical_number(value)
        case str() if not (_is_json(value) or escaped(value) != value):
            return value
        case _:
            return escaped(_document(value))


def _is_json(text: str) -> bool:
    """Whether a text is JSON of any type. Blanks around a number or a word are those of a text."""
    if text[:1] not in {"{", "["} and text != text.strip():
        return False
    try:
        DECODER.decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _document(value: Any) -> str:
    """`{"$oid": "64c13ab08edf48a008793cac"}`."""
    match value:
        case Digits():
            return str(value)
        case dict() | RepeatedNames():
            members = value.items() if isinstance(value, dict) else value
            inside = (f"{_document(name)}: {_document(one)}" for name, one in members)
            return f"{{{', '.join(inside)}}}"
        case list():
            return f"[{', '.join(map(_document, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _mapped(texts: pa.Array, done: pa.Array | None, form: Callable[[str], str]) -> pa.Array:
    """Each text in its form, which those for which `done` is true have already."""
    at = np.ones(len(texts), bool)
    if done is not None:
        at = ~pc.fill_null(done, True).to_numpy(zero_copy_only=False)
    at &= texts.is_valid().to_numpy(zero_copy_only=False)
    if not at.any():
        return texts
    mask = pa.array(at)
    found = pa.array([form(text) for text in texts.filter(mask).to_pylist()], pa.string())
    return pc.replace_with_mask(texts, mask, found)
