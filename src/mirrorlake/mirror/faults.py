"""Errors of one table that time may mend: they are tried again, at growing distances."""

from __future__ import annotations

from typing import ClassVar

from mirrorlake.errors import BadFile, ForeignTable, InternalError, StorageUnavailable, TableError


class TableFault(TableError):
    """A fault of ours in the work on one table; nothing was written, the others go on."""

    code: ClassVar[str] = InternalError.code


class UnreadableFile(BadFile):
    """A landed file was there when it was planned for, and could not be opened by its task."""

    code: ClassVar[str] = BadFile.code


class UnreachableTable(ForeignTable):
    """The storage of a table does not answer now, or does not let us in; nothing was written."""

    code: ClassVar[str] = StorageUnavailable.code
