"""Omits the rows of a backfill chunk that the table has already, before the batch is folded.

Nearly all of them are equal, and stand in the table in the order of the chunk. Comparing both
column by column takes a fraction of a fold and a lookup by key. Both are read in blocks and
compared side by side, because joining the blocks first takes as long as comparing them. What is out
of order, such as the newest versions of rows, is compared at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous, taken
from mirrorlake.model.change import METADATA_COLUMNS, Marker
from mirrorlake.model.keys import KeyRange, bound_of, comparable, same


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows of a chunk, and rows of the table."""

    landed: Rows
    existing: pa.Table


def without_equal_rows(
    landed: Iterable[Rows], existing: Iterable[pa.Table], key: Sequence[str]
) -> Sides | None:
    """The rows of a chunk without those that equal the only existing row of their key, and the
    existing rows without those. Metadata columns do not count, nor do columns that the chunk does
    not have, because they were dropped in the source: rows keep their values of these.

    landed: the rows of the chunk; existing: all rows of the table in its range; each in one block
    or more. Later changes of a spared row apply to the existing row as they would to the one of the
    chunk. None if a further existing row may have the key of a row that was spared before.
    """
    ahead = _Ahead(iter(landed), iter(existing))
    different: list[Sides] = []
    spared: list[pa.Table] = []
    last: pa.Table | None = None
    while (step := ahead.step(key, last)) is not None:
        equal = step.equal(key)
        row, other = step.row[equal], step.other[equal]
        spared.append(taken(step.sides.landed.data.select(list(key)), row))
        different.append(_without(step.sides, row, other))
        last = step.last
    rest = ahead.rest()
    if _repeats(rest.existing, spared, last, key):
        return None
    return _compared([*different, rest], key)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Rows with equal keys: the indexes of those of the chunk, and of those of the table. last: the
    key up to which these are all rows of both sides, as a bound."""

    sides: Sides
    row: np.ndarray
    other: np.ndarray
    last: pa.Table | None = None

    @classmethod
    def in_order(cls, sides: Sides, last: pa.Table | None = None) -> _Pairs:
        """Of rows with the same keys in the same order."""
        index = np.arange(sides.existing.num_rows)
        return cls(sides, index, index, last)

    def equal(self, key: Sequence[str]) -> np.ndarray:
        """Whether the rows of each pair are equal."""
        left, right = self.sides.landed.data, self.sides.existing
        there = match_columns(left.column_names, list(self.sides.landed.names))
        names = [name for name in there if name not in {*METADATA_COLUMNS, *key}]
        left, right = _at(left.select(names), self.row), _at(right.select(names), self.other)
        equal = np.ones(len(self.row), bool)
        for name in names:
            one, two = comparable(contiguous(left[name])), comparable(contiguous(right[name]))
            if not one.equals(two):
                equal &= same(one, two)
        return equal


def _at(rows: pa.Table, index: np.ndarray) -> pa.Table:
    """The rows with these indexes; without a copy if these are all rows in their order."""
    return rows if np.array_equal(index, np.arange(rows.num_rows)) else taken(rows, index)


class _Ahead:
    """The rows of both sides from the first one that was not compared."""

    def __init__(self, landed: Iterator[Rows], existing: Iterator[pa.Table]) -> None:
        self._landed, self._existing = landed, existing
        self._rows = next(landed)
        self._stored = next(existing).cast(self._rows.data.schema)

    def step(self, key: Sequence[str], last: pa.Table | None) -> _Pairs | None:
        """The pairs of the next rows, if these follow on both sides in the order of their keys.
        last: as of the previous step."""
        self._read()
        count = _head(self._rows.slice(0, self._stored.num_rows), key)
        sides = Sides(self._rows.slice(0, count), self._stored.slice(0, count))
        if not count or not _is_beyond(last, sides.landed.data):
            return None
        if _has_equal_keys(sides, key):
            found = _Pairs.in_order(sides, bound_of(sides.landed.data, key, count - 1))
        elif _is_ordered(sides.existing, key) and _is_beyond(last, sides.existing):
            found = _up_to_common_key(sides, key)
        else:
            return None
        self._rows = self._rows.slice(found.sides.landed.data.num_rows)
        self._stored = self._stored.slice(found.sides.existing.num_rows)
        return found

    def _read(self) -> None:
        schema = self._rows.data.schema
        while not self._rows.data.num_rows and (rows := next(self._landed, None)) is not None:
            self._rows = rows
        while not self._stored.num_rows and (stored := next(self._existing, None)) is not None:
            self._stored = stored.cast(schema)

    def rest(self) -> Sides:
        """All rows that were not compared."""
        schema = self._stored.schema
        existing = pa.concat_tables([self._stored, *(rows.cast(schema) for rows in self._existing)])
        return Sides(Rows.joined([self._rows, *self._landed]), existing)


def _up_to_common_key(sides: Sides, key: Sequence[str]) -> _Pairs:
    """The rows up to the lesser one of the last keys of both sides, in which the keys ascend."""
    landed, existing = sides.landed.data, sides.existing
    ends = [bound_of(rows, key, rows.num_rows - 1) for rows in (landed, existing)]
    count = int(KeyRange(high=ends[1]).contains(landed).sum())
    other = int(KeyRange(high=ends[0]).contains(existing).sum())
    found = Sides(sides.landed.slice(0, count), existing.slice(0, other))
    last = ends[1] if other == existing.num_rows else ends[0]
    return _Pairs(found, *_pairs(found, key), last)


def _compared(parts: Sequence[Sides], key: Sequence[str]) -> Sides:
    """As `without_equal_rows`, of rows in any order."""
    sides = Sides(
        Rows.joined([part.landed for part in parts]),
        pa.concat_tables([part.existing for part in parts]),
    )
    head = Sides(sides.landed.slice(0, _head(sides.landed, key)), sides.existing)
    if _has_equal_keys(head, key):
        pairs = _Pairs.in_order(head)
    else:
        pairs = _Pairs(head, *_pairs(head, key))
    equal = pairs.equal(key)
    return _without(sides, pairs.row[equal], pairs.other[equal])


def _repeats(
    existing: pa.Table, spared: Sequence[pa.Table], last: pa.Table | None, key: Sequence[str]
) -> bool:
    """Whether an existing row has the key of one that was spared. last: the greatest of these."""
    if last is None:
        return False
    doubtful = existing.filter(pa.array(~KeyRange(low=last).contains(existing))).select(list(key))
    if not doubtful.num_rows:
        return False
    before = sum(keys.num_rows for keys in spared)
    code = codes.encode(pa.concat_tables([*spared, doubtful])).code
    return bool((code[before:] < before).any())


def _head(landed: Rows, key: Sequence[str]) -> int:
    """The number of rows at the beginning that are each the first, whole row of its key."""
    marker = landed.marker.to_numpy(zero_copy_only=False)
    other = marker != Marker.UPSERT
    if landed.unchanged is not None:
        other |= landed.unchanged.is_valid().to_numpy(zero_copy_only=False)
    count = int(np.argmax(other)) if other.any() else len(other)
    return codes.ascending(landed.data.slice(0, count), key)


def _is_beyond(last: pa.Table | None, rows: pa.Table) -> bool:
    """Whether the key of the first row is greater than `last`."""
    return last is None or bool(KeyRange(low=last).contains(rows.slice(0, 1))[0])


def _is_ordered(rows: pa.Table, key: Sequence[str]) -> bool:
    """Whether the keys ascend, in an order in which ranges can be compared."""
    kinds = [rows.schema.field(name).type for name in key]
    return all(map(codes.is_ordered, kinds)) and codes.is_ascending(rows, key)


def _has_equal_keys(sides: Sides, key: Sequence[str]) -> bool:
    """Whether both have the same keys in the same order."""
    landed, existing = sides.landed.data, sides.existing
    return landed.num_rows == existing.num_rows and all(
        comparable(contiguous(landed[name])).equals(
            comparable(contiguous(existing[name].cast(landed[name].type)))
        )
        for name in key
    )


def _pairs(sides: Sides, key: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a chunk, of distinct keys, and the only existing row of each."""
    keys = sides.landed.data.select(list(key))
    both = pa.concat_tables([keys, sides.existing.select(list(key)).cast(keys.schema)])
    code = codes.encode(both).code[keys.num_rows :]
    found = np.flatnonzero(code < keys.num_rows)
    row = code[found]
    single = np.bincount(row, minlength=keys.num_rows)[row] == 1
    return row[single], found[single]


def _without(sides: Sides, rows: np.ndarray, other: np.ndarray) -> Sides:
    """Both without the rows with these indexes."""
    return Sides(
        sides.landed.filter(_all_but(sides.landed.data.num_rows, rows)),
        sides.existing.filter(_all_but(sides.existing.num_rows, other)),
    )


def _all_but(count: int, rows: np.ndarray) -> pa.Array:
    others = np.ones(count, bool)
    others[rows] = False
    return pa.array(others)
