"""Rules on the footers of Parquet files (section 8 of the specification)."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.errors import TableError, UnsupportedColumn
from mirrorlake.landing.parquet import bounded
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.lint.finding import FindingLocation, Report, shown
from mirrorlake.lint.rules import columns as column_rules
from mirrorlake.lint.table_view import LintedFile, Seen
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN
from mirrorlake.storage.store import StorageFailed

_CODECS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}
_MAGIC = b"PAR1"

UNREADABLE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""Errors raised by damaged bytes; text that is not UTF-8 raises a ValueError."""

NOT_OURS = (FileNotFoundError, PermissionError, StorageFailed)
"""Errors that the content of a file does not cause."""

Opener = Callable[[], BinaryIO]


def check_file(
    open_: Opener, file: LintedFile, location: FindingLocation, report: Report
) -> Seen | None:
    """Check the footer of a file; None if the engine would not read the file."""
    if not check_size(file, location, report):
        return None
    errors = report.errors
    with open_() as handle:
        start = handle.read(len(_MAGIC))
        if start != _MAGIC:
            report.add("LZ-158/not-parquet", location, f"a file that begins with {start!r}")
            return None
        try:
            opened = bounded.opened(handle, file.size)
            schema = opened.schema_arrow
            names = list(schema.names)
            _columns(opened, schema, location, report)
            bounded.check_columns(opened.metadata, handle)
            _codecs(opened, location, report)
            if not bounded.has_checksums(opened.metadata, handle):
                report.add("LZ-133/no-checksums", location, "no checksum in the first page header")
        except NOT_OURS:
            raise
        except bounded.TooLarge as error:
            report.add("LZ-267/refused", location, shown(error))
            return None
        except UNREADABLE as error:
            report.add("LZ-276/incomplete", location, shown(error))
            return None
    column_rules.check_names(names, location, report)
    _marker_type(schema, location, report)
    column_rules.check_marker_position(
        [name for name in names if name != UNCHANGED_COLUMN], location, report
    )
    return None if report.errors > errors else _accepted(open_, file, location, report)


def check_size(file: LintedFile, location: FindingLocation, report: Report) -> bool:
    """Check that a file is not empty. Returns whether it can be opened."""
    if file.size == 0:
        report.add("LZ-276/zero-bytes", location, "0 bytes")
    return file.size > 0


def _accepted(
    open_: Opener, file: LintedFile, location: FindingLocation, report: Report
) -> Seen | None:
    """Check that the engine accepts the file."""
    try:
        with open_() as handle:
            found = parquet.inspect(handle, file.size, table=str(location.table), file=file.name)
    except NOT_OURS:
        raise
    except (TableError, *UNREADABLE) as error:
        what = error.what if isinstance(error, TableError) else error
        report.add("LZ-267/refused", location, shown(what))
        return None
    names = tuple(found.schema.names)
    return Seen(file, found.schema, found.has_marker, found.rows, names)


def _columns(
    opened: pq.ParquetFile, schema: pa.Schema, location: FindingLocation, report: Report
) -> None:
    leaves = [opened.schema.column(i) for i in range(len(opened.schema.names))]
    physical = {leaf.path: leaf.physical_type for leaf in leaves}
    for column, kind in parquet.misplaced_types(opened):
        at = location.in_column(column)
        report.add("LZ-150/physical-type", at, f"{shown(column)} on {kind}")
    for field in schema:
        if field.name in {MARKER_COLUMN, UNCHANGED_COLUMN}:
            continue
        at = location.in_column(field.name)
        _column(field, physical.get(field.name, ""), at, report)


def _column(field: pa.Field, physical: str, at: FindingLocation, report: Report) -> None:
    kind = _value_type(field.type)
    found = shown(f"{field.name}: {kind}")
    if pa.types.is_null(kind):
        report.add("LZ-147/type-absent", at, found)
        return
    try:
        parquet.column_type(field, table="", file="")
    except UnsupportedColumn:
        report.add(
            "LZ-148/complex-type" if pa.types.is_nested(kind) else "LZ-147/type-unsupported",
            at,
            found,
        )
        return
    if physical == "INT96":
        report.add("LZ-152/timestamp-without-zone", at, f"{found} (INT96)")
    elif pa.types.is_timestamp(kind) and kind.tz is None:
        report.add("LZ-152/timestamp-without-zone", at, found)
    elif pa.types.is_time(kind):
        report.add("LZ-153/time-as-text", at, found)
    elif pa.types.is_unsigned_integer(kind):
        report.add("LZ-154/unsigned", at, found)


def _value_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionaries and extension types."""
    if pa.types.is_dictionary(kind):
        return _value_type(kind.value_type)
    return _value_type(kind.storage_type) if isinstance(kind, pa.BaseExtensionType) else kind


def _codecs(opened: pq.ParquetFile, location: FindingLocation, report: Report) -> None:
    metadata = opened.metadata
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    found = {group.column(i).compression for group in groups for i in range(group.num_columns)}
    if strange := sorted(found - _CODECS):
        report.add("LZ-145/codec", location, ", ".join(strange))


def _marker_type(schema: pa.Schema, location: FindingLocation, report: Report) -> None:
    for field in schema:
        if field.name == MARKER_COLUMN:
            column_rules.check_marker_type(field.type, location, report)
