"""Landed Parquet files: their schema, and their rows in the types of the table.

A file is read in two steps: `inspect` reads its footer, `read` its rows. Types are converted to
those of section 8 of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.errors import (
    BadFile,
    BadValue,
    FileTooLarge,
    MisspeltMarker,
    UnknownMarker,
    UnsupportedColumn,
)
from mirrorlake.landing.parquet import bounded
from mirrorlake.model import types
from mirrorlake.model.arrow import arrow_type, contiguous, decoded
from mirrorlake.model.change import MARKER_COLUMN, UNCHANGED_COLUMN, Marker
from mirrorlake.model.landed import Footer, LaterFormat
from mirrorlake.model.table import Column, Schema
from mirrorlake.storage.store import StorageFailed

RESERVED = frozenset({MARKER_COLUMN, UNCHANGED_COLUMN})
"""Columns of a file that are not data."""

_SHOWN = 200
"""Maximum size of a value in an error message, in bytes."""

_READ_AT_ONCE = 1 << 20
"""Size up to which a file is downloaded as a whole, and not column by column, in bytes."""

_RESEND = "Delete the file and upload a valid one under the same name."


@dataclass(frozen=True, slots=True)
class Inspected:
    """The footer of a landed file, or the header of delimited text.

    schema: the data columns in the order and with the nullability of the file.
    size: the uncompressed size of the rows in bytes.
    marker_last: whether no data column follows the marker.
    is_exact: false for large delimited text, for which `rows` and `size` are estimates.
    ignored: the columns of the file that the declared schema does not contain (LZ-193).
    """

    schema: Schema
    rows: int
    size: int
    has_marker: bool
    has_unchanged: bool
    footer: Footer | None
    marker_last: bool = True
    is_exact: bool = True
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one landed file, in order.

    data: the columns of the table in its types.
    marker: int8.
    unchanged: the packed masks of `__mirrorlake_unchanged__` over the columns of *this file*, which
        `names` lists; None if the file has no masks.
    size: the size of the rows in memory in the types of the file, in bytes; 0 if unknown.
    """

    data: pa.Table
    marker: pa.Array
    unchanged: pa.Array | None
    names: tuple[str, ...]
    size: int = 0

    def slice(self, begin: int, count: int | None = None) -> Rows:
        """Some of the rows, `count` or all from `begin` on."""
        return Rows(
            data=self.data.slice(begin, count),
            marker=self.marker.slice(begin, count),
            unchanged=None if self.unchanged is None else self.unchanged.slice(begin, count),
            names=self.names,
        )

    def filter(self, which: pa.Array) -> Rows:
        """The rows for which it is true."""
        return Rows(
            data=self.data.filter(which),
            marker=self.marker.filter(which),
            unchanged=None if self.unchanged is None else self.unchanged.filter(which),
            names=self.names,
        )

    @classmethod
    def joined(cls, blocks: Sequence[Rows]) -> Rows:
        """The rows of blocks of one file, at least one."""
        masks = [block.unchanged for block in blocks if block.unchanged is not None]
        return cls(
            data=pa.concat_tables([block.data for block in blocks]),
            marker=pa.concat_arrays([block.marker for block in blocks]),
            unchanged=pa.concat_arrays(masks) if masks else None,
            names=blocks[0].names,
        )


def inspect(handle: BinaryIO, size: int, *, table: str, file: str) -> Inspected:
    """Read the footer. Raises BadFile, UnsupportedColumn, MisspeltMarker."""
    with _understood("not a complete Parquet file", table, file):
        parquet = _opened(handle, size)
        metadata, arrow = parquet.metadata, parquet.schema_arrow
        memory = bounded.size(metadata, arrow)
        names = arrow.names
        misplaced = misplaced_types(parquet)
    check_names(names, table, file)
    if misplaced:
        column, physical = misplaced[0]
        raise UnsupportedColumn(
            f"its logical type is not allowed on {physical} (LZ-150)",
            table=table,
            file=file,
            column=column,
            hint="Write the file with a library that follows the Parquet specification.",
        )
    columns = [
        Column(field.name, column_type(field, table=table, file=file), field.nullable)
        for field in arrow
        if field.name not in RESERVED and not pa.types.is_null(field.type)
    ]
    texts = {
        key.decode(errors="replace"): value.decode(errors="replace")
        for key, value in (metadata.metadata or {}).items()
    }
    try:
        footer = Footer.decode(texts)
    except (LaterFormat, ValueError) as error:
        raise BadFile(str(error), table=table, file=file, hint=_RESEND) from error
    return Inspected(
        schema=Schema.of(columns),
        rows=metadata.num_rows,
        size=memory,
        has_marker=MARKER_COLUMN in names,
        has_unchanged=UNCHANGED_COLUMN in names,
        footer=footer,
        marker_last=MARKER_COLUMN not in names
        or RESERVED.issuperset(names[names.index(MARKER_COLUMN) :]),
    )


