"""Writes appended rows as data files, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake.delta.schema import TableSchema
from mirrorlake.delta.write.rewrite import ROWS_PER_FILE, write_data_files

FILE_BYTES = 256 << 20
"""Approximate size in memory of the rows of one data file."""


def append(
    table: Path, schema: TableSchema, blocks: Iterable[pa.Table], keys: list[str]
) -> list[dict[str, Any]]:
    """Write blocks of rows, in the columns of the table, as data files. Returns their add actions.

    As in `rewrite`, nothing is committed. Memory: twice the rows of one data file.
    """
    actions: list[dict[str, Any]] = []
    pending: list[pa.Table] = []
    rows = size = 0
    for block in blocks:
        pending.append(block)
        rows, size = rows + block.num_rows, size + block.nbytes
        if rows >= ROWS_PER_FILE or size >= FILE_BYTES:
            whole = pa.concat_tables(pending)
            # Rows beyond full files are written with the next blocks, not as a small file.
            full = rows - rows % ROWS_PER_FILE or rows
            actions += write_data_files(table, schema, whole.slice(0, full), keys)
            pending = [whole.slice(full)]
            rows, size = pending[0].num_rows, pending[0].nbytes
    if rows:
        actions += write_data_files(table, schema, pa.concat_tables(pending), keys)
    return actions
