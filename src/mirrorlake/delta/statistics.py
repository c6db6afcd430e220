"""Selects the files that can contain given keys, by the statistics in the log (data skipping)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.json import ParseOptions, ReadOptions, read_json

from mirrorlake.delta.file_list import FileList
from mirrorlake.delta.schema import TableSchema
from mirrorlake.model.arrow import contiguous

_RECORDS = re.compile(r'\{"numRecords": ?([0-9]+)[,}]')
"""The beginning of the statistics of a file, as written by all known writers."""

_BLOCK = 1 << 20
"""Bytes of statistics that are parsed per block."""


def candidates(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> list[Mapping[str, Any]]:
    """The files that can contain one of the keys, by the bounds of the first key column."""
    return [files[index] for index in candidate_indexes(files, schema, keys)]


def candidate_indexes(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> list[int]:
    """As `candidates`, as indexes of the files, ascending."""
    if keys.num_rows == 0:
        return []
    physical, column = _first(schema, keys)
    if not _comparable(column.type):
        return list(range(len(files)))
    present = column.drop_null()
    bounds = _KeyBounds(present, files=len(files)) if len(present) else None
    has_null = column.null_count > 0

    def may_contain(index: int) -> bool:
        return _may_contain(_stats(files[index]), physical, bounds, has_null=has_null)

    known = (
        _ColumnStatistics.of(files.stats, physical, column.type)
        if isinstance(files, FileList)
        else None
    )
    if known is None:
        return [index for index in range(len(files)) if may_contain(index)]
    chosen = known.null_or_unknown if has_null else np.zeros(len(files), bool)
    if bounds is not None:
        chosen = chosen | bounds.overlap_mask(known.low, known.high)
    for index in np.flatnonzero(~known.is_bounded).tolist():
        chosen[index] = may_contain(index)
    return [int(index) for index in np.flatnonzero(chosen)]


@dataclass(frozen=True, slots=True)
class _ColumnStatistics:
    """The statistics of one column in many files.

    low, high: the bounds, null if unknown; null_or_unknown: bool, whether a file can contain a
    NULL; is_bounded: bool, whether both bounds are known.
    """

    low: pa.Array
    high: pa.Array
    null_or_unknown: np.ndarray
    is_bounded: np.ndarray

    @classmethod
    def of(cls, stats: pa.Array, column: str, kind: pa.DataType) -> _ColumnStatistics | None:
        """None if the statistics cannot be parsed together; they are then parsed one by one."""
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
    """The files in which a column can have a value between `low` and `high`. NULL is greater than
    every value.

    low, high: arrays of one value, or None for no bound; physical: the name of the column in the
    files.
    """
    ends = [
        _KeyBounds(end) if end is not None and _comparable(end.type) else None
        for end in (low, high)
    ]
    return [add for add in files if _may_overlap(_stats(add), physical, *ends)]


def _may_overlap(
    stats: Mapping[str, Any], column: str, first: _KeyBounds | None, last: _KeyBounds | None
) -> bool:
    least = (stats.get("minValues") or {}).get(column)
    most = (stats.get("maxValues") or {}).get(column)
    if least is None or most is None:
        return True
    # Either bound alone can exclude a file.
    is_behind = first is not None and first.all_above(most)
    is_before = last is not None and last.all_below(least)
    if is_behind and last is None and (stats.get("nullCount") or {}).get(column) != 0:
        return True
    return not (is_behind or is_before)


class SortedKeys:
    """Keys sorted by their first column, to select those that a file can contain."""

    def __init__(self, schema: TableSchema, keys: pa.Table) -> None:
        self._physical, column = _first(schema, keys)
        self._bounds: _KeyBounds | None = None
        if _is_number(column.type) and column.null_count < len(column):
            present = column.drop_null()
            self._bounds = _KeyBounds(present)
            absent = column.is_null().to_numpy(zero_copy_only=False)
            self._codes = np.flatnonzero(~absent)[np.argsort(_as_numbers(present))]
            self._nulls = np.flatnonzero(absent)

    def candidates(self, add: Mapping[str, Any]) -> np.ndarray | None:
        """The row numbers of the keys that this file can contain; None if that is unknown."""
        stats = _stats(add)
        low = (stats.get("minValues") or {}).get(self._physical)
        high = (stats.get("maxValues") or {}).get(self._physical)
        if self._bounds is None or low is None or high is None:
            return None
        span = self._bounds.between(low, high)
        return None if span is None else np.concatenate((self._codes[span], self._nulls))


def possible_keys(
    files: Sequence[Mapping[str, Any]], schema: TableSchema, keys: pa.Table
) -> np.ndarray | None:
    """The row numbers of the keys that at least one of these files can contain, ascending; None if
    these are most of the keys, or if that is unknown."""
    physical, column = _first(schema, keys)
    if not _is_number(column.type) or column.null_count:
        return None
    bounds, ranges = _KeyBounds(column), []
    for stats in map(_stats, files):
        low = (stats.get("minValues") or {}).get(physical)
        high = (stats.get("maxValues") or {}).get(physical)
        ends = None if low is None or high is None else bounds.as_ends(low, high)
        if ends is None:
            return None
        ranges.append(ends)
    found = _joined(ranges)
    if len(found) > FEW_FILES:
        return None
    numbers, is_possible = _as_numbers(column), np.zeros(len(column), bool)
    for least, most in found:
        is_possible |= (numbers >= least) & (numbers <= most)
    return np.flatnonzero(is_possible) if is_possible.mean() < MOST_KEYS else None


MOST_KEYS = 0.8
"""The part of the keys from which a join with all of them takes as long as choosing those."""


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges, ascending, of which those that overlap are one."""
    found: list[tuple[int, int]] = []
    for least, most in sorted(ranges):
        if found and least <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], most)
        else:
            found.append((least, most))
    return found


