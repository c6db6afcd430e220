"""Which tables are compared with the source after changes were lost.

A backfill reads them again while changes flow, and what differs becomes changes in their feeds. A
table that cannot be read by ranges of its key is loaded again, with a new feed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import replaced
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.ordered import unreadable
from mirrorlake.sources.table import SourceTable


@dataclass(frozen=True, slots=True)
class Compared:
    """tables: those that are read again; loaded: those that are loaded again, with the reason;
    stopped: those that stay stopped. A table that was created again in the source is in none of
    these: capture loads it as a new one; and none whose rows were never loaded, unless all of them
    are being read: what was read has to be read again."""

    tables: Sequence[TableId] = ()
    loaded: Sequence[tuple[TableId, str]] = ()
    stopped: Sequence[str] = ()

    @classmethod
    def of(
        cls, captured: Sequence[SourceTable], records: Records, sinks: Sequence[Sink]
    ) -> Compared:
        """Of the captured tables those that are landed."""
        stopped = records.stopped()
        unloaded = records.unloaded() - BackfillRecords(records).being_read()
        identities = [sink.identities() for sink in sinks]
        held = [
            table
            for table in captured
            if str(table.table) not in stopped
            and str(table.table) not in unloaded
            and any(sink.holds(table.table) for sink in sinks)
            and all(ids.get(table.table, table.identity) == table.identity for ids in identities)
        ]
        reasons = {table.table: reason for table in held if (reason := unreadable(table))}
        tables = [table.table for table in held if table.table not in reasons]
        return cls(tables, sorted(reasons.items()), sorted(stopped))

    def request(
        self,
        reason: str,
        records: Records,
        sinks: Sequence[Sink],
        clock: Clock,
        reached: CrashHook,
    ) -> None:
        """Request the backfills and loads. May be repeated. reason: why the tables differ."""
        jobs = BackfillRecords(records)
        for table in self.tables:
            jobs.require(str(table), reason, clock.now())
        reached(CrashPoint.REPAIR_REQUESTED)
        for table, why in self.loaded:
            what = f"{reason}; the table is loaded again, because {why}"
            replaced.begin_anew(table, what, records, sinks, reached)
