"""The error tree. The branch determines who has to act.

    MirrorlakeError
    ├── UsageError            the caller: wrong usage or configuration (exit code 2)
    │   ├── ConfigError       a field of the project file, with its line
    │   ├── InvalidRequest    a request for streams that cannot be read
    │   ├── ResourceNotFound  a stream, object, profile or operation does not exist
    │   └── ResourceExists    the name of a stream or profile is taken
    ├── Unavailable           nobody: a system is not available; retry later (exit code 3)
    │   ├── SparkUnavailable  Java, jars, or an unsupported pair of versions
    │   ├── SourceUnavailable the database does not answer, its slot is in use (SlotInUse),
    │   │                     or a table was altered or rewritten while it was loaded
    │   │                     (AlteredWhileLoaded, RowsMoved)
    │   ├── StorageUnavailable  the disk is full, or permissions are missing
    │   └── ProcessSuspended  a process of ours is stopped by a signal or a debugger
    ├── OperatorError         a person: nothing is retried before (exit code 1)
    │   ├── SourceGap         changes between the source and the landing zone are lost
    │   ├── UnsafeStorage     the storage lacks a guarantee, such as conditional writes
    │   ├── LeaseHeld         another process holds the lease
    │   ├── LeaseLost         another process took over the lease
    │   ├── IllegalMove       the state of a stream does not allow the operation
    │   ├── NotOffered        the API has a feature that this release does not support
    │   ├── FeedError         the change feed cannot be read as requested
    │   ├── NotReached        tables have not reached a position of the source yet
    │   ├── FeedTargetError   a table that is built from a change feed cannot be updated
    │   │   └── SourceColumnsChanged   the columns of its source table changed
    │   └── TableError        one table stops, the others continue
    │       └── ...           one class per condition, see below
    └── InternalError         mirrorlake: a bug; nothing was written

Every error contains what happened, where, and what a person can do. `code` is stable, so programs
can compare it; it is the name of the class, in lower case with underscores, unless the class sets
another. Values of rows appear only where the specification requires them (LZ-270) and never in
logs.
"""

from __future__ import annotations

import copyreg
import difflib
import errno
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self


class MirrorlakeError(Exception):
    """Root of all errors: what happened, where, and what a person can do."""

    code: ClassVar[str] = "error"
    exit_code: int = 1

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what, self.where, self.hint = what, where, hint
        super().__init__(what, where, hint)

    def __str__(self) -> str:
        location = f" ({self.where})" if self.where else ""
        advice = f" {self.hint}" if self.hint else ""
        return f"{self.what}{location}.{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors are pickled between processes; pickle alone keeps only positional arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__.copy()  # type: ignore[attr-defined]

    def facts(self) -> dict[str, Any]:
        """The error as plain data, as printed by `status --json` and stored for a table."""
        return {"code": self.code, "message": str(self), "hint": self.hint}


class UsageError(MirrorlakeError):
    """Wrong usage: an invalid command, argument or setting."""

    code = "usage"
    exit_code = 2


class ConfigError(UsageError):
    """A setting of the project file is wrong."""

    code = "config"


class InvalidRequest(UsageError):
    """A request for streams, objects or profiles cannot be read, or contradicts itself."""


class ResourceNotFound(UsageError):
    """A stream, object, connection profile or operation does not exist."""


class ResourceExists(UsageError):
    """The name of a stream or connection profile is taken."""


class Unavailable(MirrorlakeError):
    """A required system does not answer; a retry may help."""

    exit_code = 3


class SparkUnavailable(Unavailable):
    """No usable Spark: Java, the jars or the versions are missing or not supported."""


class SourceUnavailable(Unavailable):
    """The source database does not answer."""


class SlotInUse(SourceUnavailable):
    """Another connection still reads the replication slot."""


LOADED_LATER = "It is loaded from another snapshot; run the command again if it has ended."


