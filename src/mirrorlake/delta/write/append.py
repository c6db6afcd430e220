"""Rows that touch nothing, as data files one after another: in bounded memory, however many."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write.rewrite import ROWS_PER_FILE, written

FILE_BYTES = 256 << 20
"""Bytes in memory of the rows of one data file, about."""


def append(
    table: Path, schema: TableSchema, blocks: Iterable[pa.Table], keys: list[str]
) -> list[dict[str, Any]]:
    """Write pieces of rows, in the table's columns, as data files: their add actions.

    Nothing is committed, as in `rewrite`. Memory: the rows of one data file, twice.
    """
    actions: list[dict[str, Any]] = []
    some: list[pa.Table] = []
    rows = size = 0
    for block in blocks:
        some.append(block)
        rows, size = rows + block.num_rows, size + block.nbytes
        if rows >= ROWS_PER_FILE or size >= FILE_BYTES:
            whole = pa.concat_tables(some)
            # What is more than full files goes with the next pieces, and is no small file.
            full = rows - rows % ROWS_PER_FILE or rows
            actions += written(table, schema, whole.slice(0, full), keys)
            some = [whole.slice(full)]
            rows, size = some[0].num_rows, some[0].nbytes
    if rows:
        actions += written(table, schema, pa.concat_tables(some), keys)
    return actions
