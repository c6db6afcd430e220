"""New data and change files of a table, and their statistics for the log.

Every file is flushed (`flush`): it is durable when it is written, or soon after.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.delta.write import compression, flush
from mirrorlake.delta.write.compression import CODEC

STATISTICS = 32
"""Columns with statistics, as Delta's own default; the key columns always are among them."""

LONGEST_TEXT = 32
LARGEST = "\U0010ffff"
"""The character after which none comes."""

ROW_GROUP = 256 * 1024
"""Rows: small enough that readers can pass over most of a file for a narrow range of keys."""

PAGE_ROWS = 2_048
"""Rows that are decompressed together: few, because a row of a random key costs its whole page."""

DICTIONARY = 64 * 1024
"""Bytes: beyond it a column has too many values for a dictionary, and is written as it stands,
which is faster and, compressed, smaller."""

CHANGE_TYPE = "_change_type"

_WRITER = {"org.apache.spark.version": "4.0.0"}
"""Of the footer of a file: Spark 3 reads dates before 1582-10-15 and moments before 1900 only if
the file says in which calendar they are; Spark has written the Gregorian one since 3.0."""

NO_VALUES: Mapping[str, str | None] = MappingProxyType({})
"""Of a table without partition columns."""


def write_data(
    table: Path,
    rows: pa.Table,
    keys: list[str],
    values: Mapping[str, str | None] = NO_VALUES,
    *,
    data_change: bool = True,
) -> dict[str, Any]:
    """Write a data file; returns its add action. rows: in the file's names and types.

    values: of the partition columns; data_change: False when its rows stood in another file before.
    """
    name = f"part-00000-{uuid.uuid4()}.c000.{CODEC}.parquet"
    size = _write(table / name, rows, page_rows=PAGE_ROWS)
    return {
        "path": quote(name),
        "partitionValues": dict(values),
        "size": size,
        "modificationTime": int(time.time() * 1000),
        "dataChange": data_change,
        "stats": _json(statistics(rows, keys)),
    }


def write_changes(
    table: Path, rows: pa.Table, values: Mapping[str, str | None] = NO_VALUES
) -> dict[str, Any]:
    """Write a change file; returns its cdc action. rows: `_change_type` is the last."""
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
    plain = (field.name for field in rows.schema if not pa.types.is_nested(field.type))
    names = [*keys, *(name for name in plain if name not in keys)][:STATISTICS]
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
        if _has_order(column.type) and column.null_count < len(column):
            bounds = _bounds(column)
            if bounds is not None:
                stats["minValues"][name], stats["maxValues"][name] = bounds
    return stats


def deleted_from(add: Mapping[str, Any], vector: Mapping[str, Any], records: int) -> dict[str, Any]:
    """The add action of a file some of whose rows are now gone: its bounds are no longer tight."""
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
    """page_rows: None for a file that is only read whole, which then needs no index of pages."""
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        with pq.ParquetWriter(
            file,
            rows.schema,
            compression=compression.codecs(rows),
            max_rows_per_page=page_rows,
            dictionary_pagesize_limit=DICTIONARY,
            write_page_index=page_rows is not None,
            write_page_checksum=True,
            coerce_timestamps="us",
            store_schema=False,
            write_statistics=[name for name in rows.column_names if not _has_nan(rows[name])],
        ) as writer:
            writer.write_table(rows, ROW_GROUP)
            writer.add_key_value_metadata(_WRITER)
        flush.flush(file)
        return file.tell()


def _has_nan(column: pa.ChunkedArray) -> bool:
    """Bounds in a Parquet file leave NaN out, and Spark, to which it is the largest number, passes
    over a row group by them that holds one."""
    return pa.types.is_floating(column.type) and bool(pc.any(pc.is_nan(column)).as_py())


def _has_order(kind: pa.DataType) -> bool:
    return not (pa.types.is_boolean(kind) or pa.types.is_binary(kind))


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any] | None:
    """Smallest and largest value as JSON, or None where JSON or the protocol has no word for it."""
    if pa.types.is_floating(column.type) and not pc.all(pc.is_finite(column)).as_py():
        return None
    try:
        found = pc.min_max(column).as_py()
    except (OverflowError, ValueError):  # a date beyond what Python's calendar knows
        return None
    return _lowest(found["min"]), _highest(found["max"])


def _lowest(value: Any) -> Any:
    match value:
        case str():
            return value[:LONGEST_TEXT]
        case datetime():
            return _moment(value.replace(microsecond=value.microsecond // 1000 * 1000))
        case date():
            return value.isoformat()
        case _:
            return value


def _highest(value: Any) -> Any:
    match value:
        case str() if len(value) > LONGEST_TEXT:
            # Cut off, and made larger than everything that begins so.
            rest = value[LONGEST_TEXT:].lstrip(LARGEST)
            return value[: len(value) - len(rest)] + LARGEST
        case datetime():
            up = -value.microsecond % 1000
            try:
                return _moment(value + timedelta(microseconds=up))
            except OverflowError:
                return _moment(value)
        case _:
            return _lowest(value)


def _moment(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _json(value: Any) -> str:
    """JSON in which a decimal is a number with all its digits, and a text has no escapes that it
    does not need: delta-rs and DuckDB read `\\ud840\\udc00` as another character."""
    match value:
        case dict():
            members = (f"{_json(name)}:{_json(member)}" for name, member in value.items())
            return "{" + ",".join(members) + "}"
        case Decimal():
            return format(value, "f")
        case _:
            return json.dumps(value, ensure_ascii=False)
