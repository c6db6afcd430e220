"""A column of values that were read from marked JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events.decode.json.lines import DECODER, Digits
from mirrorlake.events.decode.json.marking import MARK

_VALUE = r"(true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?)$"
_NESTED = rf"^{MARK}[{{\[]"
_VALID = rf"^({MARK}{_VALUE}|[^{MARK}]|$)|{_NESTED}"
_NUMBER = f"^{MARK}[-0-9]"
_BOOLEAN = f"^{MARK}[tf]"


class MarkedTexts(Sequence[Any]):
    """Values of JSON as strings, in which all but strings begin with MARK, and nulls.

    As a sequence it has the values of Python that `json_lines` finds.
    """

    def __init__(self, array: pa.StringArray, is_there: pa.BooleanArray) -> None:
        """is_there: whether there is a value, which may be null."""
        self._array, self._is_there = array, is_there

    @classmethod
    def of(cls, array: pa.StringArray) -> MarkedTexts:
        """Of values in which null begins with MARK as well."""
        is_null = pc.fill_null(pc.equal(array, f"{MARK}null"), False)
        has_null = pc.any(is_null).as_py()
        return cls(pc.if_else(is_null, None, array) if has_null else array, array.is_valid())

    def __len__(self) -> int:
        return len(self._array)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        if isinstance(at, slice):
            return [_value(text) for text in self._array[at].to_pylist()]
        return _value(self._array[at].as_py())

    def __iter__(self) -> Iterator[Any]:
        return map(_value, self._array.to_pylist())

    def take(self, rows: pa.Array) -> MarkedTexts:
        return MarkedTexts(self._array.take(rows), self._is_there.take(rows))

    @property
    def is_valid(self) -> bool:
        """Whether what begins with MARK is a value of JSON."""
        if not self._has_marks:
            return True
        if not pc.all(pc.match_substring_regex(self._array, _VALID), min_count=0).as_py():
            return False
        try:
            return len(self.by_value) == len(self)
        except (ValueError, RecursionError):
            return False

    @property
    def by_value(self) -> Sequence[Any]:
        """The same, as a list if there are objects or arrays, which have no text of their own."""
        return self._values if self._has_nested else self

    @property
    def is_there(self) -> np.ndarray:
        """Whether there is a value, which may be null; bool."""
        found: np.ndarray = self._is_there.to_numpy(zero_copy_only=False)
        return found

    @cached_property
    def texts(self) -> pa.StringArray:
        """The values as text, numbers with their digits as written."""
        if not self._has_marks:
            return self._array
        plain = pc.binary_replace_slice(self._array, 0, 1, "")
        return pc.if_else(self._is_marked, plain, self._array)

    @property
    def strings(self) -> pa.StringArray:
        """Those that are strings."""
        return self._array.filter(pc.invert(self._is_marked))

    @property
    def numbers(self) -> pa.StringArray:
        """Those that are numbers, as text."""
        return self.texts.filter(pc.match_substring_regex(self._array, _NUMBER))

    @property
    def booleans(self) -> pa.StringArray:
        """Those that are booleans, as text."""
        return self.texts.filter(pc.match_substring_regex(self._array, _BOOLEAN))

    @cached_property
    def _is_marked(self) -> pa.BooleanArray:
        return pc.starts_with(self._array, MARK)

    @cached_property
    def _has_nested(self) -> bool:
        return pc.any(pc.match_substring_regex(self._array, _NESTED)).as_py() is True

    @cached_property
    def _values(self) -> list[Any]:
        return list(map(_value, self._array.to_pylist()))

    @cached_property
    def _has_marks(self) -> bool:
        return pc.any(self._is_marked).as_py() is True


def _value(text: str | None) -> Any:
    if text is None or not text.startswith(MARK):
        return text
    match text[1:]:
        case "true":
            return True
        case "false":
            return False
        case nested if nested[0] in "{[":
            return DECODER.decode(nested)
        case digits:
            return Digits(digits)