def misplaced_types(parquet: pq.ParquetFile) -> list[tuple[str, str]]:
    """The columns whose logical type does not match their physical type, with the latter.

    Arrow reads them as plain numbers, such as days for dates.
    """
    schema = parquet.schema
    leaves = (schema.column(index) for index in range(len(schema.names)))
    return [
        (leaf.path, leaf.physical_type) for leaf in leaves if leaf.logical_type.type == "UNDEFINED"
    ]


def read(
    handle: BinaryIO,
    size: int,
    target: Schema,
    default: Marker,
    *,
    table: str,
    file: str,
    most: int = bounded.NO_LIMIT,
) -> Rows:
    """All rows of a file as rows of the table.

    target: the table's columns; a column that is missing from the file is NULL (LZ-214). default:
    the operation of rows without a marker (LZ-091, LZ-094). most: maximum size of the rows in
    memory, in bytes, whatever the footer states. Raises BadFile, BadValue, UnknownMarker.
    """
    with _understood("the file cannot be read", table, file):
        source = _source(handle, size)
        rows = bounded.read(_opened(source, size), source, most)
    return converted(rows, target, default, table=table, file=file)


def read_blocks(
    handle: BinaryIO,
    size: int,
    target: Schema,
    default: Marker,
    *,
    table: str,
    file: str,
    most: int = bounded.NO_LIMIT,
    share: bounded.Share = bounded.WHOLE,
    only: Sequence[str] | None = None,
) -> Iterator[Rows]:
    """The rows of a share of a file in blocks of bounded size; see `read`.

    Yields at least one block, which may have no rows. The row number in an error is relative to the
    share. only: the table's columns to read, None for all; `names` lists these too.
    """
    with _understood("the file cannot be read", table, file):
        source = _source(handle, size)
        parquet = _opened(source, size)
        columns = None
        if only is not None:
            columns = _columns(parquet.schema_arrow.names, target.names, only)
            target = Schema.of([target[name] for name in only])
        block, before = None, 0
        for block in bounded.read_blocks(parquet, source, most, share, columns):
            rows = pa.Table.from_batches([block])
            found = converted(rows, target, default, table=table, file=file, before=before)
            yield replace(found, size=block.nbytes)
            before += block.num_rows
        if block is None:  # the types of an empty file may be wrong, too
            rows = parquet.schema_arrow.empty_table()
            rows = rows if columns is None else rows.select(columns)
            yield converted(rows, target, default, table=table, file=file)


def _columns(found: list[str], target: list[str], only: Sequence[str]) -> list[str]:
    """The names in a file of the columns `only` of the table, and of the columns that are not
    data."""
    data = match_columns(target, [name for name in found if name not in RESERVED])
    return [name for name in found if name in RESERVED] + [
        data[name] for name in only if name in data
    ]


def converted(
    rows: pa.Table, target: Schema, default: Marker, *, table: str, file: str, before: int = 0
) -> Rows:
    """Convert rows from the types of a file to those of the table; see `read`.

    before: number of rows of the file before these.

    Raises BadFile, BadValue, UnknownMarker.
    """
    names = [n for n in rows.column_names if n not in RESERVED]
    indexes = match_columns(target.names, names)
    data = pa.table(
        [_column(rows, indexes.get(c.name), c, table, file) for c in target],
        schema=pa.schema([pa.field(c.name, arrow_type(c.type)) for c in target]),
    )
    if MARKER_COLUMN in rows.column_names:
        marker = markers(contiguous(rows[MARKER_COLUMN]), table=table, file=file, before=before)
    else:
        marker = pa.repeat(pa.scalar(int(default), pa.int8()), rows.num_rows)
    masked = UNCHANGED_COLUMN in rows.column_names
    return Rows(
        data=data,
        marker=marker,
        unchanged=contiguous(rows[UNCHANGED_COLUMN]) if masked else None,
        names=tuple(names),
    )


