"""Keys as numbers: equal keys get equal codes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import contiguous
from mirrorlake.model.equality import comparable

_HALF, _ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
"""No batch has 2^32 rows: they would not fit into memory."""

CLOSE = 16
"""Whole numbers for each row, up to which keys are looked up in an array of all of them. It takes
64 bytes of memory for a row."""


@dataclass(frozen=True, slots=True)
class Coded:
    """code: int64 per row, from 0, in the order in which they first occur; first: the row in which
    each code stands first."""

    code: np.ndarray
    first: np.ndarray


def encode(keys: pa.Table) -> Coded:
    """Give each distinct key of the rows a number, in the order in which they first occur."""
    code = np.zeros(keys.num_rows, np.int64)
    for index, column in enumerate(keys.columns):
        values, distinct = _column(comparable(contiguous(column)))
        # Both factors are below the number of rows, so the product fits 63 bits.
        code = _column(pa.array(code * distinct + values))[0] if index else values
    highest = np.maximum.accumulate(code)
    return Coded(code, np.flatnonzero(np.diff(highest, prepend=-1)))


def in_order(code: np.ndarray) -> np.ndarray:
    """The numbers of the rows by their codes, and within a code as they stand; int64."""
    # As one number of both: numpy sorts numbers ten times as fast as it sorts places by them.
    both = code.astype(np.uint64) << _HALF | np.arange(len(code), dtype=np.uint64)
    both.sort()
    return (both & _ROW).astype(np.int64)


def _column(column: pa.Array) -> tuple[np.ndarray, int]:
    """The code of each value, and how many there are."""
    if pa.types.is_signed_integer(column.type) and len(column) and not column.null_count:
        low, high = (bound.as_py() for bound in pc.min_max(column).values())
        if high - low < CLOSE * len(column):
            return _close(column.to_numpy().astype(np.int64) - low, high - low + 1)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _close(values: np.ndarray, beyond: int) -> tuple[np.ndarray, int]:
    """As `_column`, of whole numbers from 0 on to before `beyond`. A sixth of the time that a table
    of hashes takes, most of which is memory that is not in the cache."""
    width = np.int32 if len(values) < 1 << 31 else np.int64
    rows = np.arange(len(values), dtype=width)
    first = np.full(beyond, len(values), width)  # the row in which each number stands first
    np.minimum.at(first, values, rows)
    first_of = first[values]
    count = np.cumsum(first_of == rows)
    code: np.ndarray = count[first_of] - 1
    return code, int(count[-1])
