"""Structs, lists and maps as JSON text (LZ-148), one column at a time."""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import decoded

_ESCAPES = {"\\": "\\\\", '"': '\\"'} | {chr(code): f"\\u{code:04x}" for code in range(32)}
_SPECIAL = r'[\x00-\x1f"\\]'


def json_text(values: pa.Array) -> pa.Array:
    """Each value as a JSON text, NULL as NULL; n strings for n values.

    Binary becomes base64, times ISO text; numbers that JSON does not have become the strings NaN,
    Infinity or -Infinity. Raises pyarrow.ArrowNotImplementedError for an unsupported type.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return _struct(values)
    if pa.types.is_map(kind):
        return _map(values)
    if _is_list(kind):
        return _surrounded("[", _joined(values, json_text(values.flatten())), "]", values)
    return _leaf(values)


def _leaf(values: pa.Array) -> pa.Array:
    values = _unwrapped(values)
    kind, is_ = values.type, pa.types
    if is_.is_nested(kind):
        return json_text(values)
    if is_.is_null(kind) or is_.is_integer(kind) or is_.is_decimal(kind) or is_.is_boolean(kind):
        return values.cast(pa.string())
    if is_.is_floating(kind):
        return _number(values.cast(pa.float64()) if is_.is_float16(kind) else values)
    if is_.is_timestamp(kind):
        return _instant(values)
    if _is_binary(kind):
        coded = [v if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
        values = pa.array(coded, pa.string())
    return _quoted(values.cast(pa.string()))


def _unwrapped(values: pa.Array) -> pa.Array:
    if isinstance(values.type, pa.BaseExtensionType):
        return _unwrapped(values.storage)
    if pa.types.is_dictionary(values.type):
        return _unwrapped(decoded(values))
    return values


def _quoted(texts: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(texts, _SPECIAL)).as_py():
        for character, escaped in _ESCAPES.items():
            texts = pc.replace_substring(texts, character, escaped)
    return pc.binary_join_element_wise('"', texts, '"', "")


def _number(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    named = pc.case_when(
        pc.make_struct(
            pc.is_nan(values), pc.equal(values, float("inf")), pc.equal(values, float("-inf"))
        ),
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
        texts,
    )
    return pc.if_else(values.is_valid(), named, pa.scalar(None, pa.string()))


def _instant(values: pa.Array) -> pa.Array:
    zone = values.type.tz
    plain = values.cast(pa.timestamp(values.type.unit, "UTC")) if zone else values
    texts = plain.cast(pa.timestamp(values.type.unit)).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return _quoted(pc.binary_join_element_wise(texts, "Z", "") if zone else texts)


def _struct(values: pa.Array) -> pa.Array:
    parts: list[pa.Array | str] = []
    for index, field in enumerate(values.type):
        name = _quoted(pa.array([field.name]))[0].as_py()
        parts += [f"{',' if index else ''}{name}:", _present(json_text(_child(values, index)))]
    if not parts:
        return _surrounded("", pa.array([""] * len(values), pa.string()), "", values, "{}")
    return _surrounded("{", pc.binary_join_element_wise(*parts, ""), "}", values)


def _map(values: pa.Array) -> pa.Array:
    kind = values.type
    entries = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
    flat = entries.flatten()
    keys = json_text(_child(flat, 0))
    if not (pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)):
        keys = _quoted(pc.utf8_trim(keys, '"'))
    texts = pc.binary_join_element_wise(keys, _present(json_text(_child(flat, 1))), ":")
    return _surrounded("{", _joined(entries, texts), "}", values)


def _child(values: pa.Array, index: int) -> pa.Array:
    """A member of each struct, NULL if the struct is NULL."""
    return pc.struct_field(values, [index])


def _present(texts: pa.Array) -> pa.Array:
    return pc.fill_null(texts, "null")


def _joined(lists: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of each list, joined by commas."""
    lengths = pc.if_else(lists.is_valid(), pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pc.binary_join(pa.ListArray.from_arrays(offsets, _present(texts)), ",")


def _surrounded(
    before: str, texts: pa.Array, after: str, values: pa.Array, instead: str | None = None
) -> pa.Array:
    whole = pc.binary_join_element_wise(before, instead or texts, after, "")
    if not isinstance(whole, pa.Array):
        whole = pa.repeat(whole, len(values))
    return pc.if_else(values.is_valid(), whole, pa.scalar(None, pa.string()))


def _is_list(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind))


def _is_binary(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_binary(kind) or is_.is_large_binary(kind) or is_.is_fixed_size_binary(kind))
