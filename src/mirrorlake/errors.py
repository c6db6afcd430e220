"""The error tree. The branch tells whose turn it is.

    MirrorlakeError
    ├── UsageError            the caller's: wrong use or configuration (exit code 2)
    │   └── ConfigError       a field of the project file, with its line
    ├── Unavailable           nobody's: a system is not there; try again later (exit code 3)
    │   ├── SparkUnavailable  Java, jars, or a pair of versions that was not tested
    │   ├── SourceUnavailable the database does not answer
    │   └── StorageUnavailable  the disk is full, or not ours to write
    ├── OperatorError         a person's: nothing is retried until somebody acts (exit code 1)
    │   ├── SourceGap         changes between the source and the zone are lost
    │   ├── UnsafeStorage     it does not keep what we rely on, such as a conditional write
    │   ├── LeaseHeld         another process holds the one right to write
    │   ├── LeaseLost         another process took it over
    │   └── TableError        one table stops, the others go on
    │       └── ...           one class per condition, see below
    ├── Conflict              ours: another writer was faster; start the step again
    └── InternalError         ours: a bug; nothing was written

Every error says what happened, where, and what a person can do. `code` is stable: programs may
compare it. Values of rows appear only where the specification asks for them (LZ-270) and never
in logs.
"""

from __future__ import annotations

import errno
from typing import Any, ClassVar, Self