class AlteredWhileLoaded(SourceUnavailable):
    """A table was altered while it was loaded: it is loaded from another snapshot. where: its
    name."""


class RowsMoved(SourceUnavailable):
    """The rows of a table are at other places than when its parts were listed: it is read anew."""


class StorageUnavailable(Unavailable):
    """The disk is full, or it cannot be written or read."""

    @classmethod
    def of(cls, error: OSError) -> Self | None:
        """The error for an OSError of the storage; None if it is another OSError."""
        hint = _STORAGE.get(error.errno or 0)
        if hint is None:
            return None
        said = (error.strerror or "failed").lower()
        return cls(
            f"the storage returned an error: {said}", where=str(error.filename or ""), hint=hint
        )

    @classmethod
    def of_temporary(cls, error: OSError, what: str, hint: str) -> Self:
        """The error for an OSError of a temporary file. what: what cannot be done without it."""
        folder = os.environ.get("TMPDIR", "")
        with suppress(OSError):  # there may be no folder that can be used
            folder = tempfile.gettempdir()
        said = (error.strerror or "failed").lower()
        return cls(f"{what}: {said}", where=folder, hint=hint)


class ProcessSuspended(Unavailable):
    """A process that captures or applies is suspended (SIGSTOP, Ctrl-Z, a debugger)."""


_NO_ROOM = "Free space on the disk, and start again what has ended. Nothing is lost."
_NO_RIGHT = "Grant this user read and write access."
_STORAGE = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: "Raise the limit of file sizes (ulimit -f).",
    errno.EROFS: "Remount the file system with write access.",
    errno.EACCES: _NO_RIGHT,
    errno.EPERM: _NO_RIGHT,
    errno.ENOTDIR: "A file is there where a folder is needed. Move it to another folder.",
    errno.EIO: "Check the disk, and the log of the operating system.",
    errno.EREMOTEIO: "Check the credentials, the network, the endpoint, the region and the bucket.",
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


class IllegalMove(OperatorError):
    """The state of a stream does not allow the requested operation (ST-279)."""


class NotOffered(OperatorError):
    """The API has this feature, but this release does not support it."""


class PrerequisiteMissing(OperatorError):
    """The source is not prepared for capture."""


class SourceGap(OperatorError):
    """Changes between the landing zone and what the source can still send are lost."""


class UnsafeStorage(OperatorError):
    """The storage lacks a guarantee needed to prevent data loss (for example atomic create)."""


class EventRecordsUnreadable(OperatorError):
    """The record of the applied event files cannot be read."""


class RecordDamaged(OperatorError, ValueError):
    """A file in which mirrorlake remembers something is damaged."""


class LeaseHeld(OperatorError):
    """Another process holds the lease."""


class LeaseLost(OperatorError):
    """Another process took over the lease."""


class InternalError(MirrorlakeError):
    """A bug of mirrorlake, detected before anything was written."""

    code = "internal"


class FeedError(OperatorError):
    """The change feed of a table cannot be read as requested; `reason` says why (CF-165).

    `requested` is the requested range as text; `readable` is the first and the last version that
    can be read, None if there is none or it is unknown. `condition` and `sqlstate` come from Delta
    or Spark if one of them rejected the read.
    """

    code = "feed"

    def __init__(
        self,
        what: str,
        *,
        reason: str,
        table: str,
        requested: str = "",
        readable: tuple[int, int] | None = None,
        hint: str = "",
        condition: str = "",
        sqlstate: str = "",
    ) -> None:
        self.reason, self.table, self.requested, self.readable = reason, table, requested, readable
        self.condition, self.sqlstate = condition, sqlstate
        where = ", ".join(
            f"{name} {printable(fact)}"
            for name, fact in (("table", table), ("requested", requested))
            if fact
        )
        if readable is not None:
            what = f"{what}; versions {readable[0]} to {readable[1]} are readable"
        super().__init__(what, where=where, hint=hint)
        if reason in {"invalid_argument", "invalid_range", "start_missing"}:
            self.exit_code = UsageError.exit_code

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "reason": self.reason,
            "table": self.table,
            "requested": self.requested,
            "readable": self.readable and list(self.readable),
            "condition": self.condition,
            "sqlstate": self.sqlstate,
        }


