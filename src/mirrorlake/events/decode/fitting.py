"""Converts columns whose rows may fail individually: those become dead letters."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

Convert = Callable[[pa.Array], pa.Array]
"""Raises pa.ArrowException or ValueError when a value does not fit."""


def fitted(values: pa.Array, target: pa.DataType, convert: Convert) -> tuple[pa.Array, list[int]]:
    """The converted values, and the numbers of the rows that do not fit, which are NULL."""
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target), []
    try:
        return convert(values).cast(target), []
    except (pa.ArrowException, ValueError, ArithmeticError):
        if len(values) == 1:
            return pa.nulls(1, target), [0]
    half = len(values) // 2
    left, bad_left = fitted(values.slice(0, half), target, convert)
    right, bad_right = fitted(values.slice(half), target, convert)
    return pa.concat_arrays([left, right]), [*bad_left, *(half + row for row in bad_right)]