def _first(schema: TableSchema, keys: pa.Table) -> tuple[str, pa.Array]:
    """The name of the first key column in the files, and its values."""
    name = keys.column_names[0]
    return schema.physical_of(name), contiguous(keys[name])


def records(add: Mapping[str, Any]) -> int | None:
    """The number of rows of a file, deleted ones included, by its add action; None if unknown."""
    stats = add.get("stats") or "{}"
    if first := _RECORDS.match(stats):  # fast: every batch calls this for every file of its table
        return int(first[1])
    found = json.loads(stats).get("numRecords")
    return None if found is None else int(found)


def _stats(add: Mapping[str, Any]) -> Mapping[str, Any]:
    """The statistics of a file, empty if it has none."""
    stats: Mapping[str, Any] = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    return stats


FEW_FILES = 64
"""Files up to which comparing all numbers with the bounds of each takes less time than sorting the
numbers."""


class _KeyBounds:
    """Decides which ranges of values can contain one of the keys. files: how many have bounds."""

    def __init__(self, keys: pa.Array, files: int = FEW_FILES + 1) -> None:
        self._type, self._is_many = keys.type, files > FEW_FILES
        self._ends: tuple[str, str] | None = None
        self._unsorted = np.zeros(0, np.int64)
        if pa.types.is_string(keys.type):
            ends = pc.min_max(keys).as_py()
            self._ends = ends["min"], ends["max"]
        else:
            self._unsorted = _as_numbers(keys)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return np.sort(self._unsorted)

    def overlaps(self, low: Any, high: Any) -> bool:
        """Whether a key can be between these bounds from the log."""
        if self._ends is not None:
            first, last = self._ends
            known = isinstance(low, str) and isinstance(high, str)
            return not known or bool(low <= last and first <= high)
        if not self._is_many and (ends := self.as_ends(low, high)):
            return bool(((self._unsorted >= ends[0]) & (self._unsorted <= ends[1])).any())
        span = self.between(low, high)
        return span is None or span.start < span.stop

    def overlap_mask(self, low: pa.Array, high: pa.Array) -> np.ndarray:
        """As `overlaps`, for arrays of bounds (texts or integers); undefined for null bounds."""
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
        return np.array([None in ends or self.overlaps(*ends) for ends in texts], bool)

    def all_above(self, most: Any) -> bool:
        """Whether every key is certainly greater than a bound from the log."""
        if self._ends is not None:
            return isinstance(most, str) and self._ends[0] > most
        span = self.between(most, most)
        return span is not None and span.start == span.stop == 0

    def all_below(self, least: Any) -> bool:
        """Whether every key is certainly less than a bound from the log."""
        if self._ends is not None:
            return isinstance(least, str) and self._ends[1] < least
        span = self.between(least, least)
        return span is not None and span.start == span.stop == len(self._numbers)

    def between(self, low: Any, high: Any) -> slice | None:
        """The slice of the sorted numeric keys that lie between these bounds; None if the bounds
        cannot be parsed."""
        ends = self.as_ends(low, high)
        if ends is None:
            return None
        first = int(np.searchsorted(self._numbers, ends[0]))
        return slice(first, int(np.searchsorted(self._numbers, ends[1], side="right")))

    def as_ends(self, low: Any, high: Any) -> tuple[int, int] | None:
        """Bounds from the log as numbers between which all values are."""
        least, most = _as_number(low, self._type), _as_number(high, self._type)
        if least is None or most is None:
            return None
        if pa.types.is_timestamp(self._type):
            least -= _error_margin(low)
            most += _error_margin(high) + 1_000  # writers truncate upper bounds to milliseconds
        return least, most


def _may_contain(
    stats: Mapping[str, Any],
    column: str,
    bounds: _KeyBounds | None,
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
    return bounds.overlaps(low, high)


def _comparable(kind: pa.DataType) -> bool:
    """Whether bounds of this type in the log have the order of the values in Arrow."""
    return pa.types.is_string(kind) or _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    is_ = pa.types
    return any(test(kind) for test in (is_.is_integer, is_.is_date, is_.is_timestamp))


def _as_numbers(keys: pa.Array) -> np.ndarray:
    """Keys as integers, because Python's `date` does not have all dates."""
    width = pa.int32() if keys.type.bit_width == 32 else pa.int64()
    numbers: np.ndarray = (keys.cast(width) if pa.types.is_temporal(keys.type) else keys).to_numpy()
    return numbers


def _error_margin(moment: str) -> int:
    """Microseconds by which the text of a bound may be wrong: Java prints offsets without seconds,
    which local mean times before the introduction of time zones have, some of them until 1972."""
    return 0 if moment.endswith("Z") else 60_000_000


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _as_number(bound: Any, kind: pa.DataType) -> int | None:
    """A bound from the log as the integer that Arrow stores; None if it cannot be parsed."""
    if pa.types.is_integer(kind):
        return bound if isinstance(bound, int) else None
    try:
        if pa.types.is_date(kind):
            return date.fromisoformat(bound).toordinal() - _EPOCH.toordinal()
        moment = datetime.fromisoformat(bound)
        return (moment - _EPOCH) // timedelta(microseconds=1) if moment.tzinfo else None
    except (ValueError, TypeError):
        return None
