"""Rules on the columns of a file: names, the marker, the key (sections 2, 4 and 8)."""

from __future__ import annotations

import re

import pyarrow as pa

from mirrorlake.errors import UnknownMarker
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.reader import match_columns
from mirrorlake.lint.finding import FindingLocation, Report, Rule, Severity, Version, shown
from mirrorlake.model.change import FEED_COLUMNS, MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.model.table import Schema

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

NO_KEY_COLUMN = Rule(
    "LZ-046",
    "key-column-missing",
    "A file does not have a column that keyColumns names",
    ERROR,
    "every key column in every file",
    "Rows are matched by the key. A name that matches no column of the file, not even without "
    "regard to case, stops the table.",
    "Write the column, or correct `keyColumns`.",
    '{"keyColumns": ["id"]} and a file with the columns no, name',
)
LIKE_MARKER = Rule(
    "LZ-069",
    "like-marker",
    "A column looks like the marker but is not",
    WARNING,
    MARKER_COLUMN,
    "The marker column is named `__rowMarker__`. Under any other name it is an ordinary column, "
    "and updates and deletes become inserts.",
    "If the column is the marker, name it `__rowMarker__`.",
    "id, name, rowMarker",
)
RESERVED = Rule(
    "LZ-069",
    "name-reserved",
    "A column begins with two underscores",
    ERROR,
    "names that do not begin with two underscores",
    "Such names are reserved for the marker, so that a mistyped marker cannot turn changes into "
    "inserts. Our engine rejects the column.",
    "Rename the column; if it is the marker, name it `__rowMarker__`.",
    "id, name, __marker",
)
UNNAMED = Rule(
    "LZ-156",
    "name-empty",
    "A column has no name",
    ERROR,
    "a name for every column",
    "Columns are matched by name, and this one has none.",
    "Give the column a name.",
    'id, ""',
)
FIRST_V1 = Rule(
    "LZ-070",
    "marker-not-first",
    "The marker is not the first column",
    WARNING,
    f"{MARKER_COLUMN} as the first column",
    "The v1 page shows the marker as the first column. Our engine accepts it in any position.",
    "Write the marker first, or lint with `--version v2`.",
    "id, name, __rowMarker__",
    only=Version.V1,
)
LAST_V2 = Rule(
    "LZ-071",
    "marker-not-last",
    "The marker is not the last column",
    WARNING,
    f"{MARKER_COLUMN} as the last column",
    "The v2 page requires the marker to be the last column. Our engine accepts it in any position.",
    "Write the marker last, or lint with `--version v1`.",
    "__rowMarker__, id, name",
    only=Version.V2,
    also=("LZ-072", "LZ-074"),
)
MARKER_TYPE = Rule(
    "LZ-084",
    "marker-type",
    "The marker is neither an integer nor text",
    ERROR,
    "an integer type, or text of digits",
    "The marker column may have any integer type or be a string of decimal digits.",
    "Write it as an 8-bit integer.",
    "__rowMarker__: double",
    also=("LZ-337",),
)
MISSPELT = Rule(
    "LZ-086",
    "marker-misspelt",
    "The name of the marker differs in case",
    ERROR,
    MARKER_COLUMN,
    "A column whose name equals `__rowMarker__` only without regard to case is rejected, so that "
    "a misspelt marker cannot turn changes into inserts.",
    "Name the column `__rowMarker__`.",
    "id, name, __rowmarker__",
    also=("LZ-069",),
)
SAME_NAME = Rule(
    "LZ-156",
    "names-alike",
    "Two columns of a file differ only in case",
    ERROR,
    "column names that differ in more than case",
    "Columns are matched by their exact name, then without regard to case; and Delta does not "
    "allow two columns whose names differ only in case.",
    "Rename one of them.",
    "id, Name, name",
)
KEY_CASE = Rule(
    "LZ-156",
    "key-case",
    "keyColumns spells a column in another case",
    NOTE,
    "the name as it is written in the file",
    "The name is matched without regard to case. It is not documented that the original does the "
    "same.",
    "Write the name as the file does.",
    '{"keyColumns": ["ID"]} and a file with the column id',
    strict=WARNING,
)
FLOATING_KEY = Rule(
    "LZ-256",
    "floating-key",
    "A key column is floating point",
    WARNING,
    "a key of integers, decimals, text, dates or timestamps",
    "Floating-point keys are compared by their bits: a value that was computed differently is a "
    "different key, and -0.0 is not 0.0.",
    "Write the column as a decimal or as text, and load the table again.",
    "id: double",
)
FEED = Rule(
    "LZ-264",
    "feed-column",
    "A column has the name of a change feed column",
    ERROR,
    "a name other than _change_type, _commit_version and _commit_timestamp",
    "The change feed of every mirrored table has these three columns, so the table itself cannot "
    "have them.",
    "Rename the column.",
    "id, _change_type",
)

