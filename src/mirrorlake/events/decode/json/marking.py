"""Makes strings of all values in lines of JSON, so that Arrow reads them without rounding numbers.

Arrow's reader takes numbers as binary floats or refuses them where it expects strings, and does not
keep objects as they are written. So what is no string is written as one that begins with MARK, as
no other string does.
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
_NESTED = 2
"""In how many objects a value of a payload is."""


def marked(text: bytes, lines: int, names: Iterable[str] = ()) -> pa.Buffer | None:
    """The text, of so many lines, with its literals as strings with MARK, and also the objects and
    arrays that are values in an object in an object. They are not checked.

    names: of which `null`, objects and arrays stay, where they are written without more than one
        blank.

    Returns None if there may be a line that is not exactly one object, or has MARK.
    """
    if not (text.startswith(b"{") and text.endswith(b"\n")) or _has_mark(text):
        return None
    data = np.frombuffer(text, np.uint8)
    slashes = np.flatnonzero(data == _BACKSLASH)
    kind = _KIND[data] * (1 - _inside(data, slashes))
    brackets = _Brackets(kind)
    if not brackets.are_one_object_a_line(lines) or (kind[slashes] == _LITERAL).any():
        return None
    nested = brackets.values_at(_NESTED)
    nested = nested[:, ~_has_name(data, nested[0], names)]
    if nested.size:
        within = _within(len(data), nested)
        kind[within] = _BETWEEN
        is_escaped = within & ((data == _QUOTE) | (data == _BACKSLASH))
        return _with_nested(data, _literals(data, kind, names), nested, np.flatnonzero(is_escaped))
    return _with_marks(data, _literals(data, kind, names))


def _has_mark(text: bytes) -> bool:
    return any(form in text for form in (b"\x7f", b"\\u007f", b"\\u007F"))


def _literals(data: np.ndarray, kind: np.ndarray, names: Iterable[str]) -> np.ndarray:
    """Where literals begin and end, without `null` of these names; int64, 2 x n."""
    is_literal = kind == _LITERAL
    starts = np.flatnonzero(is_literal[1:] & ~is_literal[:-1]) + 1
    ends = np.flatnonzero(is_literal[:-1] & ~is_literal[1:]) + 1
    stays = np.zeros(len(starts), bool)
    nulls = np.flatnonzero(data[starts] == _NULL)
    stays[nulls[_has_name(data, starts[nulls], names)]] = True
    return np.stack((starts[~stays], ends[~stays]))


class _Brackets:
    """The brackets and newlines outside of strings."""

    def __init__(self, kind: np.ndarray) -> None:
        self._at = np.flatnonzero(kind > _LITERAL)
        self._kind = kind[self._at]
        steps = (self._kind == _OPENING).astype(np.int32) - (self._kind == _CLOSING)
        self._depth = np.cumsum(steps)

    def are_one_object_a_line(self, lines: int) -> bool:
        """Whether they open and close once in each line, as far as their number says."""
        is_end = (self._kind == _CLOSING) & (self._depth == 0)
        newlines = np.flatnonzero(self._kind == _NEWLINE)
        return bool(
            len(newlines) == np.count_nonzero(is_end) == lines
            and is_end[newlines - 1].all()
            and self._depth.min() >= 0
        )

    def values_at(self, depth: int) -> np.ndarray:
        """Where what is in so many objects and arrays begins and ends; int64, 2 x n."""
        starts = self._at[(self._kind == _OPENING) & (self._depth == depth + 1)]
        ends = self._at[(self._kind == _CLOSING) & (self._depth == depth)] + 1
        return np.stack((starts, ends))


def _has_name(data: np.ndarray, values: np.ndarray, names: Iterable[str]) -> np.ndarray:
    """Whether these values, of which there are the places, have one of the names; bool."""
    found: np.ndarray = np.zeros(len(values), bool)
    for name in names:
        pattern = np.frombuffer(f'"{name}":'.encode(), np.uint8)
        starts = values - (data[values - 1] == _BLANK) - len(pattern)
        # Not the end of a name with a quote in it.
        rows = np.flatnonzero((starts > 0) & (data[starts - 1] != _BACKSLASH))
        for at in range(len(pattern) - 1, -1, -1):  # the end of the name decides mostly
            rows = rows[data[starts[rows] + at] == pattern[at]]
        found[rows] = True
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


def _within(length: int, spans: np.ndarray) -> np.ndarray:
    """Whether each byte is in one of the spans; bool."""
    change = np.zeros(length + 1, np.int8)
    change[spans[0]], change[spans[1]] = 1, -1
    within: np.ndarray = np.cumsum(change[:-1], dtype=np.int8).astype(bool)
    return within


def _with_marks(data: np.ndarray, values: np.ndarray) -> pa.Buffer:
    """The values as strings with MARK, which have no quotes and backslashes."""
    starts, ends = values
    shift = 3 * np.arange(len(starts))
    opening = starts + shift
    places = np.concatenate((opening, opening + 1, ends + shift + 2))
    return _with(data, places, np.repeat([_QUOTE, ord(MARK), _QUOTE], len(starts)))


def _with_nested(
    data: np.ndarray, literals: np.ndarray, nested: np.ndarray, escaped: np.ndarray
) -> pa.Buffer:
    """As `_with_marks`, also of objects and arrays. escaped: the quotes and backslashes in them."""
    starts, ends = np.concatenate((literals, nested), axis=1)
    added = [(starts, _QUOTE), (starts, ord(MARK)), (ends, _QUOTE), (escaped, _BACKSLASH)]
    before = np.concatenate([places for places, _ in added])
    chars = np.repeat([char for _, char in added], [len(places) for places, _ in added])
    order = np.argsort(before, kind="stable")
    return _with(data, before[order] + np.arange(len(order)), chars[order])


def _with(data: np.ndarray, places: np.ndarray, chars: np.ndarray) -> pa.Buffer:
    """The data with characters in between. places: where these are afterwards."""
    found = np.empty(len(data) + len(places), np.uint8)
    is_data = np.ones(len(found), bool)
    is_data[places] = False
    found[is_data] = data
    found[places] = chars
    return pa.py_buffer(found)
