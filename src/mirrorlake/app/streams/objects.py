"""The objects of a stream, as they are found in its source, its landing zone and its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.control.reports import Document, error_document
from mirrorlake.control.states import BackfillState, BackfillTrigger
from mirrorlake.errors import TableError
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId

Known = Mapping[TableId, TableError | None]
"""The tables that were found in the source, with why one cannot be captured."""


def objects_of(
    status: Status, known: Known, old: Mapping[str, Document], now: datetime
) -> list[Document]:
    """Every table, with its errors and its backfill, which is the load of its rows.

    known: empty when nobody asked the source since this process began; old: what was told of an
    object before, by its display name. An error that stays keeps its identifier and time.
    """
    tables = {table.table: table for table in status.tables}
    known = known or {_table(one): None for one in old.values()}
    names = {str(table): table for table in known}
    found = []
    for name in sorted(tables.keys() | names.keys()):
        table = names.get(name) or TableId.parse(name)
        before = old.get(name, {}).get("errors", [])
        refused = known.get(table)
        found.append(_object(table, tables.get(name), refused, before, now))
    return found


def _table(document: Document) -> TableId:
    found = document["sourceObject"]["postgresqlIdentifier"]
    return TableId(found["schema"], found["table"])


def _object(
    table: TableId,
    status: TableStatus | None,
    refused: TableError | None,
    before: Collection[Document],
    now: datetime,
) -> Document:
    errors = []
    facts = (status.error if status else None) or (refused.facts() if refused else None)
    if facts:
        details = {k: str(facts[k]) for k in ("hint", "file", "row", "column") if facts.get(k)}
        error = error_document(str(facts["code"]), str(facts["message"]), now, details)
        same = [one for one in before if one["message"] == error["message"]]
        errors = same[:1] or [error]
    state = _backfill(status, refused)
    return {
        "displayName": str(table),
        "sourceObject": {"postgresqlIdentifier": {"schema": table.schema, "table": table.name}},
        "errors": errors,
        "backfillJob": {
            "state": state.name,
            "trigger": BackfillTrigger.AUTOMATIC.name,
            "errors": errors if state is BackfillState.FAILED else [],
        },
    }


def _backfill(status: TableStatus | None, refused: TableError | None) -> BackfillState:
    """Of the load of a table (ST-284 to ST-288)."""
    if status is None:
        return BackfillState.UNSUPPORTED if refused else BackfillState.PENDING
    if status.state is TableState.REPLICATING:
        return BackfillState.COMPLETED
    if status.state is TableState.FAILED:
        return BackfillState.COMPLETED if status.version is not None else BackfillState.FAILED
    return BackfillState.ACTIVE
