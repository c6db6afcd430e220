"""Errors of one table that may be temporary: they are retried, at increasing intervals."""

from __future__ import annotations

from typing import ClassVar

from mirrorlake.errors import BadFile, ForeignTable, InternalError, StorageUnavailable, TableError


class TableFault(TableError):
    """An internal error while processing one table; nothing was written, others continue."""

    code: ClassVar[str] = InternalError.code


class UnreadableFile(BadFile):
    """A task could not open a landed file that existed when the batch was planned."""

    code: ClassVar[str] = BadFile.code


class UnreachableTable(ForeignTable):
    """The storage of a table does not answer or denies access; nothing was written."""

    code: ClassVar[str] = StorageUnavailable.code
