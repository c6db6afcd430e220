"""Checks delimited text files: their metadata, header and rows.

They are read by the engine's reader; the rule of a finding is derived from the clause in its error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from mirrorlake.errors import BadFile, TableError, UnknownMarker
from mirrorlake.landing import text as delimited
from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.landing.text.compression import opened
from mirrorlake.landing.text.encodings import Undecodable, Utf8
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.origin import Origin
from mirrorlake.landing.text.reader import BLOCK_BYTES
from mirrorlake.landing.text.records import TextRecords
from mirrorlake.lint.catalog import RULES
from mirrorlake.lint.finding import FindingLocation, Report, listed, shown
from mirrorlake.lint.rules import columns as column_rules
from mirrorlake.lint.rules import parquet as parquet_rules
from mirrorlake.lint.rules import text_metadata as text_member_rules
from mirrorlake.lint.rules.parquet import NOT_OURS, UNREADABLE, Opener
from mirrorlake.lint.table_view import LintedFile, Seen, TableView, has_metadata
from mirrorlake.model.change import MARKER_COLUMN, Marker

_HEAD = 1 << 16
"""Number of bytes that must contain the header and its line end."""

_CLAUSE = re.compile(r"\((LZ-[0-9]{3})\)")


def check_described(view: TableView, report: Report) -> None:
    """Check that the table has metadata, with the members that its text files need."""
    texts = [file.name for file in view.files if not file.is_parquet]
    if not has_metadata(view.listing):
        rule = "LZ-042/text-without-metadata" if texts else "LZ-029/metadata-absent"
        report.add(rule, view.at(texts[0]) if texts else view.location, _instead(view))
        return
    if not texts:
        return
    report.add("LZ-143/text-in-v1", view.at(texts[0]), listed(texts))
    record = view.described.record
    if record is None:
        return
    if "FileExtension" not in record:
        report.add("LZ-160/extension-not-declared", record.here(), "no FileExtension")
    if not text_member_rules.is_declared(record):
        report.add("LZ-192/schema-absent", record.here(), "no SchemaDefinition")
    if packed := [name for name in texts if name.lower().endswith((".gz", ".zst"))]:
        report.add("LZ-209/compressed-extension", view.at(packed[0]), listed(packed))


def _instead(view: TableView) -> str:
    alike = [f.name for f in view.listing.files if f.name.lower() == "_metadata.json"]
    return f"{alike[0]} instead" if alike else "no such file"


def check_file(
    open_: Opener, text: TextFormat, file: LintedFile, location: FindingLocation, report: Report
) -> Seen | None:
    """Check the header of a file; None if the engine would not read the file."""
    if not parquet_rules.check_size(file, location, report):
        return None
    origin = Origin(str(location.table), file.name)
    errors = report.errors
    try:
        with open_() as handle:
            header = TextRecords(handle, file.size, text, origin, _HEAD).header
        _header(header, text, location, report)
        _line_ends(open_, text, file, location, report)
        if report.errors > errors:
            return None
        with open_() as handle:
            found = delimited.inspect(handle, file.size, text, table=origin.table, file=origin.file)
    except TableError as error:
        refuse(error, location, header=(), report=report)
        return None
    except NOT_OURS:
        raise
    except UNREADABLE as error:
        report.add("LZ-276/incomplete", location, shown(error))
        return None
    if found.ignored:
        at = location.in_column(found.ignored[0])
        report.add("LZ-193/column-not-declared", at, listed(list(found.ignored)))
    names = tuple(name for name in header if name != MARKER_COLUMN)
    rows = found.rows if found.is_exact else None
    return Seen(file, found.schema, found.has_marker, rows, names)


def read_blocks(
    open_: Opener,
    text: TextFormat,
    seen: Seen,
    default: Marker,
    key: list[str],
    location: FindingLocation,
    depth: int | None,
) -> Iterator[Rows]:
    """The rows of a file. depth: approximate number of bytes to read. Raises TableError."""
    file = seen.file
    with open_() as handle:
        for rows in delimited.read_blocks(
            handle,
            file.size,
            seen.schema,
            default,
            text,
            table=str(location.table),
            file=file.name,
            key=key,
            about=min(depth or BLOCK_BYTES, BLOCK_BYTES),
        ):
            # The reader closes a compressed file at its end.
            read = file.size if handle.closed else handle.tell()
            yield rows
            if depth is not None and read >= depth:
                return


def check_declared(seen: Seen, text: TextFormat, location: FindingLocation, report: Report) -> None:
    """Report declared columns that are missing in a file. Required ones are reported when the rows
    are read."""
    found = match_columns(seen.schema.names, list(seen.names))
    lacking = [
        column.name
        for column in text.columns or ()
        if column.name != MARKER_COLUMN
        and column.name not in found
        and column.nullable is not False
    ]
    if lacking:
        at = location.in_column(lacking[0])
        report.add("LZ-195/declared-column-absent", at, f"no {listed(lacking)}")


def refuse(
    error: TableError, location: FindingLocation, *, header: tuple[str, ...], report: Report
) -> None:
    """Report an error of the engine's reader as a finding. header: the data columns of the
    file."""
    report.add(_rule_of(error, header), location.of(error), shown(error.what))


def _rule_of(error: TableError, header: tuple[str, ...]) -> str:
    if isinstance(error, UnknownMarker):
        return "LZ-085/marker-unknown"
    named = _CLAUSE.findall(error.what)
    clause = named[-1] if named else ""
    if clause == "LZ-205" and error.column not in match_columns([error.column or ""], list(header)):
        return "LZ-195/required-column-absent"
    if clause in _BY_CLAUSE:
        return _BY_CLAUSE[clause]
    if isinstance(error, BadFile):
        return next((rule for word, rule in _BY_WORD if word in error.what), "LZ-276/incomplete")
    return "LZ-267/refused"


_BY_CLAUSE = {
    "LZ-159": "LZ-159/header-absent",
    "LZ-199": "LZ-199/field-count",
    "LZ-201": "LZ-201/quotes",
    "LZ-205": "LZ-205/required-null",
    **{rule.id: rule.key for rule in RULES if rule.name.startswith("value-not-")},
}
_BY_WORD = (
    ("compressed", "LZ-209/compression"),
    ("decompresses", "LZ-209/compression"),
    ("Snappy", "LZ-209/compression"),
    ("quoted field", "LZ-201/quotes"),
    ("a row is longer", "LZ-201/quotes"),
    ("of its text is not", "LZ-167/bytes-not-of-encoding"),
)


def _header(header: list[str], text: TextFormat, location: FindingLocation, report: Report) -> None:
    counts = Counter(header)
    if not any(header):
        report.add("LZ-159/header-absent", replace(location, row=0), "an empty first row")
        return
    for name in [name for name, count in counts.items() if count > 1 and name]:
        at = replace(location, row=0, column=shown(name))
        report.add("LZ-199/header-name-twice", at, f"{counts[name]} columns {shown(name)}")
    # A column without a name cannot be declared, so it is ignored if columns are declared.
    names = [name for name in counts if name or text.columns is None]
    column_rules.check_names(names, replace(location, row=0), report)
    column_rules.check_marker_position(header, location, report)


def _line_ends(
    open_: Opener, text: TextFormat, file: LintedFile, location: FindingLocation, report: Report
) -> None:
    if text.row_separator != "\r\n":
        return
    try:
        with open_() as handle:
            reader = opened(handle, file.size, Origin(str(location.table), file.name))
            head, is_end = Utf8(reader, text.encoding).read(_HEAD)
    except Undecodable:
        return  # reported when the rows are read
    first = head.find(b"\n")
    if first > 0 and head[first - 1 : first] != b"\r":
        report.add("LZ-200/line-end", replace(location, row=0), "the header ends with a bare \\n")
    if is_end and not head.endswith((b"\n", b"\r")):
        report.add("LZ-200/last-line-end", location, "the file ends within a row")