def match_columns(names: list[str], found: list[str]) -> Mapping[str, str]:
    """Map each name to a found one: the same name, or the only name that equals it except
    for case (LZ-156). Names without a match are left out."""
    folded: dict[str, list[str]] = {}
    for name in found:
        folded.setdefault(name.casefold(), []).append(name)
    exact = set(found)
    matched = {}
    for name in names:
        alike = folded.get(name.casefold(), [])
        if name in exact:
            matched[name] = name
        elif len(alike) == 1 and alike[0] not in names:
            matched[name] = alike[0]
    return matched


def column_type(field: pa.Field, *, table: str, file: str) -> types.DataType:
    """The type of a Parquet column in the table (LZ-151 to LZ-155)."""
    if (data_type := data_type_of(field.type)) is not None:
        return data_type
    nested = pa.types.is_nested(field.type)
    raise UnsupportedColumn(
        f"its type {field.type} cannot be stored",
        table=table,
        file=file,
        column=field.name,
        hint=f"Write it as {'a JSON string (LZ-148)' if nested else 'text or as binary'}.",
    )


def data_type_of(kind: pa.DataType) -> types.DataType | None:
    """The type of a Parquet column in the table; None if it cannot be stored."""
    is_ = pa.types
    if is_.is_dictionary(kind):
        return data_type_of(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):  # JSON and UUID, among others
        return data_type_of(kind.storage_type)
    if is_.is_decimal(kind):
        fits = kind.precision <= types.MAX_PRECISION and kind.scale >= 0
        return types.decimal(kind.precision, kind.scale) if fits else None
    return next((data_type for test, data_type in _SIMPLE if test(kind)), None)


_SIMPLE: tuple[tuple[Any, types.DataType], ...] = (
    (pa.types.is_boolean, types.BOOLEAN),
    (pa.types.is_int8, types.BYTE),
    (pa.types.is_int16, types.SHORT),
    (pa.types.is_int32, types.INTEGER),
    (pa.types.is_int64, types.LONG),
    (pa.types.is_uint8, types.SHORT),
    (pa.types.is_uint16, types.INTEGER),
    (pa.types.is_uint32, types.LONG),
    (pa.types.is_uint64, types.decimal(20, 0)),
    (pa.types.is_float16, types.FLOAT),
    (pa.types.is_float32, types.FLOAT),
    (pa.types.is_float64, types.DOUBLE),
    (pa.types.is_string, types.STRING),
    (pa.types.is_large_string, types.STRING),
    (pa.types.is_string_view, types.STRING),
    (pa.types.is_binary, types.BINARY),
    (pa.types.is_large_binary, types.BINARY),
    (pa.types.is_binary_view, types.BINARY),
    (pa.types.is_fixed_size_binary, types.BINARY),
    (pa.types.is_date, types.DATE),
    (pa.types.is_timestamp, types.TIMESTAMP),
    (pa.types.is_time, types.STRING),
)


def markers(column: pa.Array, *, table: str, file: str, before: int = 0) -> pa.Array:
    """The marker column as int8 (LZ-084). Raises UnknownMarker for the first bad row (LZ-085).

    before: number of rows of the file before this part of the column.
    """
    known = [int(marker) for marker in Marker]
    column = _plain(column, table, file)
    unknown = partial(UnknownMarker, table=table, file=file, column=MARKER_COLUMN, hint=_RESEND)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        plain = pc.index_in(column, value_set=pa.array([str(m) for m in known], column.type))
        numbers = pa.array(known, pa.int8()).take(plain)
    elif pa.types.is_integer(column.type):
        fits = pc.is_in(column, value_set=pa.array(known, pa.int8()).cast(column.type))
        numbers = pc.if_else(fits, column, None).cast(pa.int8())
    else:
        raise unknown(f"{MARKER_COLUMN} has type {column.type}; expected an integer or text")
    if numbers.null_count:
        row = pc.index(numbers.is_null(), True).as_py()
        value = _marker(column[row])
        raise unknown(
            f"marker {'NULL' if value is None else repr(value)} is not 0, 1, 2 or 4",
            row=before + row + 1,
            value=None if value is None else str(value),
        )
    return numbers


