"""Converts exceptions in a task to errors of its table."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from mirrorlake import version
from mirrorlake.delta import deletion_vectors
from mirrorlake.delta.lookup import page_checksums
from mirrorlake.delta.lookup.key_lookup import path_of
from mirrorlake.delta.partitions import NullText
from mirrorlake.delta.workspace import LostFile, Unreachable, open_workspace
from mirrorlake.errors import (
    BadValue,
    ForeignTable,
    MirrorlakeError,
    MissingBaseRow,
    StorageUnavailable,
    TableError,
    WorkerLost,
)
from mirrorlake.mirror.faults import TableFault, UnreachableTable
from mirrorlake.storage.options import ObjectOptions
from mirrorlake.storage.urls import is_url

_LIMITS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EMFILE})
"""System errors after which files are not checked for damage."""

_OURS = Path(version.__file__).parent


def fault(table: str, error: Exception) -> TableFault:
    """The error for an unexpected exception: its type and location, but not its message, which may
    contain values of rows."""
    return TableFault(
        f"{type(error).__name__} at {_origin(error)}",
        table=table,
        hint="It is retried. If it recurs, report it with the log.",
    )


def table_error(
    table: str,
    location: str,
    options: ObjectOptions | None,
    files: Sequence[Mapping[str, Any]],
    error: Exception,
) -> MirrorlakeError:
    """The error of a table whose task raised an exception. files: the add actions of the files that
    the task may have read."""
    if isinstance(error, MirrorlakeError):
        return error
    if isinstance(error, NullText):
        return null_text(table, error)
    if isinstance(error, LostFile):
        return _damaged_table(table, location, f"{Path(str(error)).name} is missing")
    if isinstance(error, Unreachable):
        return UnreachableTable(
            f"its storage failed: {error}",
            table=table,
            hint="Check that the storage answers and that this process may write to it. It is "
            "retried.",
        )
    return _unexpected(table, location, options, files, error)


def _unexpected(
    table: str,
    location: str,
    options: ObjectOptions | None,
    files: Sequence[Mapping[str, Any]],
    error: Exception,
) -> TableError:
    """The error for an unexpected exception: caused by the system, by damaged files of the table,
    or by a bug."""
    if isinstance(error, OSError) and error.errno in _LIMITS:
        return storage_error(table, error)
    with open_workspace(location, options) as workspace:
        damage = _find_damage(
            workspace.folder,
            files,
            on_objects=is_url(location),
            pages=isinstance(error, OSError),
        )
    if damage:
        return _damaged_table(table, location, damage)
    return storage_error(table, error) if isinstance(error, OSError) else fault(table, error)


def storage_error(table: str, error: OSError) -> TableError:
    """The error for an OSError of the storage, such as a full disk."""
    found = StorageUnavailable.of(error)
    if found is None:
        return fault(table, error)
    where = f" ({found.where})" if found.where else ""
    return UnreachableTable(
        f"{found.what}{where}", table=table, hint=f"{found.hint} It is retried."
    )


def null_text(table: str, found: NullText) -> BadValue:
    """The error for a partition value that Delta would store as NULL."""
    return BadValue(
        "the table is partitioned by this text, which Delta would store as NULL",
        table=table,
        column=found.column,
        value=found.value,
        hint="Send another value or NULL, or rebuild the table without partitions.",
    )


def missing_base_row(table: str, file: str) -> MissingBaseRow:
    """The error for an unchanged value whose row is missing in the table, or occurs several
    times."""
    return MissingBaseRow(
        "the source did not send an unchanged value, and the table does not have exactly one row "
        "to take it from",
        table=table,
        file=file,
        hint=f"Run `mirrorlake reset {table}` to reload the table.",
    )


def worker_lost(table: str, reason: str) -> WorkerLost:
    """The error of a table whose tasks died with their process. reason: as text."""
    return WorkerLost(
        f"the tasks of its batch died: {reason}",
        table=table,
        hint="The usual cause is too little memory where the tasks run. Give the machine or "
        "container more memory (on a cluster, raise spark.executor.memoryOverhead), or land "
        "smaller files; mirror.file_bytes limits the size of a file. The batch is retried.",
    )


def _find_damage(
    table: Path, files: Sequence[Mapping[str, Any]], *, on_objects: bool, pages: bool
) -> str:
    """A description of the first missing or damaged file of the table; "" if there is none.

    Opens every file; for a table on object storage, every file that is in the cache. pages: also
    verify the page checksums.
    """
    for add in files:
        path, vector = path_of(table, add), add.get("deletionVector")
        try:
            if not on_objects or path.exists():
                page_checksums.verify(path, None if pages else ())
            if vector and _has_vector(table, vector, on_objects=on_objects):
                deletion_vectors.read(table, vector)
        except FileNotFoundError as error:
            return f"{Path(error.filename or path).name} is missing"
        except page_checksums.DamagedPage as error:
            return str(error)
        except (pa.ArrowException, OSError, ValueError) as error:
            return f"{path.name} cannot be read ({type(error).__name__})"
    return ""


def _has_vector(table: Path, vector: Mapping[str, Any], *, on_objects: bool) -> bool:
    inline = vector["storageType"] == "i"
    return inline or not on_objects or deletion_vectors.path_of(table, vector).exists()


def _damaged_table(table: str, location: str, what: str) -> ForeignTable:
    return ForeignTable(
        f"a file of the Delta table at {location} is lost or damaged: {what}",
        table=table,
        hint=f"Restore the file, or run `mirrorlake reset {table}` to rebuild the table. It is "
        "retried.",
    )


def _origin(error: BaseException) -> str:
    """The file, line and function of mirrorlake that raised, or of a library if none did."""
    frame = error.__traceback__
    last = frame
    while frame is not None:
        if _OURS in Path(frame.tb_frame.f_code.co_filename).parents:
            last = frame
        frame = frame.tb_next
    if last is None:
        return ""
    code = last.tb_frame.f_code
    return f"{Path(code.co_filename).name}:{last.tb_lineno} in {code.co_name}"
