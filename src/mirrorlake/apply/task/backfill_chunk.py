"""Reads a backfill chunk and what the table has in its range, as far as they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from mirrorlake.apply.commit_metadata import Rows, by_marker
from mirrorlake.apply.task.equal_rows import without_equal_rows
from mirrorlake.apply.task.existing_deletes import check_chunk
from mirrorlake.apply.task.landed_rows import LandedPath, LandedRows
from mirrorlake.delta.lookup.key_range import keys_between, overlapping, rows_between
from mirrorlake.delta.workspace import TableWorkspace
from mirrorlake.landing.parquet import reader as parquet
from mirrorlake.landing.parquet.bounded import WHOLE
from mirrorlake.model.keys import KeyRange

ROWS_COMPARED = 4
"""Number of existing rows per row of a chunk up to which they are read as a whole, to be compared
before the batch is folded. Otherwise most of the rows in its range are deleted, or its table has
large row groups."""


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """landed: the rows of the chunk; existing: the existing keys in its range; both without rows
    that were found to be equal. read: all rows of the chunk, by marker."""

    landed: parquet.Rows
    existing: pa.Table
    read: Rows


def read_chunk(
    rows: LandedRows,
    landed: LandedPath,
    keys: KeyRange,
    files: Sequence[Mapping[str, Any]],
    table: TableWorkspace,
) -> ChunkRows:
    """The landed rows of a chunk, which is a batch of its own. files: the add actions of the live
    files of the table. Raises TableError."""
    searched = overlapping(files, rows.schema, rows.key, keys)
    table.fetch(searched)
    if (compared := _compared(rows, landed, keys, searched, table)) is not None:
        return compared
    found = rows.read(landed)
    check_chunk(rows.table, landed.name, keys, found.data, rows.key)
    existing = keys_between(table.folder, searched, rows.schema, rows.key, keys)
    return ChunkRows(found, existing, by_marker(found.marker))


def _compared(
    rows: LandedRows,
    landed: LandedPath,
    keys: KeyRange,
    searched: Sequence[Mapping[str, Any]],
    table: TableWorkspace,
) -> ChunkRows | None:
    """The chunk without equal rows, if comparing is possible and is not more work."""
    if rows.soft or landed.text is not None:
        return None
    most = ROWS_COMPARED * rows.count(landed)
    existing = rows_between(table.folder, searched, rows.schema, rows.key, keys, most)
    if existing is None:
        return None
    read: list[Rows] = []

    def blocks() -> Iterator[parquet.Rows]:
        for block in rows.read_blocks(landed, WHOLE):
            check_chunk(rows.table, landed.name, keys, block.data, rows.key)
            read.append(by_marker(block.marker))
            yield block

    different = without_equal_rows(blocks(), existing, rows.key)
    if different is None:
        return None
    insert, update, delete, upsert = map(sum, zip(*read, strict=True))
    return ChunkRows(
        different.landed,
        different.existing.select(list(rows.key)),
        (insert, update, delete, upsert),
    )
