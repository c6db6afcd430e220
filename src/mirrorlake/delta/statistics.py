"""Which files can hold one of some keys, by the bounds that the log has of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json

from mirrorlake.delta.file_list import FileList
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import contiguous

_RECORDS = re.compile(r'\{"numRecords": ?([0-9]+)[,}]')
"""How the statistics of a file begin, as all known writers write them."""

_BLOCK = 1 << 20
"""Bytes of statistics that are parsed at once."""


def candidates(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> list[Mapping[str, Any]]:
    """The files that can hold one of the keys, by the bounds of their first key column."""
    return [files[index] for index in candidate_indexes(files, schema, keys)]


def candidate_indexes(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> list[int]:
    """As `candidates`: which of the files, ascending."""
    if keys.num_rows == 0:
        return []
    physical, column = _first(schema, keys)
    if not _comparable(column.type):
        return list(range(len(files)))
    present = column.drop_null()
    bounds = _Bounds(present) if len(present) else None
    has_null = column.null_count > 0

    def may_hold(index: int) -> bool:
        return _may_hold(_stats(files[index]), physical, bounds, has_null=has_null)

    said = _Said.of(files.stats, physical, column.type) if isinstance(files, FileList) else None
    if said is None:
        return [index for index in range(len(files)) if may_hold(index)]
    chosen = said.null_or_unknown if has_null else np.zeros(len(files), bool)
    if bounds is not None:
        chosen = chosen | bounds.met(said.low, said.high)
    for index in np.flatnonzero(~said.is_bounded).tolist():
        chosen[index] = may_hold(index)
    return [int(index) for index in np.flatnonzero(chosen)]


@dataclass(frozen=True, slots=True)
class _Said:
    """What the log says of one column, of many files at once.

    low, high: the bounds, null where there is none; null_or_unknown: whether a file can have a row
    without a value; is_bounded: whether there are both bounds.
    """

    low: pa.Array
    high: pa.Array
    null_or_unknown: np.ndarray
    is_bounded: np.ndarray

    @classmethod
    def of(cls, stats: pa.Array, column: str, kind: pa.DataType) -> _Said | None:
        """None when what is said is not all of one form: it is then looked at one by one."""
        lines = [text or "{}" for text in stats.to_pylist()]
        if any("\n" in line or "\r" in line for line in lines):
            return None
        bound = pa.int64() if pa.types.is_integer(kind) else pa.string()
        of_column = [("minValues", bound), ("maxValues", bound), ("nullCount", pa.int64())]
        schema = pa.schema([(name, pa.struct([(column, type_)])) for name, type_ in of_column])
        content = "\n".join(lines).encode()
        try:
            found = read_json(
                pa.BufferReader(content),
                ReadOptions(block_size=max(_BLOCK, 2 * max(map(len, lines)))),
                ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
            )
        except (pa.ArrowException, ValueError, OverflowError):
            return None
        if found.num_rows != len(lines):
            return None
        low, high, nulls = (pc.struct_field(contiguous(part), [0]) for part in found.columns)
        none = pc.fill_null(pc.equal(nulls, 0), False)
        bounded = pc.and_(low.is_valid(), high.is_valid())
        return cls(low, high, ~_booleans(none), _booleans(bounded))


def _booleans(array: pa.Array) -> np.ndarray:
    found: np.ndarray = array.to_numpy(zero_copy_only=False)
    return found


def overlapping(
    files: Sequence[Mapping[str, Any]], physical: str, low: pa.Array | None, high: pa.Array | None
) -> list[Mapping[str, Any]]:
    """The files in which a column can have a value from `low` to `high`, each one value or none.

    physical: the name of the column in the files.
    """
    ends = [
        _Bounds(end) if end is not None and _comparable(end.type) else None for end in (low, high)
    ]
    return [add for add in files if _may_overlap(_stats(add), physical, *ends)]


def _may_overlap(
    stats: Mapping[str, Any], column: str, first: _Bounds | None, last: _Bounds | None
) -> bool:
    least = (stats.get("minValues") or {}).get(column)
    most = (stats.get("maxValues") or {}).get(column)
    if least is None or most is None:
        return True
    # A bound alone lies before, within or behind what a file has.
    is_behind = first is not None and first.is_beyond(most)
    is_before = last is not None and last.is_below(least)
    return not (is_behind or is_before)


class Ordered:
    """Keys in the order of their first column, and so which of them a file can hold."""

    def __init__(self, schema: TableSchema, keys: pa.Table) -> None:
        self._physical, column = _first(schema, keys)
        self._bounds: _Bounds | None = None
        if _is_number(column.type) and column.null_count < len(column):
            present = column.drop_null()
            self._bounds = _Bounds(present)
            absent = column.is_null().to_numpy(zero_copy_only=False)
            self._codes = np.flatnonzero(~absent)[np.argsort(_as_numbers(present))]
            self._nulls = np.flatnonzero(absent)

    def held(self, add: Mapping[str, Any]) -> np.ndarray | None:
        """The keys, by number, that this file can hold; None when nobody can tell."""
        stats = _stats(add)
        low = (stats.get("minValues") or {}).get(self._physical)
        high = (stats.get("maxValues") or {}).get(self._physical)
        if self._bounds is None or low is None or high is None:
            return None
        span = self._bounds.between(low, high)
        return None if span is None else np.concatenate((self._codes[span], self._nulls))


def _first(schema: TableSchema, keys: pa.Table) -> tuple[str, pa.Array]:
    """The first key column: its name in the files, and its values."""
    name = keys.column_names[0]
    return schema.physical_of(name), contiguous(keys[name])


def records(add: Mapping[str, Any]) -> int | None:
    """The rows of a file, gone ones included, by its add action; None where it does not say."""
    said = add.get("stats") or "{}"
    if first := _RECORDS.match(said):  # every batch asks it of every file of its table
        return int(first[1])
    found = json.loads(said).get("numRecords")
    return None if found is None else int(found)


def _stats(add: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the log says of the values of a file; nothing where it says nothing."""
    said: Mapping[str, Any] = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    return said