class MirrorlakeError(Exception):
    """Root of all errors: what happened, where, and what a person can do."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what, where, hint)

    def __str__(self) -> str:
        location = f" ({self.where})" if self.where else ""
        advice = f" {self.hint}" if self.hint else ""
        return f"{self.what}{location}.{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross processes by pickle, which by itself hands over positional arguments only.
        return _rebuild, (type(self), self.args, self.__dict__.copy())

    def facts(self) -> dict[str, Any]:
        """The error as plain data, as `status --json` prints it and as stored beside a table."""
        return {"code": self.code, "message": str(self), "hint": self.hint}


def _rebuild(
    kind: type[MirrorlakeError], args: tuple[Any, ...], state: dict[str, Any]
) -> MirrorlakeError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class UsageError(MirrorlakeError):
    """Wrong use: a command, an argument or a setting that cannot mean anything."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """The project file is wrong at one place."""

    code = "config"


class Unavailable(MirrorlakeError):
    """A system that is needed does not answer; trying again may help."""

    code = "unavailable"
    exit_code = 3


class SparkUnavailable(Unavailable):
    """No usable Spark: Java, the jars, or the pair of versions."""

    code = "spark_unavailable"


class SourceUnavailable(Unavailable):
    """The source database does not answer."""

    code = "source_unavailable"


class StorageUnavailable(Unavailable):
    """The disk is full, or does not let us write or read."""

    code = "storage_unavailable"

    @classmethod
    def of(cls, error: OSError) -> Self | None:
        """What the system said, as one of ours; None when it is not about storage."""
        hint = _STORAGE.get(error.errno or 0)
        if hint is None:
            return None
        said = (error.strerror or "failed").lower()
        return cls(
            f"the storage returned an error: {said}", where=str(error.filename or ""), hint=hint
        )


_NO_ROOM = "Free space on the disk and start again. Nothing is lost."
_NO_RIGHT = "Grant this user read and write access."
_STORAGE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f).",
    errno.EROFS: "Remount the file system with write access.",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.EIO: "Check the disk, and the log of the operating system.",
    errno.EREMOTEIO: "Check the network, the endpoint, the region and the bucket.",
    errno.EILSEQ: "Delete the object of this name with a tool of the storage.",
    errno.ENOTEMPTY: "Delete what is left there with a tool of the storage.",
    errno.ESTALE: (
        "Another process changed the file. Stop the other writer, or run the command again."
    ),
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


class OperatorError(MirrorlakeError):
    """A person has to act; nothing is retried."""

    code = "operator"


class PrerequisiteMissing(OperatorError):
    """The source is not prepared for capture."""

    code = "prerequisite_missing"


class SourceGap(OperatorError):
    """What the source still has does not join what the zone already has."""

    code = "source_gap"


class UnsafeStorage(OperatorError):
    """A storage does not do what nothing would be lost without."""

    code = "unsafe_storage"


class LeaseHeld(OperatorError):
    """Another process holds the right to write."""

    code = "lease_held"


class LeaseLost(OperatorError):
    """Another process took over the right to write."""

    code = "lease_lost"


class Conflict(MirrorlakeError):
    """Another writer was faster; nothing was written, the step starts again."""

    code = "conflict"


class InternalError(MirrorlakeError):
    """A bug of ours, found before anything was written."""

    code = "internal"


class TableError(OperatorError):
    """One table stops; all others go on (LZ-267).

    `table`, `file`, `row` (counted from 1), `column` and `value` are given where they are known
    (LZ-270).
    """

    code = "table_error"

    def __init__(
        self,
        what: str,
        *,
        table: str,
        file: str | None = None,
        row: int | None = None,
        column: str | None = None,
        value: str | None = None,
        hint: str = "",
    ) -> None:
        self.table, self.file, self.row, self.column, self.value = table, file, row, column, value
        named = (("table", table), ("file", file), ("row", row), ("column", column))
        where = ", ".join(f"{name} {printable(fact)}" for name, fact in named if fact is not None)
        super().__init__(what, where=where, hint=hint)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "file": self.file,
            "row": self.row,
            "column": self.column,
            "value": self.value,
        }


def printable(fact: object) -> str:
    """A name from outside without what would steer a terminal or break a line."""
    text = str(fact)
    return text if text.isprintable() else repr(text)


class MissingFile(TableError):
    """A file number is absent and later ones exist (LZ-117, LZ-119)."""

    code = "missing_file"


class DuplicateNumber(TableError):
    """Two data files bear one number (LZ-120)."""

    code = "duplicate_number"


class BadFile(TableError):
    """A data file is empty, incomplete or not what its name says (LZ-276)."""

    code = "bad_file"


class FileTooLarge(BadFile):
    """A data file holds more than one task may read."""

    code = "file_too_large"


class BadMetadata(TableError):
    """`_metadata.json` cannot be read (LZ-054)."""

    code = "bad_metadata"


class KeyColumnsChanged(TableError):
    """A later `_metadata.json` names other key columns (LZ-038)."""

    code = "key_columns_changed"


class DetectionChanged(TableError):
    """A later `_metadata.json` names another `fileDetectionStrategy` (LZ-047)."""

    code = "detection_changed"


class KeyColumnMissing(TableError):
    """A name in `keyColumns` matches no column of the file (LZ-046)."""

    code = "key_column_missing"


class UnknownMarker(TableError):
    """A row marker is none of 0, 1, 2 and 4 (LZ-085)."""

    code = "unknown_marker"


class NullKey(TableError):
    """A key is NULL, and the project asks for keys without (LZ-257)."""

    code = "null_key"


class MisspeltMarker(TableError):
    """A column equals `__rowMarker__` only when case is ignored (LZ-086)."""

    code = "misspelt_marker"


class KeyedChangeWithoutKey(TableError):
    """An update, delete or upsert for a table without key columns (LZ-043)."""

    code = "keyed_change_without_key"


class IncompleteRow(TableError):
    """A row that updates lacks a column of the table (LZ-100)."""

    code = "incomplete_row"


class BatchPending(TableError):
    """An earlier batch of the table was begun, and is not published yet (LZ-121)."""

    code = "batch_pending"


class SchemaMergeFailure(TableError):
    """A file brings another type for an existing column (LZ-221, LZ-224)."""

    code = "SchemaMergeFailure"


class UnsupportedColumn(TableError):
    """A column whose name or type the tables cannot carry (LZ-155, LZ-156, CF-092)."""

    code = "unsupported_column"


class UnsupportedTable(TableError):
    """The table asks for something this release does not do."""

    code = "unsupported_table"


class MissingBaseRow(TableError):
    """A value that the source did not send has no row to be taken from."""

    code = "missing_base_row"


class BadValue(TableError):
    """A value that its column cannot hold."""

    code = "bad_value"


class ConstraintViolated(TableError):
    """A row breaks what somebody demanded of the Delta table: NOT NULL, CHECK or a length."""

    code = "constraint_violated"


class WorkerLost(TableError):
    """The process that worked on a batch of the table was killed, or crashed, each time."""

    code = "worker_lost"


class TableRestored(TableError):
    """The Delta table was restored to an older version behind our back."""

    code = "table_restored"


class ProgressLost(TableError):
    """Which files a table in timestamp mode has applied can no longer be told (LZ-127)."""

    code = "progress_lost"


class ForeignTable(TableError):
    """The Delta table is not, or no longer, the mirror of this folder."""

    code = "foreign_table"


class NestedTables(TableError):
    """The path of one table lies inside the path of another."""

    code = "nested_tables"


class TooManyTables(TableError):
    """A table beyond the number that the project allows (LZ-278)."""

    code = "too_many_tables"


class NameTaken(TableError):
    """A published name holds other content (LZ-137)."""

    code = "name_taken"


class SelectionChanged(TableError):
    """The columns or rows selected for a table are not those it was loaded with."""

    code = "selection_changed"


class NotSelected(TableError):
    """A table that was landed is not selected, or not in the source, any more."""

    code = "not_selected"


class TableRecreated(TableError):
    """The source dropped the table and created another one of the same name."""

    code = "table_recreated"
