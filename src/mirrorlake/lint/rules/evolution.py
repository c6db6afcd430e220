"""Rules on files of a table against each other (sections 5 and 10 of the specification)."""

from __future__ import annotations

from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.lint.finding import (
    FindingLocation,
    Report,
    Rule,
    Severity,
    Version,
    counted,
    listed,
    shown,
)
from mirrorlake.lint.rules.rows import RowCounts
from mirrorlake.lint.table_view import Seen
from mirrorlake.model.table import Column, Schema

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

FIRST_UNMARKED = Rule(
    "LZ-090",
    "initial-without-marker",
    "The initial file has no marker",
    WARNING,
    "marker 0 in every row of the initial load",
    "On the v1 page every row of the initial load must have the marker INSERT. Our engine treats "
    "the rows of a file without a marker as inserts.",
    "Write `__rowMarker__` with 0, or lint with `--version v2`.",
    "orders/00000000000000000001.parquet with the columns id, name",
    only=Version.V1,
)
FIRST_MARKED = Rule(
    "LZ-092",
    "initial-with-marker",
    "The initial Parquet file has a marker, and all of its rows are inserts",
    NOTE,
    "an initial Parquet file without a marker",
    "On the v2 page the marker in an initial data file is optional and not recommended: without "
    "it, the file can be copied as a whole.",
    "Leave the column out of initial Parquet files.",
    "orders/00000000000000000001.parquet with __rowMarker__ 0 in every row",
    only=Version.V2,
    also=("LZ-093",),
)
NARROW_UPDATE = Rule(
    "LZ-100",
    "update-lacks-columns",
    "A file with updates lacks columns that earlier files have",
    WARNING,
    "full rows in updates and upserts",
    "A row that updates must contain the full row data with all columns. A column that is "
    "missing from the file becomes NULL in every row that the file updates.",
    "Write all columns of the table.",
    "1: id, name, city\n2: id, name, __rowMarker__ = 1",
    also=("LZ-101",),
)
UNMARKED_AFTER = Rule(
    "LZ-107",
    "marker-dropped",
    "A file without a marker follows files with one",
    WARNING,
    "the marker in every file of a stream of changes",
    "All rows of such a file get the default operation, which is insert unless configured "
    "otherwise. In a stream that can update or delete, every file needs the marker.",
    "Write the marker in every file after the initial load.",
    "2: id, name, __rowMarker__\n3: id, name",
    also=("LZ-095", "LZ-104"),
)
UNMARKED_TEXT = Rule(
    "LZ-107",
    "text-without-marker",
    "A text file has no marker",
    NOTE,
    "the marker in every text file",
    "All rows of a text file without a marker are inserted. A missing marker alone does not "
    "prove that rows are only ever inserted.",
    "Write `__rowMarker__` in every text file, 0 in initial ones.",
    "orders/00000000000000000001.csv with the columns id, name",
    only=Version.V2,
    also=("LZ-093",),
)
NO_ORDER = Rule(
    "LZ-128",
    "changes-without-order",
    "Rows are updated or deleted in a table whose files are ordered by time",
    NOTE,
    "numbered files where the order of changes matters",
    "With detection by time, a late file may be applied after newer ones, and the time is that "
    "of the storage. Updates and deletes that are applied in the wrong order leave wrong rows.",
    "Number the files, unless each row is changed in one file only.",
    "fileDetectionStrategy LastUpdateTimeFileDetection, and rows with marker 1 or 2",
    also=("LZ-124", "LZ-126"),
)
DROPPED = Rule(
    "LZ-214",
    "column-dropped",
    "A file lacks columns that earlier files have",
    NOTE,
    "the columns of earlier files",
    "New rows have NULL in such a column, and existing rows keep their values: a column is never "
    "dropped implicitly.",
    "Write the column, or drop and recreate the table folder to remove it.",
    "1: id, name, city\n2: id, name",
    also=("LZ-216",),
)
REQUIRED = Rule(
    "LZ-217",
    "required-column-absent",
    "A file lacks a column that the first file declared non-null",
    ERROR,
    "every column that is not nullable in the first file",
    "A column that is missing from a file must be nullable, otherwise the schema merge fails and "
    "the table stops. A file in which every row is a DELETE may omit it.",
    "Write the column in every file, or declare it nullable (`OPTIONAL`) from the first file on.",
    "1: id, total (required)\n2: id",
    also=("LZ-218", "LZ-219"),
)
RETYPED = Rule(
    "LZ-221",
    "type-changed",
    "A column has another type than in earlier files",
    ERROR,
    "the type of the first file that has the column",
    "A new type for an existing column is an error, and replication of the table stops.",
    "Write the column in its first type, or drop and recreate the table folder with all data in "
    "the new type.",
    "1: amount: integer\n2: amount: string",
    also=("LZ-220", "LZ-224"),
)
WIDENED = Rule(
    "LZ-223",
    "type-widened",
    "A column is wider than in earlier files",
    ERROR,
    "the type of the first file that has the column",
    "Widening, for example from 32 to 64 bits, is an error like any other change of type. "
    "Writers that infer types do this implicitly.",
    "Declare the types when writing, or drop and recreate the table folder with all data in the "
    "wider type.",
    "1: amount: integer\n2: amount: long",
    also=("LZ-220",),
)
RENAMED = Rule(
    "LZ-226",
    "column-renamed",
    "A file drops a column and adds another of the same type",
    WARNING,
    "the columns of earlier files",
    "A renamed column is treated as one column dropped and one added: new rows have NULL in the "
    "old column, existing rows in the new one.",
    "To rename a column, delete the table folder and recreate it with all the data under the new "
    "name.",
    "1: id, town\n2: id, city",
    also=("LZ-225",),
)