def _marker(value: pa.Scalar) -> int | str | None:
    """The marker in an error message: a text may not be UTF-8, and may have any length."""
    if not value.is_valid or pa.types.is_integer(value.type):
        number: int | None = value.as_py()
        return number
    return bytes(value.as_buffer())[:_SHOWN].decode(errors="backslashreplace")


def _column(rows: pa.Table, found: str | None, column: Column, table: str, file: str) -> pa.Array:
    target = arrow_type(column.type)
    if found is None:
        return pa.nulls(rows.num_rows, target)
    try:
        values = _plain(contiguous(rows[found]), table, file)
    except pa.ArrowInvalid as error:  # offsets have 32 bits
        raise FileTooLarge(
            f"one of its columns has more than 2 GiB: {error}",
            table=table,
            file=file,
            column=column.name,
            hint="Split it into several files.",
        ) from error
    try:
        converted = values if values.type == target else _converted(values, target)
        # Arrow reads text, and numbers of a given number of digits, without checking them.
        converted.validate(full=True)
    except pa.ArrowException as error:
        raise BadValue(
            f"a value does not fit {column.type}: {error}",
            table=table,
            file=file,
            column=column.name,
            hint=_RESEND,
        ) from error
    return converted


def _plain(values: pa.Array, table: str, file: str) -> pa.Array:
    """The values without dictionaries, views and extension types. Raises BadFile for an index that
    is not in its dictionary."""
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    if pa.types.is_dictionary(values.type):
        with _understood("the file cannot be read", table, file):
            values = decoded(values)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    return values


def _converted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values of an accepted Parquet type to the type of the table."""
    if pa.types.is_timestamp(values.type):
        # Without a zone it is UTC (LZ-152). Delta has microseconds: nanoseconds are truncated,
        # while a time that microseconds cannot represent is rejected.
        cut = values.type.unit == "ns"
        return values.cast(pa.timestamp("us"), safe=not cut).cast(target)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    return values.cast(target)


@contextmanager
def _understood(what: str, table: str, file: str) -> Iterator[None]:
    """Raise BadFile or FileTooLarge for errors of Arrow, including names that are not UTF-8."""
    bad = partial(BadFile, table=table, file=file, hint=_RESEND)
    try:
        yield
    except bounded.TooLarge as error:
        raise FileTooLarge(str(error), table=table, file=file, hint=error.hint) from None
    except _Empty:
        raise bad("Parquet file size is 0 bytes") from None
    except UnicodeDecodeError as error:
        raise bad(f"{what}: a name in the file is not UTF-8") from error
    except StorageFailed:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise bad(f"{what}: {error}") from error


class _Empty(ValueError):
    """A file of zero bytes."""


def _source(handle: BinaryIO, size: int) -> BinaryIO:
    """The file from its beginning, read into memory if it is small."""
    handle.seek(0)
    return pa.BufferReader(handle.read()) if size <= _READ_AT_ONCE else handle


def _opened(handle: BinaryIO, size: int) -> pq.ParquetFile:
    if size == 0:
        raise _Empty
    return bounded.opened(handle, size, pre_buffer=size > _READ_AT_ONCE)


def check_names(names: list[str], table: str, file: str) -> None:
    """Raise UnsupportedColumn if names of columns differ in case only (LZ-156), and MisspeltMarker
    if the marker column is misspelt (LZ-086)."""
    folded: dict[str, str] = {}
    for name in names:
        if name != MARKER_COLUMN and name.casefold() == MARKER_COLUMN.casefold():
            raise MisspeltMarker(
                f"column {name} must be named {MARKER_COLUMN}",
                table=table,
                file=file,
                column=name,
                hint=_RESEND,
            )
        if (alike := folded.get(name.casefold())) is not None:
            raise UnsupportedColumn(
                f"columns {alike} and {name} have the same name, apart from case (LZ-156)",
                table=table,
                file=file,
                column=name,
                hint="Rename one of them.",
            )
        folded[name.casefold()] = name
