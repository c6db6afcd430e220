"""Keys as numbers, of which equal keys get equal ones, and ranges of keys.

A range is one in the order in which Arrow has the values: texts by bytes, as UTF-8; whole numbers,
decimals, days, moments, bytes and truth values as usual. Several key columns are compared one after
the other. Floating point has no order that every system agrees on, so there is no range of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

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


def up_to(code: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The numbers of the first rows of each code, `most[code]` of them at most, ascending."""
    order = in_order(code)
    ordered = code[order]
    index = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    found: np.ndarray = np.sort(order[index < most[ordered]])
    return found


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


# -- ranges -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeyRange:
    """The keys beyond `low`, or from it on if `is_closed`, up to and with `high`.

    A bound is one row with the first columns of the key, or all of them; where it has some only,
    the others do not matter. None is no bound. Bounds of a column are of the column's type, or of
    one that can be cast to it.
    """

    low: pa.Table | None = None
    high: pa.Table | None = None
    is_closed: bool = False

    def contains(self, rows: pa.Table) -> np.ndarray:
        """Which rows have a key in the range: bool. rows: with the key columns. A row whose key is
        NULL is in no range but that without bounds."""
        inside = np.ones(rows.num_rows, bool)
        if self.low is not None:
            beyond, at = _compared(rows, self.low)
            inside &= beyond | at if self.is_closed else beyond
        if self.high is not None:
            beyond, at = _compared(rows, self.high)
            known = np.ones(rows.num_rows, bool)
            for name in self.high.column_names:
                known &= contiguous(rows[name]).is_valid().to_numpy(zero_copy_only=False)
            inside &= known & ~beyond
        return inside

    def ends_at(self, high: pa.Table) -> KeyRange:
        """The part of the range up to a bound."""
        return KeyRange(self.low, high, self.is_closed)

    def beyond(self, low: pa.Table) -> KeyRange:
        """The part of the range behind a key."""
        return KeyRange(low, self.high)

    def as_record(self) -> dict[str, Any]:
        """As plain data: bounds in Arrow's own form, in which every value is exact."""
        return {"low": _text(self.low), "high": _text(self.high), "is_closed": self.is_closed}

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Read the record. Raises ValueError, KeyError."""
        return cls(_bound(record["low"]), _bound(record["high"]), record["is_closed"] is True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRange) and self.as_record() == other.as_record()

    def __hash__(self) -> int:
        return hash(tuple(self.as_record().items()))


def is_ordered(kind: pa.DataType) -> bool:
    """Whether there are ranges of keys of this type."""
    return not pa.types.is_floating(kind)


def is_ascending(rows: pa.Table, key: Sequence[str]) -> bool:
    """Whether each key is beyond the one before it, and none is NULL."""
    if any(rows[name].null_count for name in key):
        return False
    earlier, later = rows.slice(0, max(rows.num_rows - 1, 0)), rows.slice(1)
    beyond, at = np.zeros(later.num_rows, bool), np.ones(later.num_rows, bool)
    for name in key:
        one, other = _sortable(contiguous(earlier[name])), _sortable(contiguous(later[name]))
        beyond |= at & pc.greater(other, one).to_numpy(zero_copy_only=False)
        at &= pc.equal(other, one).to_numpy(zero_copy_only=False)
    return bool(beyond.all())


def bound_of(rows: pa.Table, key: Sequence[str], row: int) -> pa.Table:
    """The key of a row, as a bound."""
    return rows.select(list(key)).slice(row, 1).combine_chunks()


def _compared(rows: pa.Table, bound: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Which keys are beyond the bound, and which are at it."""
    beyond, at = np.zeros(rows.num_rows, bool), np.ones(rows.num_rows, bool)
    for name in bound.column_names:
        column = contiguous(rows[name])
        value = _sortable(contiguous(bound[name]).cast(column.type))[0]
        values = _sortable(column)
        beyond |= at & _known(pc.greater(values, value))
        at &= _known(pc.equal(values, value))
    return beyond, at


def _known(found: pa.Array) -> np.ndarray:
    known: np.ndarray = found.fill_null(False).to_numpy(zero_copy_only=False)
    return known


def _sortable(column: pa.Array) -> pa.Array:
    return column.cast(pa.int8()) if pa.types.is_boolean(column.type) else column


def _text(bound: pa.Table | None) -> str | None:
    if bound is None:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, bound.schema) as writer:
        writer.write_table(bound)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _bound(text: str | None) -> pa.Table | None:
    if text is None:
        return None
    try:
        bound = pa.ipc.open_stream(base64.b64decode(text, validate=True)).read_all()
    except (pa.ArrowException, OSError, TypeError, ValueError) as error:
        raise ValueError(f"not a bound of keys: {error}") from None
    if bound.num_rows != 1 or not bound.num_columns:
        raise ValueError("a bound of keys is one row")
    return bound