RULES = (
    FIRST_UNMARKED, FIRST_MARKED, NARROW_UPDATE, UNMARKED_AFTER, UNMARKED_TEXT, NO_ORDER, DROPPED,
    REQUIRED, RETYPED, WIDENED, RENAMED,
)  # fmt: skip

_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
    "float": {"double"},
}


class History:
    """The columns of a table, file after file.

    key: column names as the metadata give them. Memory: the columns of the table.
    """

    def __init__(self, key: tuple[str, ...], report: Report) -> None:
        self._key = {name.casefold() for name in key}
        self._report = report
        self._schema = Schema(())
        self._first: dict[str, str] = {}
        self._has_markers = False
        self._is_first = True
        self._is_unordered = False
        self._required: frozenset[str] = frozenset()

    def next(self, seen: Seen, counts: RowCounts | None, location: FindingLocation) -> None:
        """The next file. counts: of its rows, None when they were not read."""
        self._marker(seen, counts, location)
        self._order(seen, counts, location)
        matched = match_columns(self._schema.names, seen.schema.names)
        for name, found in matched.items():
            self._type(self._schema[name], seen.schema[found], location)
        dropped = [c for c in self._schema if c.name not in matched]
        added = [c for c in seen.schema if c.name not in set(matched.values())]
        self._missing(dropped, added, counts, location)
        self._schema = Schema.of([*self._schema, *added])
        self._first |= {column.name: seen.file.name for column in added}
        if self._is_first and seen.file.is_parquet:
            self._required = frozenset(c.name for c in seen.schema if not c.nullable)
        self._is_first = False

    def _marker(self, seen: Seen, counts: RowCounts | None, location: FindingLocation) -> None:
        is_initial = self._is_first and seen.file.number in {1, None}
        if seen.has_marker:
            plain = counts is not None and counts.is_complete and counts.is_only_inserts
            if is_initial and seen.file.is_parquet and counts and counts.rows and plain:
                self._report.add(FIRST_MARKED, location, f"{counts.rows:,} rows with marker 0")
        elif is_initial:
            self._report.add(FIRST_UNMARKED, location, "no __rowMarker__")
        if not seen.has_marker:
            if self._has_markers:
                self._report.add(UNMARKED_AFTER, location, "no __rowMarker__")
            elif not seen.file.is_parquet:
                self._report.add(UNMARKED_TEXT, location, "no __rowMarker__")
        self._has_markers |= seen.has_marker

    def _order(self, seen: Seen, counts: RowCounts | None, location: FindingLocation) -> None:
        changes = counts.updates + counts.deletes if counts else 0
        if seen.file.number is None and changes and not self._is_unordered:
            self._is_unordered = True
            self._report.add(NO_ORDER, location, counted(changes, "row"))

    def _type(self, known: Column, found: Column, location: FindingLocation) -> None:
        if known.type == found.type:
            return
        at = FindingLocation(location.path, location.table, column=shown(known.name))
        rule = WIDENED if found.type.name in _WIDER.get(known.type.name, ()) else RETYPED
        first = self._first[known.name]
        self._report.add(rule, at, str(found.type), f"{known.type}, as in {first}")

    def _missing(
        self,
        dropped: list[Column],
        added: list[Column],
        counts: RowCounts | None,
        location: FindingLocation,
    ) -> None:
        # The lack of a key column is told by itself (LZ-046).
        dropped = [column for column in dropped if column.name.casefold() not in self._key]
        if not dropped or (counts and counts.is_complete and counts.is_only_deletes):
            return  # deletes need the key only (LZ-218)
        names = [column.name for column in dropped]
        at = FindingLocation(location.path, location.table, column=shown(names[0]))
        told = f"no {listed(names)}"
        required = [name for name in names if name in self._required]
        if required and counts and counts.rows:
            at = FindingLocation(location.path, location.table, column=shown(required[0]))
            self._report.add(REQUIRED, at, f"no {listed(required)}")
            return
        types = {column.type for column in added}
        if any(column.type in types for column in dropped):
            self._report.add(RENAMED, at, f"{told}, but {listed([c.name for c in added])}")
        elif counts and (counts.updates or counts.upserts):
            self._report.add(NARROW_UPDATE, at, told)
        else:
            self._report.add(DROPPED, at, told)
