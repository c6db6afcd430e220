"""Writes the rows of a feed as JSON lines, CSV, Arrow and Parquet."""

from __future__ import annotations

import base64
import json
import math
import os
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from mirrorlake.errors import StorageUnavailable, unwritable
from mirrorlake.model.arrow import beyond_calendar, python_rows


class RowSink(Protocol):
    """Writes tables of rows, one after another."""

    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """One object for each row: times in ISO 8601, decimals as strings, bytes in Base64."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target

    def write(self, rows: pa.Table) -> None:
        for row in plain_rows(rows):
            self._target.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        self._target.flush()

    def close(self) -> None:
        self._target.flush()


class CsvLines:
    """A header and a line for each row: quoted strings, NULL as an empty field, bytes in Base64."""

    def __init__(self, target: BinaryIO) -> None:
        self._target, self._schema = target, pa.schema([])

    def write(self, rows: pa.Table) -> None:
        is_new = rows.schema != self._schema  # also where the columns of the table changed
        self._schema = rows.schema
        text = pa.table([_as_text(column) for column in rows.columns], names=rows.column_names)
        options = pc_csv.WriteOptions(include_header=is_new)
        for_file = pa.BufferOutputStream()
        pc_csv.write_csv(text, for_file, options)
        self._target.write(for_file.getvalue())
        self._target.flush()

    def close(self) -> None:
        self._target.flush()


def write_file(path: Path, batches: pa.RecordBatchReader, *, is_parquet: bool) -> int:
    """Write an Arrow or Parquet file, atomically. Returns the number of rows. Raises UsageError if
    there can be no such file."""
    if path.is_dir():
        raise unwritable(path, "it is a folder")
    part, rows = path.with_name(f".{path.name}.{os.getpid()}.part"), 0
    try:
        opened = part.open("wb")
    except OSError as error:
        if StorageUnavailable.of(error) and not isinstance(error, NotADirectoryError):
            raise
        raise unwritable(path, error.strerror or str(error)) from error
    try:
        with opened as file:
            writer = (
                pq.ParquetWriter(file, batches.schema)
                if is_parquet
                else pa.ipc.new_file(file, batches.schema)
            )
            with writer:
                for batch in batches:
                    rows += batch.num_rows
                    writer.write_batch(batch)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return rows


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON values."""
    return [{name: plain(value) for name, value in row.items()} for row in python_rows(rows)]


def _as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts types that CSV cannot represent to text; arrays and records to JSON."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_nested(kind):
        write = _json if pa.types.is_nested(kind) else plain
        texts = [None if value is None else write(value) for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if pa.types.is_timestamp(kind):
        return _moments(column)
    if beyond := beyond_calendar(column):
        return _replaced(pc.strftime(column, "%Y-%m-%d"), beyond)
    return column


def _moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    offset = "Z" if column.type.tz else ""
    texts = pc.strftime(column, f"%Y-%m-%dT%H:%M:%S{offset}")
    beyond = {row: text + offset for row, text in beyond_calendar(column).items()}
    return _replaced(texts, beyond) if beyond else texts


def _replaced(texts: pa.ChunkedArray, by_row: dict[int, str]) -> pa.ChunkedArray:
    found = texts.to_pylist()
    for row, text in by_row.items():
        found[row] = text
    return pa.chunked_array([pa.array(found, pa.string())])


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO 8601, decimals, NaN and infinities as strings, bytes in
    Base64."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, dict):
        return {str(plain(name)): plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    return _simple(value)


def _simple(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value
