"""Numbers with a fraction in columns that have none, or fewer digits of one.

Lines of JSON do not tell types: a `numeric(10,2)` whose first values are `10` and `20` is known as
a LONG. Such numbers do not make its other values wrong, so their events get a batch of their own,
with the type that has both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from mirrorlake.events import types
from mirrorlake.events.decode.json.lines import Digits
from mirrorlake.events.types import UnifiedKind, UnifiedType
from mirrorlake.events.wider import whole_digits
from mirrorlake.model.types import MAX_PRECISION

_EXACT = {UnifiedKind.INTEGER, UnifiedKind.LONG, UnifiedKind.DECIMAL}
_FRACTION = re.compile(r"-?([0-9]+)\.([0-9]+)")
"""Without an exponent, which no exact number of a source has."""


def with_fractions(
    values: Sequence[Any], rows: Sequence[int], kind: UnifiedType
) -> tuple[UnifiedType, list[int]]:
    """The type that has every value of a column of numbers, and those of its values among `rows`
    that do not fit it but for their fraction, with the numbers of these. Both the same, and none,
    if there are no such values.

    rows: numbers of values that do not fit `kind`.
    """
    if kind.kind not in _EXACT:
        return kind, []
    whole, found, scale = whole_digits(kind), list[int](), kind.scale
    for row, digits in _fractions(values, rows):
        own = len(digits[2])
        if len(digits[1]) <= whole and kind.scale < own <= MAX_PRECISION - whole:
            found.append(row)
            scale = max(scale, own)
    return (types.decimal(whole + scale, scale), found) if found else (kind, found)


def _fractions(values: Sequence[Any], rows: Sequence[int]) -> Iterator[tuple[int, re.Match[str]]]:
    for row in rows:
        value = values[row]
        if isinstance(value, Digits) and (digits := _FRACTION.fullmatch(value)):
            yield row, digits
