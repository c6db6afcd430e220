"""Whether append-only tables still have the rows of their source.

Their updates and deletions are not captured. The source counts them, which shows whether there
were any since a table was loaded, and so whether the mirror differs. Such a table can be read
again, in this order:

    counters read → backfill requested → request noted → begin noted → snapshot taken → rows landed

What was counted before the begin is in the rows, also when somebody else has requested them. A
change that is counted later than it is committed has the table read once more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import structlog

from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState, BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.watch.missed_changes import AppendOnly
from mirrorlake.errors import TableError, UncapturedChanges
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.sources.ordered import unreadable
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_DIFFERS = "table_differs"
READ_LATER = "table_read_again_later"


class UncapturedPolicy(StrEnum):
    """What happens to an append-only table of which rows were updated or deleted."""

    MARK = "mark"  # it goes on, and its status says so
    BACKFILL = "backfill"  # it is read again
    STOP = "stop"


def begin(records: Records, tables: Sequence[SourceTable]) -> None:
    """Note tables that are about to be loaded, with what the source has counted before."""
    found = {
        str(table.table): AppendOnly(table.append_only, table.counted)
        for table in tables
        if table.append_only
    }
    if found:
        records.write_append_only(records.append_only() | found)


def begins(records: Records, job: BackfillJob) -> None:
    """Note that a backfill begins, before anything is read for it."""
    found = records.append_only()
    if job.request.keys is None and (counts := found.get(job.request.table)):
        records.write_append_only(found | {job.request.table: counts.begins(job.request.id)})


def ends(records: Records, table: SourceTable) -> None:
    """Forget what a table missed without a key, now that it has one and was read again: a look from
    before may have counted it since."""
    found = records.append_only()
    if not table.append_only and found.pop(str(table.table), None) is not None:
        records.write_append_only(found)


def look(
    records: Records,
    tables: Sequence[SourceTable],
    now: datetime,
    complete: Collection[TableId] = (),
) -> list[SourceTable]:
    """Note what the source has counted since. Returns the tables that differ. complete: tables of
    which no backfill is under way that was requested because they differ."""
    known = records.append_only()
    jobs = BackfillRecords(records).jobs() if any(one.begun for one in known.values()) else []
    ended = {j.request.id: j for j in jobs if j.state is BackfillJobState.COMPLETED}
    found = {
        name: _read(known.get(name), table, complete, ended).after(
            table.append_only, table.counted, now
        )
        for table in tables
        for name in [str(table.table)]
        if table.append_only
    }
    if found != known:
        records.write_append_only(found)
    differing = []
    for table in tables:
        counts, before = found.get(str(table.table)), known.get(str(table.table))
        if counts is None or not counts.differs:
            continue
        if before is None or not before.differs:
            updates, deletes = counts.missed
            log.warning(TABLE_DIFFERS, table=str(table.table), updates=updates, deletes=deletes)
        differing.append(table)
    return differing


def _read(
    known: AppendOnly | None,
    table: SourceTable,
    complete: Collection[TableId],
    ended: Mapping[str, BackfillJob],
) -> AppendOnly:
    """What was known, now that backfills have ended."""
    found = known or AppendOnly(table.append_only, table.counted)
    if found.requested is not None and table.table in complete:
        found = found.no_longer_requested()
    if job := ended.get(found.begun):
        found = found.read_again(job.updated, job.seconds)
    return found


def treat(
    records: Records,
    differing: Sequence[SourceTable],
    policy: UncapturedPolicy,
    unloaded: Collection[TableId],
    now: datetime,
    lost: Callable[[TableId, TableError], None],
    require: Callable[[TableId, TableError], None],
    refused: str,
) -> None:
    """Stop tables that differ, or have them read again, as the policy says; one that cannot be read
    again stops. One that was read shortly before waits. unloaded: tables whose rows are not wanted,
    and so not read; require: has a table read; refused: why no table can be, empty when some
    can."""
    if policy is UncapturedPolicy.MARK:
        return
    counts = records.append_only()
    for table in differing:
        name = str(table.table)
        found = counts[name]
        if policy is UncapturedPolicy.STOP:
            lost(table.table, _error_of(name, found, "stop"))
        elif found.requested is not None or table.table in unloaded:
            continue
        elif then := found.not_before(now):
            if found.put_off != (until := format_time(then)):
                log.info(READ_LATER, table=name, at=until, pause_seconds=round(found.pause, 3))
                counts[name] = found.waits(until)
                records.write_append_only(counts)
        else:
            if why := refused or unreadable(table):
                lost(table.table, _error_of(name, found, f"backfill, which is not possible: {why}"))
                continue
            require(table.table, _error_of(name, found, "backfill"))
            counts[name] = found.being_read()
            records.write_append_only(counts)


def _error_of(table: str, found: AppendOnly, says: str) -> UncapturedChanges:
    return UncapturedChanges(
        f"the table is append-only, and {found}",
        table=table,
        hint=f"mirror.uncaptured_changes says {says}. Give the table a primary key or replica "
        f"identity full, and run `mirrorlake reset {table}` to reload it.",
    )
