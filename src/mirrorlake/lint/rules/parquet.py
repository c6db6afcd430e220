"""Rules on Parquet files that their footers tell (section 8 of the specification)."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import TableError, UnsupportedColumn
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.lint.finding import FindingLocation, Report, Rule, Severity, shown
from mirrorlake.lint.rules import columns as column_rules
from mirrorlake.lint.table_view import LintedFile, Seen
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.storage.store import StorageFailed

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE

CODEC = Rule(
    "LZ-145",
    "codec",
    "A Parquet file uses a compression that the pages do not list",
    WARNING,
    "no compression, Snappy, GZIP or ZSTD",
    "Both pages list uncompressed, Snappy, GZIP and ZSTD. Our engine also reads the other "
    "Parquet codecs; it is not documented that the original does.",
    "Write the file with Snappy or ZSTD.",
    "compression = BROTLI",
    strict=ERROR,
)
UNSUPPORTED = Rule(
    "LZ-147",
    "type-unsupported",
    "A column has a type that tables cannot store",
    ERROR,
    "a simple type",
    "Simple Parquet types are supported: booleans, integers, floating point, decimals of up to 38 "
    "digits, text, binary, dates, times and timestamps.",
    "Write the column as text or binary.",
    "wait: duration",
)
UNTYPED = Rule(
    "LZ-147",
    "type-absent",
    "A column has no type, because all of its values are NULL",
    NOTE,
    "the column with its type, even if all values are NULL",
    "A writer that infers types gives a column with only NULL values no type. The column is "
    "ignored until a file contains it with a type.",
    "Declare the types when writing.",
    "note: null",
)
COMPLEX = Rule(
    "LZ-148",
    "complex-type",
    "A column has a complex type",
    ERROR,
    "text that contains JSON",
    "Structs, lists and maps are not supported. The table stops.",
    "Write the column as a JSON string.",
    "tags: list<string>",
    also=("LZ-155",),
)
PHYSICAL = Rule(
    "LZ-150",
    "physical-type",
    "A logical type is used with a physical type that does not belong to it",
    ERROR,
    "the physical type that the Parquet format defines, such as INT32 for DATE",
    "Each logical type requires a certain physical type. The original rejected other "
    "combinations, and this engine rejects them too: the table stops. Otherwise the values would "
    "be read as plain numbers, such as days for dates.",
    "Write the file with a library that follows the Parquet format.",
    "DATE on INT64",
)
LOCAL_TIME = Rule(
    "LZ-152",
    "timestamp-without-zone",
    "A timestamp column has no time zone",
    NOTE,
    "timestamps with isAdjustedToUTC",
    "A timestamp with `isAdjustedToUTC=false` and an INT96 value are read as UTC and stored as "
    "`timestamp`. If they are local times, they are wrong by the offset from UTC.",
    "Write timestamps in UTC, with `isAdjustedToUTC=true`.",
    "at: timestamp[us]",
)
TIME = Rule(
    "LZ-153",
    "time-as-text",
    "A TIME column is stored as text",
    NOTE,
    "text, or a timestamp",
    "Delta has no type for a time of day, so it is stored as a `string` in ISO format.",
    "If another format is required, write text.",
    "opens: time64[us]",
)
UNSIGNED = Rule(
    "LZ-154",
    "unsigned",
    "An unsigned integer is stored in a wider type",
    NOTE,
    "a signed integer",
    "Delta has only signed integers: each unsigned type is stored in the next wider type, "
    "unsigned 64-bit as `decimal(20,0)`.",
    "Write a signed type, if the values fit.",
    "count: uint32",
)
NO_PARQUET = Rule(
    "LZ-158",
    "not-parquet",
    "A .parquet file is not Parquet",
    ERROR,
    "a file that begins with PAR1",
    "The extension `.parquet` means Parquet, whatever `_metadata.json` says.",
    "Give text files the `FileExtension` of the table, or write Parquet.",
    "orders/00000000000000000001.parquet that holds comma-separated text",
)
INCOMPLETE = Rule(
    "LZ-276",
    "incomplete",
    "A data file is incomplete",
    ERROR,
    "a complete file under its final name",
    "The file cannot be read to its end. None of it is applied, and later files of the table "
    "wait. It is retried when it changes.",
    "Delete the file and upload a valid one under exactly the same name. Upload under a name with "
    "a leading underscore, and rename when complete.",
    "orders/00000000000000000001.parquet, cut in the middle",
    also=("LZ-133", "LZ-346"),
)
EMPTY = Rule(
    "LZ-276",
    "zero-bytes",
    "A data file is empty",
    ERROR,
    "a complete file under its final name",
    "A file of zero bytes is a failed upload. It is not applied, and later files of the table "
    "wait. A file with zero rows is different, and valid.",
    "Delete the file and upload a valid one under exactly the same name.",
    "orders/00000000000000000001.parquet (0 bytes)",
    also=("LZ-133", "LZ-346"),
)
REFUSED = Rule(
    "LZ-267",
    "refused",
    "The engine rejects a data file",
    ERROR,
    "a file that the engine can read",
    "An invalid file stops its table, and later files of the table wait.",
    "Follow the message.",
    "orders/00000000000000000001.parquet with a footer of a later release",
)

RULES = (
    CODEC, UNSUPPORTED, UNTYPED, COMPLEX, PHYSICAL, LOCAL_TIME, TIME, UNSIGNED, NO_PARQUET,
    INCOMPLETE, EMPTY, REFUSED,
)  # fmt: skip

_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_MAGIC = b"PAR1"

UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""What reading damaged bytes raises; text that is not UTF-8 is a ValueError."""

