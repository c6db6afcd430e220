"""Equality of keys, keys encoded as numbers, so that equal keys have equal numbers, and ranges of
keys.

Values are equal if they have the same type and value: text by bytes, floating point by bits, except
that all NaN are equal. NULL equals NULL (LZ-256, LZ-257).

Ranges use the order of Arrow: texts by their UTF-8 bytes; integers, decimals, dates, timestamps,
binary and booleans as usual. Several key columns are compared one after the other. Systems do not
agree on an order of floating point, so there are no ranges of it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.model.arrow import contiguous
from mirrorlake.model.row_hashes import HASHES, HashRange

_HALF, _ROW = np.uint64(32), np.uint64(0xFFFFFFFF)
"""No batch has 2^32 rows: they would not fit into memory."""

CLOSE = 16
"""Integers whose range has at most this many values per row are encoded by an array over the whole
range, which takes 64 bytes of memory per row."""


def comparable(column: pa.Array) -> pa.Array:
    """The column with floating point as bits, so that ordinary equality is equality of keys."""
    if not pa.types.is_floating(column.type):
        return column
    width = column.type.bit_width // 8
    canonical = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    bits = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[width]
    values = canonical.fill_null(0).to_numpy(zero_copy_only=False).view(f"i{width}")
    return pa.array(values, bits, mask=column.is_null().to_numpy(zero_copy_only=False))


def same(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Compare two columns of the same type and length value by value. Returns bool."""
    assert left.type == right.type
    alike = pc.equal(comparable(left), comparable(right)).fill_null(False)
    found: np.ndarray = pc.or_(alike, pc.and_(left.is_null(), right.is_null())).to_numpy(
        zero_copy_only=False
    )
    return found


@dataclass(frozen=True, slots=True)
class Coded:
    """Keys encoded as numbers.

    code: int64, one per row, from 0 in the order of first occurrence; first: int64, the first row
    of each code.
    """

    code: np.ndarray
    first: np.ndarray


def encode(keys: pa.Table) -> Coded:
    """Number the distinct keys from 0, in the order of first occurrence."""
    code, codes = np.zeros(keys.num_rows, np.int64), 1
    for column in keys.columns:
        values, distinct = _column(comparable(contiguous(column)))
        if codes == 1:
            code, codes = values, distinct
        elif distinct > 1:
            # Both factors are below the number of rows, so the product fits 63 bits.
            code, codes = _column(pa.array(code * distinct + values))
    highest = np.maximum.accumulate(code)
    return Coded(code, np.flatnonzero(np.diff(highest, prepend=-1)))


def plain(rows: pa.Table) -> pa.Table:
    """Rows with columns that `encode` can number: the members of structs, and lists as text. Rows
    of tables of events have such columns, of which no struct is NULL."""
    while any(map(pa.types.is_struct, rows.schema.types)):
        rows = rows.flatten()
    for index, field in enumerate(rows.schema):
        if pa.types.is_list(field.type):
            texts = pa.array([repr(one) for one in rows.column(index).to_pylist()], pa.string())
            rows = rows.set_column(index, field.name, texts)
    return rows


def in_order(code: np.ndarray) -> np.ndarray:
    """The row numbers sorted by code, in their own order within a code; int64."""
    # Code and row number in one integer: numpy's sort is ten times as fast as its argsort.
    both = code.astype(np.uint64) << _HALF | np.arange(len(code), dtype=np.uint64)
    both.sort()
    return (both & _ROW).astype(np.int64)


def previous(code: np.ndarray) -> np.ndarray:
    """The row before each with the same code, -1 for none; int64."""
    order, found = in_order(code), np.full(len(code), -1)
    same = code[order][1:] == code[order][:-1]
    found[order[1:][same]] = order[:-1][same]
    return found


