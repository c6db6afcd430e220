"""Which tables can be read in the order of their keys, and which are divided by hashes instead."""

from __future__ import annotations

from mirrorlake.errors import CannotBackfill
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.keys import is_ordered
from mirrorlake.sources.table import SourceTable

LARGEST_WHOLE = 512 << 20
"""Bytes in memory of a table without ranges that is read as one piece, and of a piece of a larger
one."""

LARGEST_TABLE = 64 << 30
"""Bytes of a table without ranges up to which it is read again: there are so many hashes."""


def has_ranges(table: SourceTable) -> bool:
    """Whether a table has ranges of its key: not one without a key, or with a floating point number
    or an array in it, of which the order is another one here. Such a table is divided by hashes,
    of its key or else of its rows."""
    return bool(table.key) and not _without_order(table)


def check_readable(table: SourceTable) -> None:
    """Whether a table can be read again. Raises CannotBackfill."""
    if not has_ranges(table) and table.size > LARGEST_TABLE:
        raise too_large(table)


def unreadable(table: SourceTable) -> str:
    """Why a table cannot be read again; empty when it can."""
    try:
        check_readable(table)
    except CannotBackfill as error:
        return error.what
    return ""


def no_ranges(table: SourceTable) -> str:
    """Why a table has no ranges of its key."""
    if columns := _without_order(table):
        return f"the key column {columns[0]} has no order that is the same here"
    return "the table has no key"


def _without_order(table: SourceTable) -> list[str]:
    """The key columns whose values have no order, or another one than those of the mirror."""
    return [
        name
        for name in table.key
        if not is_ordered(arrow_type(table.schema[name].type))
        or not getattr(table.source_types.get(name), "is_ordered", True)
    ]


def too_large(table: SourceTable) -> CannotBackfill:
    """The error of a table without ranges that is not read again."""
    return CannotBackfill(
        f"{no_ranges(table)}, and it is too large to be read at once",
        table=str(table.table),
        hint=f"`mirrorlake reset {table.table}` loads it anew.",
    )


def same_hash(table: SourceTable) -> CannotBackfill:
    """The error of a table without ranges of which a piece does not fit into memory."""
    return CannotBackfill(
        f"{no_ranges(table)}, and more than {LARGEST_WHOLE >> 20} MiB of rows that are equal, or "
        "have the same hash",
        table=str(table.table),
        hint=f"`mirrorlake reset {table.table}` loads it anew.",
    )
