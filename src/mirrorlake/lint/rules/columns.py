"""Rules on the columns of a file: names, the marker, the key (sections 2, 4 and 8)."""

from __future__ import annotations

import re

import pyarrow as pa

from mirrorlake.errors import UnknownMarker
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.lint.finding import FindingLocation, Report, shown
from mirrorlake.model.change import FEED_COLUMNS, MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.table import Schema

_LIKE = re.compile(r"(?i)_?row[ _-]?marker_{0,2}")


def check_names(names: list[str], location: FindingLocation, report: Report) -> None:
    """Check the names of all columns of a file, including the marker."""
    folded: dict[str, str] = {}
    for name in names:
        at = location.in_column(name)
        rule, found = _fault(name), shown(name)
        if (twin := folded.get(name.casefold())) is not None:
            rule, found = "LZ-156/names-alike", f"{shown(twin)} and {shown(name)}"
        if name != MARKER_COLUMN and name.casefold() == MARKER_COLUMN.casefold():
            rule = "LZ-086/marker-misspelt"
        folded[name.casefold()] = name
        if rule:
            report.add(rule, at, found)


def _fault(name: str) -> str | None:
    if name in {MARKER_COLUMN, UNCHANGED_COLUMN}:
        return None
    if not name:
        return "LZ-156/name-empty"
    if name.casefold() in FEED_COLUMNS:
        return "LZ-264/feed-column"
    if name.startswith("__"):
        return "LZ-069/name-reserved"
    return "LZ-069/like-marker" if _LIKE.fullmatch(name) else None


def check_marker_position(names: list[str], location: FindingLocation, report: Report) -> None:
    """Check the position of the marker. names: the columns of the file, without our mask of
    unchanged values."""
    if MARKER_COLUMN not in names:
        return
    at = location.in_column(MARKER_COLUMN)
    found = f"column {names.index(MARKER_COLUMN) + 1} of {len(names)}"
    if names[-1] != MARKER_COLUMN:
        report.add("LZ-071/marker-not-last", at, found)
    if names[0] != MARKER_COLUMN:
        report.add("LZ-070/marker-not-first", at, found)


def check_marker_type(kind: pa.DataType, location: FindingLocation, report: Report) -> None:
    try:
        parquet.markers(pa.array([], kind), table="", file="")
    except (UnknownMarker, pa.ArrowException):
        at = location.in_column(MARKER_COLUMN)
        report.add("LZ-084/marker-type", at, shown(kind))


def check_key(
    key: tuple[str, ...],
    schema: Schema,
    names: tuple[str, ...],
    location: FindingLocation,
    report: Report,
) -> list[str] | None:
    """Check the key columns. Returns their names in the table; None if one is missing.

    schema: the columns of the table, by the file or its declaration; names: those in the file.
    """
    matched = match_columns(list(key), schema.names)
    present = match_columns(list(key), list(names))
    for column in key:
        name = matched.get(column)
        at = location.in_column(name or column)
        if name is None or column not in present:
            report.add("LZ-046/key-column-missing", at, f"no column {shown(column)}")
            continue
        if name != column:
            report.add("LZ-156/key-case", at, f"{shown(column)} for {shown(name)}")
        if schema[name].type.name in {"float", "double"}:
            report.add("LZ-256/floating-key", at, f"{shown(name)}: {schema[name].type}")
    is_whole = all(column in matched and column in present for column in key)
    return [matched[column] for column in key] if is_whole else None
