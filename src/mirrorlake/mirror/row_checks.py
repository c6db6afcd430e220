"""Checks of the rows of a landed file, in addition to their types.

The plan knows only footers, not whether all rows are deletes, or a key is NULL. So each engine runs
these checks when it reads the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import FileTooLarge, KeyColumnMissing, NullKey, SchemaMergeFailure
from mirrorlake.landing.parquet.bounded import FILE_BYTES
from mirrorlake.landing.parquet.reader import Inspected, Rows, match_columns
from mirrorlake.model.change import Marker


@dataclass(frozen=True, slots=True)
class RowChecks:
    """Row checks that a project configures.

    strict_keys: a NULL in a key is an error (LZ-257). file_bytes: maximum size of the rows of one
    file in memory; a task holds all of them.
    """

    strict_keys: bool = False
    file_bytes: int = FILE_BYTES


def check_size(found: Inspected, row_checks: RowChecks, *, table: str, file: str) -> None:
    """Raise FileTooLarge if a file is larger than `file_bytes` by its footer.

    The size of a delimited text is only an estimate; its reader checks the real size.
    """
    if found.is_exact and found.size > row_checks.file_bytes:
        raise FileTooLarge(
            f"its {found.rows:,} rows take {found.size:,} bytes in memory; the limit for a file "
            f"is {row_checks.file_bytes:,}",
            table=table,
            file=file,
            hint="Split it into several files, or raise mirror.file_bytes if there is enough "
            "memory.",
        )


def check_rows(
    rows: Rows,
    *,
    key: Sequence[str],
    required: Sequence[str],
    row_checks: RowChecks,
    table: str,
    file: str,
    before: int = 0,
) -> None:
    """Check that rows of a file have the columns and keys that they need.

    before: number of rows of the file before these.
    key: columns that a file with rows must have (LZ-046). required: columns that the first file
    declared non-null, which a file must have unless it contains only deletes (LZ-217, LZ-218).
    Raises KeyColumnMissing, SchemaMergeFailure, NullKey.
    """
    if not rows.data.num_rows:
        return
    matched = match_columns(rows.data.column_names, list(rows.names))
    for name in key:
        if name not in matched:
            raise KeyColumnMissing(
                f"its key column {name} is missing in this file",
                table=table,
                file=file,
                column=name,
                hint="Write the key column in every file; rows cannot be found without it.",
            )
    for name in required:
        if name not in matched and not _only_deletes(rows):
            raise SchemaMergeFailure(
                f"Column '{name}' is missing, but the first file of the table declared it non-null",
                table=table,
                file=file,
                column=name,
                hint="Write the column, or recreate the table folder with all data (LZ-216).",
            )
    if row_checks.strict_keys:
        _check_null_keys(rows, key, table, file, before)


def _only_deletes(rows: Rows) -> bool:
    return bool(pc.all(pc.equal(rows.marker, pa.scalar(int(Marker.DELETE), pa.int8()))).as_py())


def _check_null_keys(rows: Rows, key: Sequence[str], table: str, file: str, before: int) -> None:
    for name in key:
        column = rows.data[name]
        if column.null_count:
            row = pc.index(column.is_null(), value=True).as_py()
            raise NullKey(
                f"key column {name} is NULL, and mirror.strict_keys is true",
                table=table,
                file=file,
                row=before + row + 1,
                column=name,
                hint="Give the row a key, or choose other keyColumns.",
            )
