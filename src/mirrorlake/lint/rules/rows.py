"""Rules on the rows of a file: markers, keys, values (sections 2, 4, 5 and 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.lint.finding import FindingLocation, Report, counted, shown
from mirrorlake.model.change import MARKER_COLUMN, Marker

MOST_KEYS = 256 << 20
"""Maximum bytes of the keys of one file in which repeated keys are searched."""

_KEYED = (Marker.UPDATE, Marker.DELETE, Marker.UPSERT)
_FULL = (Marker.UPDATE, Marker.UPSERT)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Number of rows of a file by marker, and whether all rows were read."""

    inserts: int
    updates: int
    deletes: int
    upserts: int
    is_complete: bool

    @property
    def rows(self) -> int:
        return self.inserts + self.updates + self.deletes + self.upserts

    @property
    def is_only_inserts(self) -> bool:
        return self.rows == self.inserts

    @property
    def is_only_deletes(self) -> bool:
        return self.rows == self.deletes


class RowCheck:
    """Checks the rows of one file, block by block.

    Memory: the key columns of the file, up to MOST_KEYS; beyond that, repeated inserts are not
    reported, and `has_compared` is false.
    """

    def __init__(
        self,
        key: Sequence[str],
        *,
        is_keyless: bool,
        has_marker: bool,
        location: FindingLocation,
        report: Report,
    ) -> None:
        self._key = list(key)
        self._is_keyless = is_keyless
        self._has_marker = has_marker
        self._index = location
        self._report = report
        self._counts = dict.fromkeys(Marker, 0)
        self._keys: list[pa.Table] = []
        self._size = 0
        self.rows_read = 0
        self._reported: set[str] = set()
        self.has_compared = True

    def block(self, rows: Rows) -> None:
        """Check the next rows of the file."""
        for marker in Marker:
            equal = pc.equal(rows.marker, pa.scalar(int(marker), pa.int8()))
            self._counts[marker] += pc.sum(equal).as_py() or 0
        if self._is_keyless:
            self._keyless(rows)
        else:
            self._null_keys(rows)
            self._hollow(rows)
            self._remember(rows)
        self.rows_read += len(rows.marker)

    def end(self, *, is_complete: bool) -> RowCounts:
        """Report repeated inserts, and return the counts."""
        self._repeated()
        counts = self._counts
        return RowCounts(
            inserts=counts[Marker.INSERT],
            updates=counts[Marker.UPDATE],
            deletes=counts[Marker.DELETE],
            upserts=counts[Marker.UPSERT],
            is_complete=is_complete,
        )

    def _keyless(self, rows: Rows) -> None:
        keyed = pc.is_in(rows.marker, value_set=pa.array([int(m) for m in _KEYED], pa.int8()))
        if self._has_marker:
            self._first(
                "LZ-043/change-without-key", keyed, "{rows} with marker 1, 2 or 4", MARKER_COLUMN
            )
        else:
            self._first("LZ-044/upsert-without-key", keyed, "{rows} to upsert")

    def _null_keys(self, rows: Rows) -> None:
        for name in self._key:
            null = rows.data[name].is_null()
            self._first("LZ-257/null-key", null, "NULL in {rows}", name)

    def _hollow(self, rows: Rows) -> None:
        others = [
            name for name in rows.data.column_names if name not in self._key and name in rows.names
        ]
        if len(others) < 2 or rows.unchanged is not None:
            return  # a single column may be NULL; and NULL may be an unchanged value
        hollow = pc.is_in(rows.marker, value_set=pa.array([int(m) for m in _FULL], pa.int8()))
        for name in others:
            if not pc.any(hollow).as_py():
                return
            hollow = pc.and_(hollow, rows.data[name].is_null())
        self._first("LZ-100/update-of-nothing", hollow, "{rows} with only NULL")

    def _first(self, key: str, wrong: pa.Array, found: str, column: str | None = None) -> None:
        """Report the first row of a file that violates a rule, with the number of such rows in its
        block."""
        which = f"{key} {column}"
        row = pc.index(wrong, value=True).as_py()
        if row < 0 or which in self._reported:
            return
        self._reported.add(which)
        number = pc.sum(wrong).as_py()
        text = "a row" if number == 1 else f"{number:,} of {len(wrong):,} rows"
        self._report.add(key, self._at(self.rows_read + row, column), found.format(rows=text))

    def _at(self, row: int, column: str | None = None) -> FindingLocation:
        named = None if column is None else shown(column)
        return FindingLocation(self._index.path, self._index.table, row=row + 1, column=named)

    def _remember(self, rows: Rows) -> None:
        if not self._key or not self.has_compared:
            return
        sign = {int(Marker.INSERT): 1, int(Marker.DELETE): -1}
        steps = pc.index_in(rows.marker, value_set=pa.array(list(sign), pa.int8()))
        weights = pa.array(list(sign.values()), pa.int8()).take(steps).fill_null(0)
        columns = [rows.data[name] for name in self._key]
        locations = pa.array(np.arange(self.rows_read, self.rows_read + len(rows.marker)))
        names = [*(f"k{i}" for i in range(len(columns))), "weight", "row"]
        block = pa.table([*columns, weights, locations], names=names)
        self._size += block.nbytes
        if self._size > MOST_KEYS:
            self._keys, self.has_compared = [], False
            return
        self._keys.append(block)

    def _repeated(self) -> None:
        """Report keys that are inserted at least two times more than they are deleted."""
        if not self._keys:
            return
        rows = pa.concat_tables(self._keys)
        self._keys = []
        keys = [name for name in rows.column_names if name.startswith("k")]
        grouped = rows.group_by(keys).aggregate([("weight", "sum"), ("row", "max")])
        repeated = grouped.filter(pc.greater(grouped["weight_sum"], 1))
        if repeated.num_rows:
            row = pc.min(repeated["row_max"]).as_py()
            found = f"{counted(repeated.num_rows, 'key')} more than once"
            self._report.add("LZ-077/inserted-twice", self._at(row), found)