def up_to(code: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The row numbers of the first rows of each code, at most `most[code]` each, ascending."""
    order = in_order(code)
    ordered = code[order]
    index = np.arange(len(code)) - np.searchsorted(ordered, ordered)
    found: np.ndarray = np.sort(order[index < most[ordered]])
    return found


def _column(column: pa.Array) -> tuple[np.ndarray, int]:
    """The code of each value, and the number of distinct codes."""
    if _is_constant(column):
        return np.zeros(len(column), np.int64), 1
    if pa.types.is_signed_integer(column.type) and len(column) and not column.null_count:
        low, high = (bound.as_py() for bound in pc.min_max(column).values())
        if high - low < CLOSE * len(column):
            return _close(column.to_numpy().astype(np.int64) - low, high - low + 1)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _is_constant(column: pa.Array) -> bool:
    """Whether all rows have one value, as many columns of events have. Most others are told apart
    by their ends."""
    if not len(column) or column.null_count or column[0] != column[-1]:
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _close(values: np.ndarray, beyond: int) -> tuple[np.ndarray, int]:
    """As `_column`, for integers from 0 to `beyond` - 1. Takes a sixth of the time of a hash table,
    which is dominated by cache misses."""
    width = np.int32 if len(values) < 1 << 31 else np.int64
    rows = np.arange(len(values), dtype=width)
    first = np.full(beyond, len(values), width)  # the first row of each value
    np.minimum.at(first, values, rows)
    first_of = first[values]
    count = np.cumsum(first_of == rows)
    code: np.ndarray = count[first_of] - 1
    return code, int(count[-1])


# -- ranges -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Values of a column, as texts: from `least` on, and less than `below`. None is no bound."""

    column: str
    least: str | None
    below: str | None


@dataclass(frozen=True, eq=False)
class KeyRange:
    """The keys greater than `low` (or equal to it, if `is_closed`) and at most `high`.

    A bound is one row with all columns of the key, or only the first of them; the others are then
    ignored. None is no bound. The type of a bound is that of its column, or can be cast to it.

    least, below: of these keys only those in which one column, any of the key, is at least the one
    value and less than the other; as bounds of that column.

    hashes: without ranges, the rows with these hashes.
    """

    low: pa.Table | None = None
    high: pa.Table | None = None
    is_closed: bool = False
    least: pa.Table | None = None
    below: pa.Table | None = None
    hashes: HashRange | None = None

    def contains(self, rows: pa.Table) -> np.ndarray:
        """Whether each row has a key in the range; bool. `rows` has the key columns.

        NULL is greater than every value.
        """
        inside = np.ones(rows.num_rows, bool)
        if self.hashes is not None:
            inside &= self.hashes.contains(rows)
        if self.low is not None:
            beyond, at = _compared(rows, self.low)
            inside &= beyond | at if self.is_closed else beyond
        if self.high is not None:
            inside &= ~_compared(rows, self.high)[0]
        if self.least is not None:
            beyond, at = _compared(rows, self.least)
            inside &= beyond | at
        if self.below is not None:
            beyond, at = _compared(rows, self.below)
            inside &= ~(beyond | at)
        return inside

    @property
    def limited(self) -> str | None:
        """The column that `least` and `below` are bounds of."""
        for bound in (self.least, self.below):
            if bound is not None:
                return str(bound.column_names[0])
        return None

    def ends_at(self, high: pa.Table) -> KeyRange:
        """The part of the range up to and including a bound."""
        return replace(self, high=high)

    def beyond(self, low: pa.Table) -> KeyRange:
        """The part of the range after a bound."""
        return replace(self, low=low, is_closed=False)

    def behind(self, part: KeyRange) -> KeyRange:
        """The part of the range behind another part of it."""
        if part.hashes is not None:
            return replace(self, hashes=replace(part.hashes, first=part.hashes.end, end=HASHES))
        return self if part.high is None else self.beyond(part.high)

    def as_record(self) -> dict[str, Any]:
        """As plain data, with bounds as Arrow IPC streams, which keep every value exactly."""
        # An earlier release, for which all rows were meant, refuses it.
        if self.hashes is not None:
            return {"hashes": self.hashes.as_record()}
        said = {"low": _text(self.low), "high": _text(self.high), "is_closed": self.is_closed}
        if self.limited is None:
            return said
        # An earlier release, for which all keys between `low` and `high` were meant, refuses it.
        return {"limited": {**said, "least": _text(self.least), "below": _text(self.below)}}

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """The inverse of `as_record`. Raises ValueError, KeyError."""
        if "hashes" in record:
            return cls(hashes=HashRange.parse(record["hashes"]))
        said = record.get("limited", record)
        bounds = (_bound(said.get(name)) for name in ("least", "below"))
        return cls(_bound(said["low"]), _bound(said["high"]), said["is_closed"] is True, *bounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyRange) and self.as_record() == other.as_record()

    def __hash__(self) -> int:
        return hash(repr(self.as_record()))


def is_ordered(kind: pa.DataType) -> bool:
    """Whether keys of this type have ranges."""
    return not pa.types.is_floating(kind)


def is_ascending(rows: pa.Table, key: Sequence[str]) -> bool:
    """Whether the keys are strictly ascending and none is NULL."""
    return ascending(rows, key) == int(rows.num_rows)


def ascending(rows: pa.Table, key: Sequence[str]) -> int:
    """How many rows at the beginning have strictly ascending keys, of which none is NULL."""
    has_key = np.ones(rows.num_rows, bool)
    for name in key:
        if rows[name].null_count:
            has_key &= contiguous(rows[name]).is_valid().to_numpy(zero_copy_only=False)
    rows = rows.select(list(key)).slice(0, _before_first(~has_key))
    earlier, later = rows.slice(0, max(rows.num_rows - 1, 0)), rows.slice(1)
    beyond, at = np.zeros(later.num_rows, bool), np.ones(later.num_rows, bool)
    for name in key:
        left, right = _sortable(contiguous(earlier[name])), _sortable(contiguous(later[name]))
        beyond |= at & pc.greater(right, left).to_numpy(zero_copy_only=False)
        at &= pc.equal(right, left).to_numpy(zero_copy_only=False)
    return min(1 + _before_first(~beyond), int(rows.num_rows))


def _before_first(which: np.ndarray) -> int:
    """How many values stand before the first that is true."""
    return int(np.argmax(which)) if which.any() else len(which)


def bound_of(rows: pa.Table, key: Sequence[str], row: int) -> pa.Table:
    """The key of a row as a bound of a range."""
    return rows.select(list(key)).slice(row, 1).combine_chunks()


def _compared(rows: pa.Table, bound: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Whether each key is greater than the bound, and whether it is equal to it."""
    beyond, at = np.zeros(rows.num_rows, bool), np.ones(rows.num_rows, bool)
    for name in bound.column_names:
        column = contiguous(rows[name])
        value = _sortable(contiguous(bound[name]).cast(column.type))[0]
        values = _sortable(column)
        greater, equal = pc.greater(values, value), pc.equal(values, value)
        beyond |= at & greater.fill_null(True).to_numpy(zero_copy_only=False)
        at &= equal.fill_null(False).to_numpy(zero_copy_only=False)
    return beyond, at


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
