"""Rules on the rows of a file: markers, keys, values (sections 2, 4, 5 and 13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.lint.finding import FindingLocation, Report, Rule, Severity, counted, shown
from mirrorlake.model.change import MARKER_COLUMN, Marker

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

NEEDS_KEY = Rule(
    "LZ-043",
    "change-without-key",
    "A row is updated or deleted in a table without key columns",
    ERROR,
    "keyColumns in _metadata.json, or only inserts",
    "Markers 1, 2 and 4 apply to the row with the same key, but the table has no key. None of "
    "the file is applied.",
    "Name the key columns in `keyColumns`.",
    "{} and a row with the marker 2",
    also=("LZ-034",),
)
UPSERT_NEEDS_KEY = Rule(
    "LZ-044",
    "upsert-without-key",
    "Rows without a marker are upserts in a table without key columns",
    ERROR,
    "keyColumns in _metadata.json",
    "`isUpsertDefaultRowMarker` makes every row without a marker an upsert, which applies to the "
    "row with the same key; but the table has no key.",
    "Name the key columns in `keyColumns`, or remove `isUpsertDefaultRowMarker`.",
    '{"isUpsertDefaultRowMarker": true} and a file without a marker',
)
INSERTED_TWICE = Rule(
    "LZ-077",
    "inserted-twice",
    "A file inserts several rows with the same key",
    WARNING,
    "one insert per key, or upserts",
    "Marker 0 inserts without a check for duplicate keys: the table then has several rows with "
    "the same key. A later update replaces all of them by one row, and a later delete deletes "
    "all of them.",
    "Write marker 4 for rows that may already exist, and correct an export that repeats rows.",
    "id,__rowMarker__\n1,0\n1,0",
)
UNKNOWN = Rule(
    "LZ-085",
    "marker-unknown",
    "A marker is not 0, 1, 2 or 4",
    ERROR,
    "0 insert, 1 update, 2 delete, 4 upsert",
    "A marker that is NULL, 3, or anything else is an error, and none of the file is applied. "
    "One open re-implementation uses 1, 2, 3 for insert, update, delete: such a file stops at "
    "its first 3.",
    "Write one of the four values in every row.",
    "id,__rowMarker__\n1,3",
    also=("LZ-075", "LZ-347"),
)
HOLLOW = Rule(
    "LZ-100",
    "update-of-nothing",
    "An update has NULL in every column except the key",
    WARNING,
    "full rows in updates and upserts",
    "A row that updates must contain the full row data with all columns: missing values become "
    "NULL. Only a DELETE row may contain just the key.",
    "Write all columns of the row, or marker 2 if it was deleted.",
    "id,name,city,__rowMarker__\n1,,,1",
    also=("LZ-101", "LZ-103"),
)
VALUE = Rule(
    "LZ-151",
    "value-does-not-fit",
    "A value does not fit the type of its column",
    ERROR,
    "values that the type can hold",
    "Columns keep their type in Delta, where timestamps have microseconds and years up to 9999. "
    "A value that does not fit is rejected, not changed.",
    "Correct the value and upload the file under the same name.",
    "at: timestamp[s] with the year 300000",
)
NULL_KEY = Rule(
    "LZ-257",
    "null-key",
    "A key column is NULL in a row",
    WARNING,
    "a value in every key column",
    "NULL equals NULL when keys are matched, so all rows with a NULL key are one row. A strict "
    "reader rejects them.",
    "Write a value in every key column, or choose key columns that always have one.",
    "id,name\n,Anna",
    strict=ERROR,
)

RULES = (NEEDS_KEY, UPSERT_NEEDS_KEY, INSERTED_TWICE, UNKNOWN, HOLLOW, VALUE, NULL_KEY)

MOST_KEYS = 256 << 20
"""Bytes of key values of one file that are compared with each other."""

_KEYED = (Marker.UPDATE, Marker.DELETE, Marker.UPSERT)
_FULL = (Marker.UPDATE, Marker.UPSERT)


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of a file by marker, and whether all of its rows were looked at."""

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
    """Looks at the rows of one file, piece by piece.

    Memory: the key columns of the file, at most MOST_KEYS; beyond that repeated inserts are no
    longer looked for, and `has_compared` says so.
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
        self.looked = 0
        self._told: set[str] = set()
        self.has_compared = True

    def block(self, rows: Rows) -> None:
        """The next rows of the file."""
        for marker in Marker:
            equal = pc.equal(rows.marker, pa.scalar(int(marker), pa.int8()))
            self._counts[marker] += pc.sum(equal).as_py() or 0
        if self._is_keyless:
            self._keyless(rows)
        else:
            self._null_keys(rows)
            self._hollow(rows)
            self._remember(rows)
        self.looked += len(rows.marker)

    def end(self, *, is_complete: bool) -> RowCounts:
        """All that only the whole file tells."""
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
            self._first(NEEDS_KEY, keyed, "{rows} with marker 1, 2 or 4", MARKER_COLUMN)
        else:
            self._first(UPSERT_NEEDS_KEY, keyed, "{rows} to upsert")

    def _null_keys(self, rows: Rows) -> None:
        for name in self._key:
            null = rows.data[name].is_null()
            self._first(NULL_KEY, null, "NULL in {rows}", name)

    def _hollow(self, rows: Rows) -> None:
        others = [
            name for name in rows.data.column_names if name not in self._key and name in rows.names
        ]
        if len(others) < 2 or rows.unchanged is not None:
            return  # one column may well be NULL; and NULL may stand for what did not change
        hollow = pc.is_in(rows.marker, value_set=pa.array([int(m) for m in _FULL], pa.int8()))
        for name in others:
            if not pc.any(hollow).as_py():
                return
            hollow = pc.and_(hollow, rows.data[name].is_null())
        self._first(HOLLOW, hollow, "{rows} with only NULL")

    def _first(self, rule: Rule, wrong: pa.Array, found: str, column: str | None = None) -> None:
        """Report the first row of a file that breaks a rule; the piece tells how many more do."""
        which = f"{rule.key} {column}"
        row = pc.index(wrong, value=True).as_py()
        if row < 0 or which in self._told:
            return
        self._told.add(which)
        number = pc.sum(wrong).as_py()
        told = "a row" if number == 1 else f"{number:,} of {len(wrong):,} rows"
        self._report.add(rule, self._at(self.looked + row, column), found.format(rows=told))

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
        locations = pa.array(np.arange(self.looked, self.looked + len(rows.marker)))
        names = [*(f"k{i}" for i in range(len(columns))), "weight", "row"]
        block = pa.table([*columns, weights, locations], names=names)
        self._size += block.nbytes
        if self._size > MOST_KEYS:
            self._keys, self.has_compared = [], False
            return
        self._keys.append(block)

    def _repeated(self) -> None:
        """Keys that are inserted more often than they are deleted, by two at least."""
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
            self._report.add(INSERTED_TWICE, self._at(row), found)
