"""The operation log: what was done with which table, for whoever watches (LZ-312, LZ-313).

JSON lines in numbered files below `Files/Monitoring/MirroredDatabaseTableExecution`. The newest is
replaced whole, so that no reader sees half a line; it is closed at a size, and the oldest go.
The truth stands in the commits: a process that is killed takes its last lines with it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from mirrorlake import root
from mirrorlake.errors import InternalError, TableError, Unavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.storage.store import Store

FOLDER = f"{root.MONITORING}/MirroredDatabaseTableExecution"
FILE_BYTES = 256 * 1024
MOST_RECORDS = 20
"""Files, the newest included: 5 MiB in all."""
MOST_NEW = 10_000
"""Lines that wait to be written; of more, which the files would hardly hold, the oldest go."""

NO_WORKSPACE = "00000000-0000-0000-0000-000000000000"
_NAME = re.compile(r"(\d{20})\.jsonl")


class LoggedOperation(StrEnum):
    """In the words of LZ-312."""

    ADD_TABLE = "AddTable"
    REPLICATING_SCHEMA = "ReplicatingSchema"
    START_SNAPSHOTTING = "StartSnapshotting"
    SNAPSHOTTING = "Snapshotting"
    START_REPLICATING = "StartReplicating"
    REPLICATING = "Replicating"
    START_RESEEDING = "StartReseeding"
    FAIL_TABLE = "FailTable"
    REMOVE_TABLE = "RemoveTable"
    STOP_TABLE = "StopTable"


@dataclass(frozen=True, slots=True)
class Item:
    """The mirror that is logged. source: its type in the words of a definition (LZ-283)."""

    id: str
    name: str
    source: str = "GenericMirror"


class OperationLog:
    """Collects operations, and writes them when it is asked to. Not for several threads."""

    def __init__(self, store: Store, clock: Clock, item: Item) -> None:
        self._store, self._clock, self._item = store, clock, item
        self._new: deque[bytes] = deque(maxlen=MOST_NEW)
        self._open: tuple[int, bytes] | None = None

    def add(
        self,
        operation: LoggedOperation,
        table: TableId,
        *,
        begun: datetime | None = None,
        rows: int = 0,
        size: int = 0,
        latency: float | None = None,
        error: TableError | None = None,
    ) -> None:
        """Note an operation. rows, size: what it processed; latency: seconds from the source's
        commit to ours."""
        now = self._clock.now()
        record = {
            "Timestamp": format_time(now),
            "OperationName": str(operation),
            "ItemId": self._item.id,
            "ItemKind": "MirroredDatabase",
            "ItemName": self._item.name,
            "WorkspaceId": NO_WORKSPACE,
            "OperationStartTime": format_time(begun or now),
            "OperationEndTime": format_time(now),
            "MirroringSourceType": self._item.source,
            "SourceTableName": table.name,
            "SourceSchemaName": table.schema,
            "ProcessedRows": rows,
            "ProcessedBytes": size,
            "ReplicatorBatchLatency": latency,
            "ErrorType": error_type(error) if error else None,
            "ErrorMessage": _told(error) if error else None,
        }
        self._new.append(json.dumps(record, ensure_ascii=False).encode() + b"\n")

    def flush(self) -> None:
        """Write what was noted since the last time."""
        if not self._new:
            return
        number, content = self._open or self._last()
        for line in self._new:
            if content and len(content) + len(line) > FILE_BYTES:
                self._write(number, content)
                number, content = number + 1, b""
            content += line
        self._write(number, content)
        self._new.clear()  # what could not be written is written again, into the same files
        self._open = number, content
        for old in self._numbers()[:-MOST_RECORDS]:
            self._store.delete(_path(old))

    def _write(self, number: int, content: bytes) -> None:
        self._store.replace(_path(number), content)

    def _last(self) -> tuple[int, bytes]:
        numbers = self._numbers()
        if not numbers:
            return 1, b""
        return numbers[-1], self._store.read(_path(numbers[-1]))

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(file.name) for file in self._store.list(FOLDER).files)
        return sorted(int(match[1]) for match in found if match)


def error_type(error: TableError) -> str:
    """Whose turn it is: a person's, or ours and nobody's (LZ-313)."""
    ours = {InternalError.code, Unavailable.code}
    return "SystemError" if error.code in ours else "UserError"


def _told(error: TableError) -> str:
    """Kind, place and remedy. The sentence itself may quote a value of a row, and is not logged."""
    location = {"file": error.file, "row": error.row, "column": error.column}
    where = ", ".join(f"{name} {fact}" for name, fact in location.items() if fact is not None)
    return f"{error.code}{f' ({where})' if where else ''}. {error.hint}".strip()


def _path(number: int) -> str:
    return f"{FOLDER}/{number:020d}.jsonl"
