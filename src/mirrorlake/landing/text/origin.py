"""The file that a text comes from, for its errors."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.errors import BadFile, BadValue

RESEND = "Delete the file and upload a valid one under the same name."
SHOWN = 200
"""Maximum number of characters of a value in an error message."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A landed file of a table."""

    table: str
    file: str

    def bad_file(self, what: str, row: int | None = None, hint: str = RESEND) -> BadFile:
        """row: the data row, from 1; 0 is the header."""
        return BadFile(what, table=self.table, file=self.file, row=row, hint=hint)

    def bad_value(self, what: str, *, row: int, column: str, value: str | None) -> BadValue:
        return BadValue(
            what,
            table=self.table,
            file=self.file,
            row=row,
            column=column,
            value=None if value is None else shown(value),
            hint=RESEND,
        )


def shown(value: str) -> str:
    """A value in an error message: complete if it is short."""
    return value if len(value) <= SHOWN else f"{value[:SHOWN]}…"
