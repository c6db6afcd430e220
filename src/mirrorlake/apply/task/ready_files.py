"""Landed files that become data files of the table as they are.

The files of a load are written as data files would be
(`capture/landing/files/staged_data_file.py`). One whose columns are exactly those of the table is
copied without being decoded: its checksum shows that the pages are those that were written, and its
footer has the statistics for the log. Every other file is read.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from mirrorlake.apply.task.footer_statistics import footer_statistics
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write import data_files, flush
from mirrorlake.landing.parquet import bounded
from mirrorlake.model.arrow import arrow_schema, nullable_schema
from mirrorlake.model.landed import Checksum, FileKind, Footer

MIN_BYTES = 8 << 20
"""Minimum size of a file that is taken; smaller ones are written together, as a larger file."""

_BLOCK = 4 << 20


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A landed file that became a data file. add: its add action."""

    add: dict[str, Any]
    rows: int


def take_file(landed: LandedPath, rows: LandedRows, folder: Path) -> TakenFile | None:
    """Copy a landed file into the folder of its table; None if its rows have to be read. As in
    `rewrite`, nothing is committed."""
    if landed.text is not None or landed.size < MIN_BYTES or rows.schema.partitions:
        return None
    with rows.opened(landed) as handle:
        try:
            parquet = bounded.opened(handle, landed.size)
            checksum = _checksum(parquet.metadata)
            if checksum is None or not _fits(parquet.schema_arrow, rows.schema):
                return None
            stats = footer_statistics(parquet.metadata, rows.key)
        except (pa.ArrowException, OSError, ValueError):
            return None  # the reader of the rows reports what is wrong
        if not _is_complete(stats, rows):
            return None
        name = data_files.new_name()
        if not _copied(handle, landed.size, checksum, folder / name):
            return None
    return TakenFile(data_files.added(name, landed.size, stats), parquet.metadata.num_rows)


def _checksum(footer: pq.FileMetaData) -> Checksum | None:
    """The checksum of all pages of a file that is a data file."""
    facts = {key.decode(): value.decode() for key, value in (footer.metadata or {}).items()}
    found = Footer.decode(facts)
    if found is None or found.data_file is None or found.kind is not FileKind.LOAD:
        return None
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    if sum(group.num_rows for group in groups) != footer.num_rows:
        return None
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    end = max((_begin(chunk) + chunk.total_compressed_size for chunk in chunks), default=0)
    return found.data_file if end <= found.data_file.size else None


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    return int(chunk.dictionary_page_offset or chunk.data_page_offset)


def _fits(found: pa.Schema, schema: TableSchema) -> bool:
    """Whether a file has the columns of a table as its data files have them."""
    wanted = arrow_schema(schema.schema)
    return (
        not any(schema.ids)  # files of a table with column mapping have them
        and found.names == list(schema.physical) == wanted.names
        and found.types == wanted.types
        and not any(
            field.nullable and not column.nullable
            for field, column in zip(found, wanted, strict=True)
        )
    )


def _is_complete(stats: dict[str, Any], rows: LandedRows) -> bool:
    """Whether the statistics have what is looked up and checked in them."""
    kinds = nullable_schema(rows.schema.schema)
    for name in rows.key[: data_files.STATISTICS]:
        nulls = stats["nullCount"].get(name)
        if nulls is None or (nulls and rows.row_checks.strict_keys):
            return False
        has_bounds = name in stats["minValues"] or nulls == stats["numRecords"]
        if data_files.has_order(kinds.field(name).type) and not has_bounds:
            return False
    return True


def _copied(handle: BinaryIO, size: int, checksum: Checksum, path: Path) -> bool:
    """Copy a file, unless its checksum is not that of its content."""
    is_same = False
    try:
        with path.open("wb") as file:
            is_same = _copy(handle, checksum, file) and file.tell() == size
            if is_same:
                flush.flush(file)
    finally:
        if not is_same:
            path.unlink(missing_ok=True)
    return is_same


def _copy(handle: BinaryIO, checksum: Checksum, file: BinaryIO) -> bool:
    handle.seek(0)
    crc32, left = 0, checksum.size
    while left and (block := handle.read(min(_BLOCK, left))):
        crc32 = zlib.crc32(block, crc32)
        left -= len(block)
        file.write(block)
    file.write(handle.read(_BLOCK))
    return not left and crc32 == checksum.crc32
