"""Writes data and change files of a table, with their statistics for the log.

Every file is flushed by `flush`: it is durable when the function returns, or at the end of
`flush_in_background`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.write import compression, flush
from mirrorlake.delta.write.compression import CODEC

STATISTICS = 32
"""Number of columns with statistics, as Delta's default; the key columns are always included."""

HUGE = 8 << 20
"""Bytes of a text that is not copied for statistics."""
_FEW = 1_000
"""Rows of which each value may be looked at by itself."""

LONGEST_TEXT = 32
LARGEST = "\U0010ffff"
"""The highest Unicode code point."""

ROW_GROUP = 256 * 1024
"""Rows per row group: few enough that readers can skip most of a file for a narrow key range."""

PAGE_ROWS = 2_048
"""Rows per page: few, because reading the row of a random key decompresses its whole page."""

DICTIONARY = 64 * 1024
"""Maximum dictionary size in bytes. A column with a larger dictionary has so many values that plain
encoding is faster and, compressed, smaller."""

CHANGE_TYPE = "_change_type"

WRITER = {"org.apache.spark.version": "4.0.0"}
"""Footer metadata: Spark 3 reads dates before 1582-10-15 and timestamps before 1900 only if it can
tell their calendar from the writer; Spark has written the Gregorian calendar since 3.0."""

NO_VALUES: Mapping[str, str | None] = MappingProxyType({})
"""The partition values of a table without partition columns."""


def write_data(
    table: Path,
    rows: pa.Table,
    keys: list[str],
    values: Mapping[str, str | None] = NO_VALUES,
    *,
    data_change: bool = True,
) -> dict[str, Any]:
    """Write a data file. Returns its add action.

    rows: with the names and types of the file; values: of the partition columns; data_change:
    False if the rows are moved from another file.
    """
    name = new_name()
    size = _write(table / name, rows, page_rows=PAGE_ROWS)
    return added(name, size, statistics(rows, keys), values, data_change=data_change)


def added(
    name: str,
    size: int,
    stats: Mapping[str, Any],
    values: Mapping[str, str | None] = NO_VALUES,
    *,
    data_change: bool = True,
) -> dict[str, Any]:
    """The add action of a new data file. values: of the partition columns."""
    return {
        "path": quote(name),
        "partitionValues": dict(values),
        "size": size,
        "modificationTime": int(time.time() * 1000),
        "dataChange": data_change,
        "stats": _json(dict(stats)),
    }


def new_name() -> str:
    return f"part-00000-{uuid.uuid4()}.c000.{CODEC}.parquet"


def write_changes(
    table: Path, rows: pa.Table, values: Mapping[str, str | None] = NO_VALUES
) -> dict[str, Any]:
    """Write a change file. Returns its cdc action. rows: the last column is `_change_type`."""
    name = f"_change_data/cdc-00000-{uuid.uuid4()}.c000.{CODEC}.parquet"
    size = _write(table / name, rows, page_rows=None)
    return {
        "path": quote(name),
        "partitionValues": dict(values),
        "size": size,
        "dataChange": False,
    }


def write_bytes(path: Path, content: bytes) -> None:
    """Write a small file."""
    with path.open("wb") as file:
        file.write(content)
        flush.flush(file)


def statistics(rows: pa.Table, keys: list[str]) -> dict[str, Any]:
    """The per-file statistics of the Delta protocol, with tight bounds."""
    names = columns_with_statistics(rows.schema, keys)
    stats: dict[str, Any] = {
        "numRecords": rows.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
        "tightBounds": True,
    }
    for name in names:
        column = rows[name]
        stats["nullCount"][name] = column.null_count
        if has_order(column.type) and column.null_count < len(column):
            bounds = _bounds(column)
            if bounds is not None:
                stats["minValues"][name], stats["maxValues"][name] = bounds
    return stats


def columns_with_statistics(schema: pa.Schema, keys: Sequence[str]) -> list[str]:
    plain = (field.name for field in schema if not pa.types.is_nested(field.type))
    return [*keys, *(name for name in plain if name not in keys)][:STATISTICS]


def deleted_from(add: Mapping[str, Any], vector: Mapping[str, Any], records: int) -> dict[str, Any]:
    """The add action of a file with a new deletion vector: its bounds are no longer tight."""
    stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
    stats |= {"numRecords": records, "tightBounds": False}
    return {**add, "deletionVector": dict(vector), "dataChange": True, "stats": _json(stats)}


def removed(add: Mapping[str, Any], *, data_change: bool = True) -> dict[str, Any]:
    """The remove action of a live file."""
    action = {
        "path": add["path"],
        "deletionTimestamp": int(time.time() * 1000),
        "dataChange": data_change,
        "extendedFileMetadata": True,
        "partitionValues": add.get("partitionValues") or {},
        "size": add["size"],
    }
    if vector := add.get("deletionVector"):
        action["deletionVector"] = vector
    return action


