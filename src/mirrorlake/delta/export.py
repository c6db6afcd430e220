"""Exports all rows of a table to one file, for tools that do not read Delta; in bounded memory."""

from __future__ import annotations

import uuid
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import duckdb
import pyarrow as pa

from mirrorlake.delta import sql
from mirrorlake.delta.quoting import quoted
from mirrorlake.errors import check_utf8, unwritable
from mirrorlake.model.table import TableId, named

_BATCH_ROWS = 65_536


class FileForm(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    ARROW = "arrow"


def write(root: Path, table: str, form: FileForm, file: Path, *, verify: bool = True) -> None:
    """Write a table below a root into a file, which replaces an existing one atomically.

    verify: verify the page checksums of the table before. Raises UsageError, and ForeignTable for a
    damaged file.
    """
    if file.is_dir():
        raise unwritable(file, "it is a folder")
    check_utf8(table, "the name of the table")
    known = (
        TableId("" if schema == "main" else schema, one) for schema, one, _ in sql.tables(root)
    )
    name = TableId.parse(named(table, map(str, known), where="table"))
    view = f"{quoted(name.schema or 'main')}.{quoted(name.name)}"
    rows = sql.run(root, f"select * from {view}", verify=verify)  # noqa: S608  (quoted)
    assert rows is not None
    written = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        _write(rows, form, written)
        written.replace(file)
    except (OSError, duckdb.IOException) as error:
        raise unwritable(file, _reason(error)) from error
    finally:
        with suppress(OSError):  # there may be no such folder
            written.unlink(missing_ok=True)


def _write(rows: duckdb.DuckDBPyRelation, form: FileForm, file: Path) -> None:
    if form is FileForm.CSV:
        rows.write_csv(str(file), header=True)
    elif form is FileForm.PARQUET:
        rows.write_parquet(str(file), compression="zstd")
    else:
        batches = rows.to_arrow_reader(_BATCH_ROWS)
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, batches.schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error).partition("\n")[0]
