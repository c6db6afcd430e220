"""Rules that compare the files of a table (sections 5 and 10 of the specification)."""

from __future__ import annotations

from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.lint.finding import FindingLocation, Report, counted, listed
from mirrorlake.lint.rules.rows import RowCounts
from mirrorlake.lint.table_view import Seen
from mirrorlake.model.table import Column, Schema

_WIDER = {
    "byte": {"short", "integer", "long"},
    "short": {"integer", "long"},
    "integer": {"long"},
    "float": {"double"},
}


class History:
    """Tracks the columns of a table, file by file.

    key: column names as in the metadata. Memory: the columns of the table.
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
        """Check the next file. counts: of its rows, None if they were not read."""
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
                self._report.add(
                    "LZ-092/initial-with-marker", location, f"{counts.rows:,} rows with marker 0"
                )
        elif is_initial:
            self._report.add("LZ-090/initial-without-marker", location, "no __rowMarker__")
        if not seen.has_marker:
            if self._has_markers:
                self._report.add("LZ-107/marker-dropped", location, "no __rowMarker__")
            elif not seen.file.is_parquet:
                self._report.add("LZ-107/text-without-marker", location, "no __rowMarker__")
        self._has_markers |= seen.has_marker

    def _order(self, seen: Seen, counts: RowCounts | None, location: FindingLocation) -> None:
        changes = counts.updates + counts.deletes if counts else 0
        if seen.file.number is None and changes and not self._is_unordered:
            self._is_unordered = True
            self._report.add("LZ-128/changes-without-order", location, counted(changes, "row"))

    def _type(self, known: Column, found: Column, location: FindingLocation) -> None:
        if known.type == found.type:
            return
        at = location.in_column(known.name)
        rule = (
            "LZ-223/type-widened"
            if found.type.name in _WIDER.get(known.type.name, ())
            else "LZ-221/type-changed"
        )
        first = self._first[known.name]
        self._report.add(rule, at, str(found.type), f"{known.type}, as in {first}")

    def _missing(
        self,
        dropped: list[Column],
        added: list[Column],
        counts: RowCounts | None,
        location: FindingLocation,
    ) -> None:
        # A missing key column has its own rule (LZ-046).
        dropped = [column for column in dropped if column.name.casefold() not in self._key]
        if not dropped or (counts and counts.is_complete and counts.is_only_deletes):
            return  # deletes need the key only (LZ-218)
        names = [column.name for column in dropped]
        at = location.in_column(names[0])
        missing = f"no {listed(names)}"
        required = [name for name in names if name in self._required]
        if required and counts and counts.rows:
            at = location.in_column(required[0])
            self._report.add("LZ-217/required-column-absent", at, f"no {listed(required)}")
            return
        types = {column.type for column in added}
        if any(column.type in types for column in dropped):
            self._report.add(
                "LZ-226/column-renamed", at, f"{missing}, but {listed([c.name for c in added])}"
            )
        elif counts and (counts.updates or counts.upserts):
            self._report.add("LZ-100/update-lacks-columns", at, missing)
        else:
            self._report.add("LZ-214/column-dropped", at, missing)
