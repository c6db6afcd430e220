"""The objects of a stream, as they are found in its source, its landing zone and its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.status.mirror_status import Status
from mirrorlake.app.status.table_status import TableStatus
from mirrorlake.app.stores import store_of
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState
from mirrorlake.capture.events.state import (
    StreamLatencies,
    WrittenEvents,
    delivered,
    latencies,
    written,
)
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import LoadProgress
from mirrorlake.config import Project
from mirrorlake.control.reports import Document, error_document
from mirrorlake.control.states import BackfillState, BackfillTrigger
from mirrorlake.errors import TableError
from mirrorlake.model.state import TableState
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING

Known = Mapping[TableId, TableError | None]
"""The tables that were found in the source, with why one cannot be captured."""


@dataclass(frozen=True, slots=True)
class CaptureSaid:
    """What the capture of a stream said of its tables. jobs: of each table the backfill that was
    asked for last; delivered: tables whose rows are written as events, written: how much of each,
    latencies: of all, waiting: by how many seconds the oldest event that waits was read late;
    loads: how far loads are; unloaded: tables whose rows are not loaded."""

    jobs: Sequence[BackfillJob] = ()
    delivered: Collection[str] = ()
    written: Mapping[str, WrittenEvents] = field(default_factory=dict)
    latencies: StreamLatencies = field(default_factory=StreamLatencies)
    waiting: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[TableId, LoadProgress] = field(default_factory=dict)
    unloaded: Collection[str] = ()

    @property
    def is_busy(self) -> bool:
        """Whether rows of a table are loaded, or will be soon."""
        is_loading = any(not load.done for load in self.loads.values())
        return is_loading or any(not job.state.is_over for job in self.jobs)


def capture_said(project: Project, loads: Mapping[TableId, LoadProgress]) -> CaptureSaid:
    """As it is recorded now. Raises MirrorlakeError, OSError."""
    records = Records(store_of(project), LANDING)
    said = CaptureSaid(
        Mirror(project).backfills(), loads=loads, unloaded=frozenset(records.unloaded())
    )
    if project.lands:
        return said
    waiting: dict[str, float] = {}
    for tables in records.waiting_events().values():
        for table, (committed, read) in tables.items():
            waiting[table] = max(waiting.get(table, 0.0), (read - committed) / 1000)
    return replace(
        said,
        delivered=delivered(records),
        written=written(records),
        latencies=latencies(records),
        waiting=waiting,
    )


def objects_of(
    status: Status,
    known: Known,
    reading: Callable[[], CaptureSaid],
    old: Mapping[str, Document],
    now: datetime,
) -> list[Document]:
    """Every table, with its errors and its backfill: the last that was asked for, or else the load
    of its rows.

    known: empty when nobody asked the source since this process began; reading: reads what capture
    reported; old: what was reported of an object before, by display name. An error that stays
    keeps its identifier and time.
    """
    said = reading()
    asked = {job.request.table: job for job in said.jobs}
    tables = {table.table: table for table in status.tables}
    known = known or {_table(one): None for one in old.values()}
    names = {str(table): table for table in known}
    found = []
    for name in sorted(tables.keys() | names.keys()):
        table = names.get(name) or TableId.parse(name)
        before = old.get(name, {})
        refused = known.get(table)
        one = _object(table, tables.get(name), refused, before.get("errors", []), now)
        if name in asked:
            one["backfillJob"] = backfill_document(asked[name], before, now)
            if name not in said.unloaded:  # else it is the load of its rows
                one["errors"] += _difference(asked[name], before.get("errors", []), now)
        elif name in said.unloaded and refused is None:
            one["backfillJob"] = {
                "state": BackfillState.NOT_STARTED.name,
                "trigger": BackfillTrigger.TRIGGER_UNSPECIFIED.name,
                "errors": [],
            }
        elif name in said.delivered:
            one["backfillJob"]["state"] = BackfillState.COMPLETED.name
        elif one["backfillJob"]["state"] != BackfillState.COMPLETED.name and table in said.loads:
            load = said.loads[table]
            one["backfillJob"]["progress"] = _progress(load.rows, load.expected)
        found.append(one)
    return found


def backfill_document(job: BackfillJob, before: Document, now: datetime) -> Document:
    """A backfill (ST-289): one that somebody asked for, or that is required because the table
    differs. before: the object as it was reported before."""
    required = bool(job.request.reason)
    progress = _progress(job.rows, job.expected) | {"bytes": job.bytes}
    if (left := job.seconds_left()) is not None:
        progress["secondsLeft"] = round(left)
    found: Document = {
        "state": BackfillState[job.state].name,
        "trigger": (BackfillTrigger.AUTOMATIC if required else BackfillTrigger.MANUAL).name,
        "errors": [],
        "progress": progress,
    }
    if job.started:
        found["lastStartTime"] = job.started
    if job.state.is_over:
        found["lastEndTime"] = job.updated
    if job.state in (BackfillJobState.FAILED, BackfillJobState.UNSUPPORTED):
        errors = before.get("backfillJob", {}).get("errors", [])
        same = [one for one in errors if one["message"] == job.message]
        found["errors"] = same[:1] or [
            error_document(f"backfill_{job.state}".lower(), job.message, now)
        ]
    return found


def _difference(job: BackfillJob, before: Collection[Document], now: datetime) -> list[Document]:
    """The error of a table that differs until its backfill is complete: after a recovery the gap
    between the positions (ST-338)."""
    if not job.is_due:
        return []
    message = f"{job.request.reason}. The table differs from its source until it is backfilled"
    same = [one for one in before if one["message"] == message]
    hint = "Wait for the backfill of this object, which has been requested."
    return same[:1] or [error_document("backfill_required", message, now, {"hint": hint})]


def _progress(rows: int, expected: int | None) -> Document:
    return {"rows": rows} | ({} if expected is None else {"expectedRows": expected})


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
