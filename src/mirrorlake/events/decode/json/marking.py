"""Makes strings of all values in lines of JSON, so that Arrow reads them without rounding numbers.

Arrow's reader takes numbers as binary floats or refuses them where it expects strings. So numbers,
`true`, `false` and `null` are written as strings that begin with MARK, which no other string does.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

MARK = "\x7f"

_QUOTE, _BACKSLASH, _BLANK, _NULL = ord('"'), ord("\\"), ord(" "), ord("n")
_BETWEEN, _LITERAL, _OPENING, _CLOSING, _NEWLINE = range(5)
_KIND = np.full(256, _LITERAL, np.uint8)
for _chars, _kind in (
    (b'":, \t\r', _BETWEEN),
    (b"{[", _OPENING),
    (b"}]", _CLOSING),
    (b"\n", _NEWLINE),
):
    _KIND[list(_chars)] = _kind
_AS_WRITTEN = (b"\x7f", b"\\u007f", b"\\u007F")


def marked(text: bytes, lines: int, nullable: Iterable[str] = ()) -> pa.Buffer | None:
    """The text, of so many lines, with its literals as strings with MARK. They are not checked.

    nullable: names of which `null` stays, where it is written without more than one blank.

    Returns None if there may be a line that is not exactly one object, or has MARK.
    """
    if any(form in text for form in _AS_WRITTEN) or not text.endswith(b"\n"):
        return None
    data = np.frombuffer(text, np.uint8)
    slashes = np.flatnonzero(data == _BACKSLASH)
    kind = _KIND[data] * (1 - _inside(data, slashes))
    if not _is_one_object_a_line(kind, lines) or (kind[slashes] == _LITERAL).any():
        return None
    is_literal = kind == _LITERAL
    starts = np.flatnonzero(is_literal[1:] & ~is_literal[:-1]) + 1
    ends = np.flatnonzero(is_literal[:-1] & ~is_literal[1:]) + 1
    stays = np.zeros(len(starts), bool)
    nulls = np.flatnonzero(data[starts] == _NULL)
    for name in nullable:
        stays[nulls[_has_name(data, starts[nulls], name)]] = True
    return _with_marks(data, starts[~stays], ends[~stays])


def _has_name(data: np.ndarray, values: np.ndarray, name: str) -> np.ndarray:
    """Whether these values, of which there are the places, have this name; bool."""
    pattern = np.frombuffer(f'"{name}":'.encode(), np.uint8)
    starts = values - (data[values - 1] == _BLANK) - len(pattern)
    found: np.ndarray = starts >= 0
    for at in range(len(pattern) - 1, -1, -1):  # the end of the name decides mostly
        rows = np.flatnonzero(found)
        found[rows] = data[starts[rows] + at] == pattern[at]
    return found


def _inside(data: np.ndarray, slashes: np.ndarray) -> np.ndarray:
    """1 for each byte within a string or the quote at its beginning, otherwise 0; uint8."""
    is_quote = (data == _QUOTE).view(np.uint8)
    if len(slashes):
        first = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of backslashes
        length = np.diff(first, append=len(slashes))
        is_quote[(slashes[first] + length)[length % 2 == 1]] = 0
    inside: np.ndarray = np.cumsum(is_quote, dtype=np.uint8) & 1
    return inside


def _is_one_object_a_line(kind: np.ndarray, lines: int) -> bool:
    """Whether brackets open and close once in each line, as far as their number says."""
    found = kind[kind > _LITERAL]
    depth = np.cumsum((found == _OPENING).astype(np.int32) - (found == _CLOSING))
    is_end = (found == _CLOSING) & (depth == 0)
    newlines = np.flatnonzero(found == _NEWLINE)
    return bool(
        kind[0] == _OPENING
        and len(newlines) == np.count_nonzero(is_end) == lines
        and is_end[newlines - 1].all()
        and depth.min() >= 0
    )


def _with_marks(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> pa.Buffer:
    found = np.empty(len(data) + 3 * len(starts), np.uint8)
    shift = 3 * np.arange(len(starts))
    opening, closing = starts + shift, ends + shift + 2
    is_data = np.ones(len(found), bool)
    for added in (opening, opening + 1, closing):
        is_data[added] = False
    found[is_data] = data
    found[opening] = found[closing] = _QUOTE
    found[opening + 1] = ord(MARK)
    return pa.py_buffer(found)