RULES = (
    NO_KEY_COLUMN, LIKE_MARKER, RESERVED, FIRST_V1, LAST_V2, MARKER_TYPE, MISSPELT, SAME_NAME,
    UNNAMED, KEY_CASE, FLOATING_KEY, FEED,
)  # fmt: skip

_LIKE = re.compile(r"(?i)_?row[ _-]?marker_{0,2}")


def check_names(names: list[str], location: FindingLocation, report: Report) -> None:
    """The names of all columns of a file, the marker included."""
    folded: dict[str, str] = {}
    for name in names:
        at = FindingLocation(location.path, location.table, column=shown(name))
        rule, found = _fault(name), shown(name)
        if (twin := folded.get(name.casefold())) is not None:
            rule, found = SAME_NAME, f"{shown(twin)} and {shown(name)}"
        if name != MARKER_COLUMN and name.casefold() == MARKER_COLUMN.casefold():
            rule = MISSPELT
        folded[name.casefold()] = name
        if rule:
            report.add(rule, at, found)


def _fault(name: str) -> Rule | None:
    if name in {MARKER_COLUMN, UNCHANGED_COLUMN}:
        return None
    if not name:
        return UNNAMED
    if name.casefold() in FEED_COLUMNS:
        return FEED
    if name.startswith("__"):
        return RESERVED
    return LIKE_MARKER if _LIKE.fullmatch(name) else None


def check_marker_position(names: list[str], location: FindingLocation, report: Report) -> None:
    """names: all columns that the publisher's page speaks of, in the order of the file."""
    if MARKER_COLUMN not in names:
        return
    at = FindingLocation(location.path, location.table, column=MARKER_COLUMN)
    found = f"column {names.index(MARKER_COLUMN) + 1} of {len(names)}"
    if names[-1] != MARKER_COLUMN:
        report.add(LAST_V2, at, found)
    if names[0] != MARKER_COLUMN:
        report.add(FIRST_V1, at, found)


def check_marker_type(kind: pa.DataType, location: FindingLocation, report: Report) -> None:
    try:
        parquet.markers(pa.array([], kind), table="", file="")
    except (UnknownMarker, pa.ArrowException):
        at = FindingLocation(location.path, location.table, column=MARKER_COLUMN)
        report.add(MARKER_TYPE, at, shown(kind))


def check_key(
    key: tuple[str, ...],
    schema: Schema,
    names: tuple[str, ...],
    location: FindingLocation,
    report: Report,
) -> list[str] | None:
    """The key in the names of the table's columns; None where one is missing.

    schema: the columns of the table as the file has or declares them; names: those in the file.
    """
    matched = match_columns(list(key), schema.names)
    present = match_columns(list(key), list(names))
    for wanted in key:
        name = matched.get(wanted)
        at = FindingLocation(location.path, location.table, column=shown(name or wanted))
        if name is None or wanted not in present:
            report.add(NO_KEY_COLUMN, at, f"no column {shown(wanted)}")
            continue
        if name != wanted:
            report.add(KEY_CASE, at, f"{shown(wanted)} for {shown(name)}")
        if schema[name].type.name in {"float", "double"}:
            report.add(FLOATING_KEY, at, f"{shown(name)}: {schema[name].type}")
    is_whole = all(wanted in matched and wanted in present for wanted in key)
    return [matched[wanted] for wanted in key] if is_whole else None