class _Bounds:
    """Which ranges of values can hold one of the keys."""

    def __init__(self, keys: pa.Array) -> None:
        self._type = keys.type
        self._ends: tuple[str, str] | None = None
        self._numbers = np.zeros(0, np.int64)
        if pa.types.is_string(keys.type):
            ends = pc.min_max(keys).as_py()
            self._ends = ends["min"], ends["max"]
        else:
            self._numbers = np.sort(_as_numbers(keys))

    def meet(self, low: Any, high: Any) -> bool:
        """Whether a key can lie between these bounds of the log."""
        if self._ends is not None:
            first, last = self._ends
            known = isinstance(low, str) and isinstance(high, str)
            return not known or bool(low <= last and first <= high)
        span = self.between(low, high)
        return span is None or span.start < span.stop

    def met(self, low: pa.Array, high: pa.Array) -> np.ndarray:
        """As `meet`, of many bounds, texts or integers, both of which are there; undefined where
        one is null."""
        if self._ends is not None:
            least, most = self._ends
            both = pc.and_(pc.less_equal(low, most), pc.greater_equal(high, least))
            return _booleans(pc.fill_null(both, False))
        if pa.types.is_integer(low.type):
            begins, ends = (pc.fill_null(bound, 0).to_numpy() for bound in (low, high))
            start = np.searchsorted(self._numbers, begins)
            inside: np.ndarray = start < np.searchsorted(self._numbers, ends, side="right")
            return inside
        texts = zip(low.to_pylist(), high.to_pylist(), strict=True)
        return np.array([None in ends or self.meet(*ends) for ends in texts], bool)

    def is_beyond(self, most: Any) -> bool:
        """Whether every key is certainly larger than a bound of the log."""
        if self._ends is not None:
            return isinstance(most, str) and self._ends[0] > most
        span = self.between(most, most)
        return span is not None and span.start == span.stop == 0

    def is_below(self, least: Any) -> bool:
        """Whether every key is certainly smaller than a bound of the log."""
        if self._ends is not None:
            return isinstance(least, str) and self._ends[1] < least
        span = self.between(least, least)
        return span is not None and span.start == span.stop == len(self._numbers)

    def between(self, low: Any, high: Any) -> slice | None:
        """Which of the keys in order, of numbers, lie between these bounds; None when the bounds
        cannot be read."""
        least, most = _as_number(low, self._type), _as_number(high, self._type)
        if least is None or most is None:
            return None
        if pa.types.is_timestamp(self._type):
            least -= _vagueness(low)
            most += _vagueness(high) + 1_000  # writers cut bounds to milliseconds, this one too
        first = int(np.searchsorted(self._numbers, least))
        return slice(first, int(np.searchsorted(self._numbers, most, side="right")))


def _may_hold(
    stats: Mapping[str, Any],
    column: str,
    bounds: _Bounds | None,
    *,
    has_null: bool,
) -> bool:
    if not stats:
        return True
    nulls = (stats.get("nullCount") or {}).get(column)
    if has_null and nulls != 0:
        return True
    if bounds is None:
        return False
    low = (stats.get("minValues") or {}).get(column)
    high = (stats.get("maxValues") or {}).get(column)
    if low is None or high is None:
        return nulls is None or bool(nulls != stats.get("numRecords"))
    return bounds.meet(low, high)


def _comparable(kind: pa.DataType) -> bool:
    """Types whose bounds in the log order like their values here."""
    return pa.types.is_string(kind) or _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    is_ = pa.types
    return any(test(kind) for test in (is_.is_integer, is_.is_date, is_.is_timestamp))


def _as_numbers(keys: pa.Array) -> np.ndarray:
    """As numbers, because there are days that Python's calendar does not know."""
    width = pa.int32() if keys.type.bit_width == 32 else pa.int64()
    numbers: np.ndarray = (keys.cast(width) if pa.types.is_temporal(keys.type) else keys).to_numpy()
    return numbers


def _vagueness(moment: str) -> int:
    """Microseconds by which the text of a bound may be wrong: Java leaves the seconds out of an
    offset, which local times of before the zones had, some of them until 1972."""
    return 0 if moment.endswith("Z") else 60_000_000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _as_number(bound: Any, kind: pa.DataType) -> int | None:
    """A bound from the log as Arrow holds such values; None when it cannot be read."""
    if pa.types.is_integer(kind):
        return bound if isinstance(bound, int) else None
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(bound).toordinal() - _EPOCH.toordinal()
        moment = datetime.fromisoformat(bound)
        return (moment - _EPOCH) // timedelta(microseconds=1) if moment.tzinfo else None
    except (ValueError, TypeError):
        return None