def _write(path: Path, rows: pa.Table, *, page_rows: int | None) -> int:
    """Write a Parquet file. Returns its size in bytes. page_rows: rows per page; None for a file
    that is only read whole, which needs no page index."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        bounded = _with_statistics(rows, page_rows)
        with writer_of(file, rows, bounded, page_rows=page_rows) as writer:
            writer.write_table(rows, ROW_GROUP)
            writer.add_key_value_metadata(WRITER)
        flush.flush(file)
        return file.tell()


def writer_of(
    file: BinaryIO | pa.NativeFile,
    rows: pa.Table,
    bounded: Sequence[str],
    *,
    page_rows: int | None = PAGE_ROWS,
) -> pq.ParquetWriter:
    """A writer of a file that begins with these rows. bounded: the columns with statistics;
    page_rows: as in `_write`."""
    codecs = compression.codecs(rows)
    return pq.ParquetWriter(
        file,
        rows.schema,
        compression=codecs,
        use_dictionary=_with_dictionary(rows, codecs, page_rows),
        max_rows_per_page=page_rows,
        write_batch_size=_together(rows),
        dictionary_pagesize_limit=DICTIONARY,
        write_page_index=page_rows is not None,
        write_page_checksum=True,
        coerce_timestamps="us",
        store_schema=False,
        write_statistics=list(bounded),
    )


def _with_dictionary(
    rows: pa.Table, codecs: Iterable[str], page_rows: int | None
) -> Sequence[str] | bool:
    """The columns to write with a dictionary; True for all. A dictionary copies each value."""
    chosen = compression.with_dictionary(rows, codecs) if page_rows is None else True
    huge = {name for name in rows.column_names if has_huge(rows[name])}
    if not huge or not chosen:
        return chosen
    return [name for name in (codecs if chosen is True else chosen) if name not in huge]


def _with_statistics(rows: pa.Table, page_rows: int | None) -> list[str]:
    """The columns with statistics; none in a small file that is only read whole, of which they take
    a part of the time."""
    if page_rows is None and rows.num_rows < compression.MIN_ROWS:
        return []
    return [
        name for name in rows.column_names if not _has_nan(rows[name]) and not has_huge(rows[name])
    ]


def _has_nan(column: pa.ChunkedArray) -> bool:
    """Whether a column contains NaN. Parquet bounds do not include NaN, so Spark, which treats it
    as the largest number, would skip a row group that contains one."""
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _together(rows: pa.Table) -> int | None:
    """How many values may come into a page before its size is looked at; None for the usual 1,024.
    One of few rows with huge values, of which several would be compressed together."""
    return 1 if rows.num_rows <= _FEW and any(map(has_huge, rows.columns)) else None


def has_huge(column: pa.ChunkedArray | pa.Array) -> bool:
    """Whether a column has a text of which each copy counts: Parquet makes two of the smallest and
    the largest value, and leaves them out in the end."""
    if not is_text(column.type) or column.nbytes < HUGE:
        return False
    return bool(pc.max(pc.binary_length(column)).as_py() >= HUGE)


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def has_order(kind: pa.DataType) -> bool:
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Smallest and largest value as in JSON; None if they cannot be represented there."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    if has_huge(column):
        # Not copied as a whole; the largest character could go on behind what is looked at.
        column = pc.utf8_slice_codeunits(column, 0, LONGEST_TEXT + 1)
        if str(pc.max(column)).endswith(LARGEST):
            return None
    try:
        found = pc.min_max(column).as_py()
    except (OverflowError, ValueError):  # outside the range of Python's `date`
        return None
    return lowest(found["min"]), highest(found["max"])


def lowest(value: Any) -> Any:
    match value:
        case str():
            return value[:LONGEST_TEXT]
        case datetime():
            return _moment(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case date():
            return value.isoformat()
        case _:
            return value


def highest(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST_TEXT:
            # Truncated, with a suffix that is larger than every text with this prefix.
            rest = value[LONGEST_TEXT:].lstrip(LARGEST)
            return value[: len(value) - len(rest)] + LARGEST
        case datetime():
            up = -value.microsecond % 1000
            try:
                return _moment(value + timedelta(microseconds=up))
            except OverflowError:
                return _moment(value)
        case _:
            return lowest(value)


def _moment(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _json(value: Any) -> str:
    """JSON with all digits of decimals, and without unnecessary escapes in texts: delta-rs and
    DuckDB misread surrogate pairs such as `\\ud840\\udc00`."""
    match value:
        case dict():
            members = (f"{_json(name)}:{_json(member)}" for name, member in value.items())
            return "{" + ",".join(members) + "}"
        case Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value, ensure_ascii=False)
