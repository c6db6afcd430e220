"""The status files below `Files/Monitoring`, in the shapes of section 16 of the specification."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mirrorlake import root
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

REPLICATOR = f"{root.MONITORING}/replicator.json"
TABLES = f"{root.MONITORING}/tables.json"
UNKNOWN_TIME = "0001-01-01T00:00:00"
"""What stands where a time is not known (LZ-310)."""


def write_replicator(
    store: Store, status: str, now: datetime, code: str = "", message: str = ""
) -> None:
    """The first shape: how the mirror stands, and when it last said so (LZ-307, LZ-311). code,
    message: what is wrong with all of it."""
    content = {
        "status": status,
        "errorCode": code,
        "errorMessage": message,
        "lastHeartbeatTime": format_time(now),
    }
    store.replace(REPLICATOR, json.dumps(content).encode())


def tables(found: Sequence[TableStatus], mirror: str) -> bytes:
    """The second shape, one entry per table (LZ-308). mirror: its id."""
    entries = [_entry(table, mirror) for table in found]
    return json.dumps({"tables": entries}, ensure_ascii=False, indent=1).encode()


def _entry(table: TableStatus, mirror: str) -> dict[str, Any]:
    name = TableId.parse(table.table)
    error = table.error or {}
    return {
        # Of the folder, not of what lies in it: a table that begins anew keeps its id.
        "id": str(uuid.uuid5(uuid.UUID(mirror), table.folder or table.table)),
        "status": str(table.status),
        "errorCode": str(error.get("code") or ""),
        "errorMessage": str(error.get("message") or ""),
        "normalizedTableName": table.table,
        "sourceTableName": name.name,
        "sourceSchemaName": name.schema,
        "sourceObjectType": "Table",
        "metrics": {
            "processedRowCount": table.total.rows,
            "processedByte": table.total.bytes,
            "lastSourceCommitTimeUtc": _time(table.source_time),
            "lastSyncTimeUtc": _time(table.synced),
        },
    }


def _time(time: datetime | None) -> str:
    return format_time(time) if time else UNKNOWN_TIME