class FeedTargetError(OperatorError):
    """A table that is built from a change feed cannot be updated, or not as requested (CF-200,
    CF-201, CF-210)."""


class SourceColumnsChanged(FeedTargetError):
    """The source of a table that is built from a change feed dropped or changed columns (CF-210).

    `version` is the version of the source that did.
    """

    def __init__(self, what: str, *, version: int, where: str = "", hint: str = "") -> None:
        self.version = version
        super().__init__(what, where=where, hint=hint)


class NotReached(OperatorError):
    """Some or all tables have not reached a position of the source yet."""


class TableError(OperatorError):
    """One table stops; all others continue (LZ-267).

    `table`, `file`, `row` (counted from 1), `column` and `value` are set if known (LZ-270).
    """

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


def unwritable(file: Path, reason: str) -> UsageError:
    """The error for a file that a user named and that cannot be written."""
    return UsageError(
        f"the file cannot be written: {reason}",
        where=str(file),
        hint="Name a file in a folder in which you may write.",
    )


def printable(fact: object) -> str:
    """A name from outside, quoted if it contains control characters or line breaks."""
    text = str(fact)
    return text if text.isprintable() else repr(text)


MOST_NAMES = 10
"""That a hint contains."""
_ALIKE = 0.6


def check_utf8(text: str, what: str) -> None:
    """Refuse a text of the command line with bytes that Python could not decode. what: the text is.
    Raises UsageError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what} is not UTF-8", hint="Write it in this encoding.") from None


def tables_like(asked: str, known: Iterable[object], none: str = "none") -> str:
    """The hint of an error for a table that there is not: the tables that there are, see
    `names_like`."""
    return f"The tables are: {names_like(asked, known, none)}."


def names_like(asked: str, known: Iterable[object], none: str = "none") -> str:
    """Names that there are, for an error for one that there is not: at most ten, those first that
    are like the one that was asked for. none: said for no name."""
    matcher = difflib.SequenceMatcher(b=asked.casefold())

    def likeness(name: str) -> float:
        matcher.set_seq1(name)
        return matcher.ratio()

    def rank(name: str) -> tuple[float, str]:
        folded = name.casefold()
        nearest = max(likeness(folded), likeness(folded.rpartition(".")[2]))
        return (-nearest if nearest >= _ALIKE else 0.0), name

    names = sorted({printable(name) for name in known}, key=rank)
    more = len(names) - MOST_NAMES
    said = ", ".join(names[:MOST_NAMES]) or none
    return f"{said}, and {more:,} more" if more > 0 else said


class MissingFile(TableError):
    """A file number is missing and later ones exist (LZ-117, LZ-119), or the last are gone."""


class CannotBackfill(TableError):
    """The table cannot be backfilled, because it cannot be read in ranges of its key."""


class DuplicateNumber(TableError):
    """Two data files have the same number (LZ-120)."""


class BadFile(TableError):
    """A data file is empty, incomplete or not in the format of its name (LZ-276)."""


class FileTooLarge(BadFile):
    """A data file is larger than a task may read."""


class BadMetadata(TableError):
    """`_metadata.json` cannot be read (LZ-054)."""


class KeyColumnsChanged(TableError):
    """A later `_metadata.json` names other key columns (LZ-038)."""


class DetectionChanged(TableError):
    """A later `_metadata.json` names another `fileDetectionStrategy` (LZ-047)."""


class KeyColumnMissing(TableError):
    """A name in `keyColumns` matches no column of the file (LZ-046)."""


class EventTableError(TableError):
    """A table that is built from events cannot continue, for example because its key changed
    (ST-263)."""


class EventStateDamaged(EventTableError):
    """What is remembered beside a table that is built from events is missing or unreadable."""


class EventKeyRefused(EventTableError):
    """The key of a table that would be built from events has a type by which no row can be found
    (ST-243); the events are dead letters with this reason."""


class KeyColumnUnknown(EventTableError):
    """No event of a new table has contained the type of its key columns yet."""


class UnknownMarker(TableError):
    """A row marker is not 0, 1, 2 or 4 (LZ-085)."""


class NullKey(TableError):
    """A key is NULL, and the project does not allow it (LZ-257)."""


class MisspeltMarker(TableError):
    """The name of a column differs from `__rowMarker__` in case only (LZ-086)."""


class KeyedChangeWithoutKey(TableError):
    """An update, delete or upsert for a table without key columns (LZ-043)."""


class IncompleteRow(TableError):
    """An update does not contain all columns of the table (LZ-100)."""


class BatchPending(TableError):
    """An earlier batch of the table was started but is not published yet (LZ-121)."""


class SchemaMergeFailure(TableError):
    """A file has another type for an existing column (LZ-221, LZ-224)."""

    code = "SchemaMergeFailure"


class UnsupportedColumn(TableError):
    """The name or type of a column is not supported in tables (LZ-155, LZ-156, CF-092)."""


class NotLogged(TableError):
    """Changes of the table, or of a partition of it, are not in the log of the source."""


class PublishedOtherwise(TableError):
    """A publication carries other rows or columns of the table than the project selects."""


class UnsupportedTable(TableError):
    """The table needs a feature that this release does not support."""


class MissingBaseRow(TableError):
    """A value that the source did not send cannot be taken from an existing row."""


class RowNotFound(TableError):
    """A row was deleted in the source, but a table without a key has no such row."""

    @classmethod
    def of(cls, table: str, file: str) -> Self:
        return cls(
            "a row was deleted or changed in the source, but the table has no row with these "
            "values in all columns",
            table=table,
            file=file,
            hint=f"Run `mirrorlake reset {table}` to reload the table.",
        )


class UncapturedChanges(TableError):
    """Rows of an append-only table were updated or deleted in the source."""


class BadValue(TableError):
    """A value does not fit its column."""


class ConstraintViolated(TableError):
    """A row violates a constraint of the Delta table: NOT NULL, CHECK or a length."""


class WorkerLost(TableError):
    """The process of a batch of the table was killed, or crashed, at every attempt."""


class TableRestored(TableError):
    """The Delta table was restored to an older version by another program."""


class ProgressLost(TableError):
    """It is unknown which files a table in timestamp mode has applied (LZ-127)."""


class ForeignTable(TableError):
    """The Delta table is not, or no longer, the mirror of this folder."""


class NestedTables(TableError):
    """The path of one table lies inside the path of another."""


class TooManyTables(TableError):
    """The project has more tables than it allows (LZ-278)."""


class NameTaken(TableError):
    """A published name has other content (LZ-137)."""


class SelectionChanged(TableError):
    """The columns or rows selected for a table differ from those it was loaded with."""

    selection: Mapping[str, Any] | None = None
    """What is selected; None where the table was not captured for another reason."""

    @classmethod
    def of(cls, what: str, selection: Mapping[str, Any], *, table: str, hint: str) -> Self:
        """Once something else is selected, the table is tried again."""
        error = cls(what, table=table, hint=hint)
        error.selection = dict(selection)
        return error


class NotSelected(TableError):
    """A landed table is no longer selected, or no longer in the source."""


class TableDropped(TableError):
    """The table was dropped in the source: this is no error."""


class TableAltered(TableError):
    """The table was altered in the source in a way that the log does not describe."""

    code = "table_altered"


class TableTruncated(TableError):
    """The table was truncated in the source, which event files cannot express."""

    code = "table_truncated"


class TableRecreated(TableError):
    """The table was dropped in the source and created again under the same name."""
