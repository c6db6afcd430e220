"""Which tables can be read in the order of their keys."""

from __future__ import annotations

from mirrorlake.errors import CannotBackfill
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.keys import is_ordered
from mirrorlake.sources.table import SourceTable

LARGEST_WHOLE = 512 << 20
"""Bytes in memory of a table without a key that is read as one piece, and of a piece of a larger
one."""

LARGEST_TABLE = 64 << 30
"""Bytes of a table without a key up to which it is read again: there are so many hashes."""


def check_ordered(table: SourceTable) -> None:
    """Raises CannotBackfill."""
    reset = f"`mirrorlake reset {table.table}` loads it anew."
    if not table.key and table.size > LARGEST_TABLE:
        raise too_large(table)
    for name in table.key:
        if not is_ordered(arrow_type(table.schema[name].type)):
            raise CannotBackfill(
                f"key column {name} is a floating point number",
                table=str(table.table),
                column=name,
                hint=reset,
            )


def unordered(table: SourceTable) -> str:
    """Why a table cannot be read by ranges of its key; empty when it can."""
    try:
        check_ordered(table)
    except CannotBackfill as error:
        return error.what
    return ""


def too_large(table: SourceTable) -> CannotBackfill:
    """The error of a table without a key that is not read again."""
    return CannotBackfill(
        "the table has no key, and is too large to be read at once",
        table=str(table.table),
        hint=f"`mirrorlake reset {table.table}` loads it anew.",
    )


def same_hash(table: SourceTable) -> CannotBackfill:
    """The error of a table without a key of which a piece does not fit into memory."""
    return CannotBackfill(
        f"the table has no key, and more than {LARGEST_WHOLE >> 20} MiB of rows that are equal, or "
        "have the same hash",
        table=str(table.table),
        hint=f"`mirrorlake reset {table.table}` loads it anew.",
    )
