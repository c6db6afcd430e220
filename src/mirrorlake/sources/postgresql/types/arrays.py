"""Array texts of PostgreSQL as JSON, for a whole column at once.

`{1,NULL}` becomes `[1,null]`, `{"a \\"b\\"",c}` becomes `["a \\"b\\"","c"]`. The texts of a column
stand end to end in one buffer; every byte of it is classified by vector operations, given the
number of bytes it becomes, repeated that often, and the few that become others are then patched.
Lower bounds other than 1 (`[0:1]={a,b}`) have no place in JSON and are left out.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.sources.postgresql.types.mapping import Element

_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def arrays_to_json(texts: pa.Array, element: Element) -> pa.Array:
    """texts: string, the output of array_out; returns string, JSON arrays; NULL stays NULL."""
    present = texts.drop_null()
    if len(present) == 0:
        return texts
    offsets = np.frombuffer(present.buffers()[1], np.int32)[
        present.offset : present.offset + len(present) + 1
    ].astype(np.int64)
    source = np.frombuffer(present.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    out, starts = _rewrite(source, offsets - offsets[0], element)
    data = pa.Array.from_buffers(
        pa.string(), len(present), [None, pa.py_buffer(starts.astype(np.int32)), pa.py_buffer(out)]
    )
    if texts.null_count == 0:
        return data
    indexes = np.cumsum(texts.is_valid().to_numpy(zero_copy_only=False)) - 1
    return data.take(pa.array(indexes, mask=texts.is_null().to_numpy(zero_copy_only=False)))


def json_to_array(text: str) -> str:
    """The text of an array that became this JSON, as array_in reads it. One value at a time."""
    return _array_text(json.loads(text, parse_float=str, parse_int=str))


def _array_text(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "t" if value else "f"
        case list():
            return "{" + ",".join(map(_array_text, value)) + "}"
        case _:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{escaped}"'


def _rewrite(
    source: np.ndarray, offsets: np.ndarray, element: Element
) -> tuple[np.ndarray, np.ndarray]:
    """The JSON bytes, and where each text starts in them (and the last one ends)."""
    quote, quoted, escaping = _quoting(source)
    structure = ~quoted & ~quote & np.isin(source, np.frombuffer(b"{},", np.uint8))
    bare = ~quoted & ~quote & ~structure
    count = np.ones(len(source), np.int64)
    mapped = source.copy()
    mapped[structure & (source == ord("{"))] = ord("[")
    mapped[structure & (source == ord("}"))] = ord("]")
    bare &= ~_drop_bounds(source, offsets, count)
    begins = np.flatnonzero(bare & ~np.concatenate(([False], bare[:-1])))
    ends = np.flatnonzero(bare & ~np.concatenate((bare[1:], [False])))
    null = _equal(source, begins, ends, b"NULL")
    for shift in range(4):
        mapped[begins[null] + shift] = b"null"[shift]

    wrap = np.zeros(len(begins), bool)
    if element is Element.TEXT:
        wrap = ~null
    elif element is Element.NUMBER:
        # NaN and the infinities are no JSON numbers.
        wrap = ~null & np.isin(source[ends], np.frombuffer(b"Ny", np.uint8))
    elif element is Element.BOOLEAN:
        count[begins[~null]] = np.where(source[begins[~null]] == ord("t"), 4, 5)
    elif element is Element.JSON:
        count[quote | escaping] = 0
    # A control character may stand in an element without quotes. In the text of JSON there is none
    # that would have to be written in another way.
    control = (quoted | bare) & (source < 0x20) & (element is not Element.JSON)
    count[control] = 6
    count[begins[wrap]] += 1
    count[ends[wrap]] += 1

    offset = np.cumsum(count) - count
    out = np.repeat(mapped, count)
    out[offset[begins[wrap]]] = _QUOTE
    out[offset[ends[wrap]] + count[ends[wrap]] - 1] = _QUOTE
    if element is Element.BOOLEAN:
        for value, word in ((ord("t"), b"true"), (ord("f"), b"false")):
            where = offset[begins[~null & (source[begins] == value)]]
            for shift, byte in enumerate(word):
                out[where + shift] = byte
    offset[begins[wrap]] += 1
    _patch_controls(out, offset[control], source[control])
    offset[begins[wrap]] -= 1
    total = np.concatenate((offset, [len(out)]))
    return out, total[offsets]


def _quoting(source: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which bytes are quotes of an element, which stand inside, which are escaping backslashes.

    Inside quotes a backslash takes the next byte as it is, so a byte is escaped when an odd number
    of backslashes stands before it. Texts begin with a brace and are balanced, so nothing runs
    over from one into the next.
    """
    offset = np.arange(len(source))
    backslash = source == _BACKSLASH
    last_other = np.maximum.accumulate(np.where(backslash, -1, offset))
    before = np.concatenate(([0], (offset - last_other)[:-1]))
    quote = (source == _QUOTE) & (before % 2 == 0)
    quoted = (np.cumsum(quote) % 2 == 1) & ~quote
    return quote, quoted, backslash & (before % 2 == 0)


def _drop_bounds(source: np.ndarray, offsets: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Leave out `[0:1]=` in front of a text; returns the bytes left out."""
    begins = offsets[:-1][source[offsets[:-1]] == ord("[")]
    equals = np.flatnonzero(source == ord("="))
    ends = equals[np.searchsorted(equals, begins)]
    edges = np.zeros(len(source) + 1, np.int8)
    edges[begins] = 1
    edges[ends + 1] = -1
    dropped: np.ndarray = np.cumsum(edges[:-1], dtype=np.int8) == 1
    count[dropped] = 0
    return dropped


def _equal(source: np.ndarray, begins: np.ndarray, ends: np.ndarray, word: bytes) -> np.ndarray:
    same: np.ndarray = ends - begins + 1 == len(word)
    for shift, byte in enumerate(word):
        same[same] = source[begins[same] + shift] == byte
    return same


def _patch_controls(out: np.ndarray, offsets: np.ndarray, values: np.ndarray) -> None:
    for shift, byte in enumerate(b"\\u00"):
        out[offsets + shift] = byte
    out[offsets + 4] = _HEX[values >> 4]
    out[offsets + 5] = _HEX[values & 15]
