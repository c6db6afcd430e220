"""Counts of applied rows: rows read from files, and rows changed in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from functools import reduce
from operator import add
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Totals:
    """Running totals of a table since its creation (LZ-266).

    insert, update, delete: rows changed in the table; duplicates: rows of a key beyond its first
    (LZ-088, LZ-089); bytes: size of the applied files as they were landed.
    """

    insert: int = 0
    update: int = 0
    delete: int = 0
    duplicates: int = 0
    bytes: int = 0

    @property
    def rows(self) -> int:
        """`processedRows`: applied inserts, updates and deletes, not the rows in the table."""
        return self.insert + self.update + self.delete

    def __add__(self, other: Totals) -> Totals:
        return Totals(*map(add, astuple(self), astuple(other)))

    def as_record(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Self:
        """Missing members are 0. Raises TypeError, ValueError."""
        return cls(**{name: int(record.get(name, 0)) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class FileRows:
    """The number of rows of files first..last, by marker.

    rows: inserts, updates, deletes, upserts; None if the files were not read because a later file
    of the same batch truncates the table.
    """

    first: int
    last: int
    rows: tuple[int, int, int, int] | None

    def joined(self, later: FileRows) -> FileRows:
        rows = None
        if self.rows is not None and later.rows is not None:
            a, b = self.rows, later.rows
            rows = (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3])
        return FileRows(self.first, later.last, rows)

    def as_record(self) -> list[int]:
        return [self.first, self.last, *(self.rows or ())]

    @classmethod
    def parse(cls, record: Sequence[Any]) -> Self:
        """Raises ValueError, TypeError."""
        first, last, *rows = (int(number) for number in record)
        if not rows:
            return cls(first, last, None)
        insert, update, delete, upsert = rows
        return cls(first, last, (insert, update, delete, upsert))


def in_runs(files: Sequence[FileRows], most: int) -> list[FileRows]:
    """Join consecutive files into at most `most` runs of equal length, so that the metadata of a
    commit does not grow with the number of its files.

    Files that were not read come first and form a run of their own.
    """
    read = [file for file in files if file.rows is not None]
    unread = files[: len(files) - len(read)]
    length = -(-len(read) // most) if read else 1
    runs = [unread] if unread else []
    runs += [read[at : at + length] for at in range(0, len(read), length)]
    return [reduce(FileRows.joined, run) for run in runs]
