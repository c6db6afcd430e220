"""Which tables a stream carries: those that are selected and can be captured.

Every other one is stopped, alone, with its reason in `stopped.json`. Invariant: a table that was
landed and then not streamed for a while is never streamed on, because what happened to it
meanwhile was acknowledged without it.
"""

from __future__ import annotations

import structlog

from mirrorlake.capture import table_positions
from mirrorlake.capture.record import Records
from mirrorlake.errors import NotSelected, SelectionChanged, TableError, UnsupportedColumn
from mirrorlake.landing import publish
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_STOPPED = "table_stopped"


def captured(source: Source, records: Records) -> list[SourceTable]:
    """The tables to capture, by name. Raises PrerequisiteMissing when none is selected."""
    selected = source.discover()
    for table in selected:
        _admit(table, records)
    _leave_out({table.table for table in selected}, records)
    return [table for table in selected if table.refused is None]


def stop(records: Records, error: TableError) -> None:
    """A table is no longer captured, until a person resets it."""
    records.stop(error.table, error.facts())
    log.error(TABLE_STOPPED, table=error.table, code=error.code, hint=error.hint)


def is_new(table: TableId, folder: str, records: Records) -> bool:
    """Whether nothing of the table was ever landed."""
    if str(table) in records.truncated():
        return False
    return publish.newest_file(records.store, folder) is None


def _admit(table: SourceTable, records: Records) -> None:
    name = str(table.table)
    code = records.stopped().get(name, {}).get("code")
    if table.refused is not None:
        if code is None:
            stop(records, table.refused)
    elif code == NotSelected.code:
        stop(
            records,
            SelectionChanged(
                "it was not captured for a while, and what happened to it meanwhile is not landed",
                table=name,
                hint=f"Load it anew with `mirrorlake reset {name}`.",
            ),
        )
    elif code == UnsupportedColumn.code:
        folder = table_positions.folders(records.store, records.zone, [table])[table.table]
        if is_new(table.table, folder, records):  # nothing of it is lost: it never began
            records.forget(name)


def _leave_out(selected: set[TableId], records: Records) -> None:
    """Take note of tables that were landed and are not selected, or not there, any more."""
    stopped = records.stopped()
    for table, folder in table_positions.known(records.store, records.zone).items():
        name = str(table)
        if table in selected or name in stopped or is_new(table, folder, records):
            continue
        stop(
            records,
            NotSelected(
                "it is no longer selected, or no longer in the source: its changes are not landed",
                table=name,
                hint=f"To mirror it again, select it and run `mirrorlake reset {name}`.",
            ),
        )
