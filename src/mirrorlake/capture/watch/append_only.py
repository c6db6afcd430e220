"""Whether append-only tables still have the rows of their source.

Their updates and deletions are not captured. The source counts them, which shows whether there
were any since a table was loaded, and so whether the mirror differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import structlog

from mirrorlake.capture.record import AppendOnly, Records
from mirrorlake.errors import UncapturedChanges
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_DIFFERS = "table_differs"


def begin(records: Records, tables: Sequence[SourceTable]) -> None:
    """Note tables that are about to be loaded, with what the source has counted before."""
    found = {
        str(table.table): AppendOnly(table.append_only, table.counted)
        for table in tables
        if table.append_only
    }
    if found:
        records.write_append_only(records.append_only() | found)


def look(records: Records, tables: Sequence[SourceTable], now: datetime) -> Iterator[str]:
    """Note what the source has counted since. Yields the tables that differ, by name."""
    known = records.append_only()
    found = {
        name: known.get(name, AppendOnly(table.append_only, table.counted)).after(
            table.append_only, table.counted, now
        )
        for table in tables
        for name in [str(table.table)]
        if table.append_only
    }
    if found != known:
        records.write_append_only(found)
    for name, counts in found.items():
        if not counts.differs:
            continue
        if name not in known or not known[name].differs:
            log.warning(TABLE_DIFFERS, table=name, updates=counts.updates, deletes=counts.deletes)
        yield name


def error_of(table: str, found: AppendOnly) -> UncapturedChanges:
    """Why a table stops, where the project wants it to."""
    return UncapturedChanges(
        f"the table is append-only, and {found}",
        table=table,
        hint="mirror.uncaptured_changes says stop. Give the table a primary key or replica "
        f"identity full, and run `mirrorlake reset {table}` to reload it.",
    )