NOT_OURS = (FileNotFoundError, PermissionError, StorageFailed)
"""What is no fault of a file's content."""

Opener = Callable[[], BinaryIO]


def look(open_: Opener, file: LintedFile, location: FindingLocation, report: Report) -> Seen | None:
    """What the footer tells; None when the engine would not read the file."""
    if not check_size(file, location, report):
        return None
    errors = report.errors
    with open_() as handle:
        start = handle.read(len(_MAGIC))
        if start != _MAGIC:
            report.add(NO_PARQUET, location, f"a file that begins with {start!r}")
            return None
        try:
            opened = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
            schema = opened.schema_arrow
            names = list(schema.names)
            _columns(opened, schema, location, report)
            bounded.check_columns(opened.metadata, handle)
            _codecs(opened, location, report)
        except NOT_OURS:
            raise
        except UNREADABLE as error:
            report.add(INCOMPLETE, location, shown(error))
            return None
    column_rules.check_names(names, location, report)
    _marker_type(schema, location, report)
    column_rules.check_marker_position(
        [name for name in names if name != UNCHANGED_COLUMN], location, report
    )
    return None if report.errors > errors else _accepted(open_, file, location, report)


def check_size(file: LintedFile, location: FindingLocation, report: Report) -> bool:
    """Whether there is anything to open; a file of any format can lack that."""
    if file.size == 0:
        report.add(EMPTY, location, "0 bytes")
    return file.size > 0


def _accepted(
    open_: Opener, file: LintedFile, location: FindingLocation, report: Report
) -> Seen | None:
    """As the engine sees the file: it has the last word."""
    try:
        with open_() as handle:
            found = parquet.inspect(handle, file.size, table=str(location.table), file=file.name)
    except NOT_OURS:
        raise
    except (TableError, *UNREADABLE) as error:
        told = error.what if isinstance(error, TableError) else error
        report.add(REFUSED, location, shown(told))
        return None
    names = tuple(found.schema.names)
    return Seen(file, found.schema, found.has_marker, found.rows, names)


def _columns(
    opened: pq.ParquetFile, schema: pa.Schema, location: FindingLocation, report: Report
) -> None:
    leaves = [opened.schema.column(i) for i in range(len(opened.schema.names))]
    physical = {leaf.path: leaf.physical_type for leaf in leaves}
    for column, kind in parquet.misplaced_types(opened):
        at = FindingLocation(location.path, location.table, column=shown(column))
        report.add(PHYSICAL, at, f"{shown(column)} on {kind}")
    for field in schema:
        if field.name in {MARKER_COLUMN, UNCHANGED_COLUMN}:
            continue
        at = FindingLocation(location.path, location.table, column=shown(field.name))
        _column(field, physical.get(field.name, ""), at, report)


def _column(field: pa.Field, physical: str, at: FindingLocation, report: Report) -> None:
    kind = _value_type(field.type)
    told = shown(f"{field.name}: {kind}")
    if pa.types.is_null(kind):
        report.add(UNTYPED, at, told)
        return
    try:
        parquet.column_type(field, table="", file="")
    except UnsupportedColumn:
        report.add(COMPLEX if pa.types.is_nested(kind) else UNSUPPORTED, at, told)
        return
    if physical == "INT96":
        report.add(LOCAL_TIME, at, f"{told} (INT96)")
    elif pa.types.is_timestamp(kind) and kind.tz is None:
        report.add(LOCAL_TIME, at, told)
    elif pa.types.is_time(kind):
        report.add(TIME, at, told)
    elif pa.types.is_unsigned_integer(kind):
        report.add(UNSIGNED, at, told)


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, without what Arrow alone wraps around them."""
    if pa.types.is_dictionary(kind):
        return _value_type(kind.value_type)
    return _value_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def _codecs(opened: pq.ParquetFile, location: FindingLocation, report: Report) -> None:
    metadata = opened.metadata
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    found = {group.column(i).compression for group in groups for i in range(group.num_columns)}
    if strange := sorted(found - _CODECS):
        report.add(CODEC, location, ", ".join(strange))


def _marker_type(schema: pa.Schema, location: FindingLocation, report: Report) -> None:
    for field in schema:
        if field.name == MARKER_COLUMN:
            column_rules.check_marker_type(field.type, location, report)
