"""Looks at the tables of a source for what would be lost silently: such a table is read again, or
stopped."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog

from mirrorlake.capture import schema_policy
from mirrorlake.capture.backfill.backfills import Backfills
from mirrorlake.capture.backfill.unloaded import Unloaded
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.capture.watch import append_only, unpublished, without_effect
from mirrorlake.capture.watch.findings import FINDING, Findings
from mirrorlake.capture.watch.ignored import Ignored
from mirrorlake.errors import SourceGap, TableAltered, TableError
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import (
    ALTERED,
    DIFFERS,
    CheckResult,
    CheckSeverity,
    Inclusion,
    Source,
)
from mirrorlake.sources.chunk import SchemaChange, TableDiffers, Truncation
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()


class TableWatch:
    """Watches the tables of one stream. Not for several threads.

    streamed: returns the tables that are not stopped; stop: stops one of them; lost: one that a
    look has found to be lost, while nothing is read from the stream.
    """

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        settings: CaptureSettings,
        clock: Clock,
        backfills: Backfills,
        unloaded: Unloaded,
        streamed: Callable[[], Sequence[SourceTable]],
        stop: Callable[[TableId, TableError], None],
        lost: Callable[[TableId, TableError], None],
    ) -> None:
        self._source, self._records, self._sinks = source, records, sinks
        self._settings, self._clock = settings, clock
        self._backfills, self._unloaded = backfills, unloaded
        self._streamed, self._stop, self._lost = streamed, stop, lost
        self._findings = Findings(records, clock)
        self.ignored = Ignored(records, clock, settings.ignores)

    @property
    def awaits_log(self) -> bool:
        """Whether the log has more of what the last look has found than the stream has read."""
        return self._findings.awaits_log

    @property
    def differing(self) -> Collection[TableId]:
        """The tables that differ by a change that is ignored."""
        return self.ignored.tables

    def refusal(self, change: SchemaChange | Truncation) -> TableError | None:
        """Why a table cannot go on after its columns, or its key, have changed, or it was emptied.
        What is ignored is noted."""
        is_corrected = all(sink.is_corrected for sink in self._sinks)
        if isinstance(change, Truncation):
            return self._truncation_refusal(change.table.table)
        unsupported = "" if is_corrected else "the event files of a table have one key"
        return schema_policy.refusal(self._settings, change, unsupported)

    def _truncation_refusal(self, table: TableId) -> TableError | None:
        error = schema_policy.truncation_refusal(
            self._settings, str(table), is_markable=self._is_markable
        )
        if error is None and SchemaChangeKind.TABLE_TRUNCATED in self._settings.ignores:
            what = "the table was truncated in the source, and its rows stay"
            self.ignored.note(table, TableAltered(what, table=str(table), hint=""))
        return error

    @property
    def _is_markable(self) -> bool:
        """Whether tables can go on that differ from their source."""
        return not self._backfills.refused and all(sink.is_corrected for sink in self._sinks)

    def differs(self, part: TableDiffers) -> None:
        """Backfill a table that differs, where that is configured and possible; else stop it. Or
        note it, where that is ignored."""
        if part.table not in {table.table for table in self._streamed()}:
            return
        # As it is now: it may have got a key just before.
        table = next((one for one in self._source.discover() if one.table == part.table), None)
        if table is not None:
            self._treat_differing(table, part)

    def _treat_differing(self, table: SourceTable, part: TableDiffers) -> None:
        """Note that the table differs, stop it, or have it read again. table: as it is now."""
        if part.kinds <= self._settings.ignores & schema_policy.MARKED and self._is_markable:
            self.ignored.note(part.table, part.error)
            return
        is_retyped = part.kinds <= schema_policy.TYPES - self._settings.stops_at
        if is_retyped and not any(sink.is_corrected for sink in self._sinks):
            # Event files keep each value with the type that it had.
            log.warning(FINDING, check="columns", message=part.error.what, table=str(part.table))
            return
        is_corrected = is_retyped or all(sink.is_corrected for sink in self._sinks)
        error = part.error if self._backfills.refused or not is_corrected else None
        if error := error or schema_policy.refusal_to_read(self._settings, table, part):
            self._stop(part.table, error)
        else:
            self._backfills.require(table.table, part.error, part.saved, part.within)

    def look_at_tables(self, tables: Sequence[SourceTable]) -> None:
        """Stop tables that are selected otherwise; treat append-only tables that differ; note what
        changed without effect."""
        self.ignored.look()
        names = {table.table for table in self._streamed()}
        for error in (
            *members.selected_otherwise(self._streamed(), tables),
            *schema_policy.renamed(self._settings, names, tables),
        ):
            self._stop(TableId.parse(error.table), error)
        for part in without_effect.retexted(self._records, tables):
            self.differs(part)
        without_effect.look(self._records, tables, self._clock.now())
        streamed = {table.table for table in self._streamed()}
        complete = streamed - {*self._backfills.differing}
        differing = append_only.look(self._records, tables, self._clock.now(), complete)
        append_only.treat(
            self._records,
            [table for table in differing if table.table in streamed],
            self._settings.uncaptured,
            self._unloaded.tables,
            self._clock.now(),
            self._stop,
            self._backfills.require,
            self._backfills.refused,
        )

    def look_at_source(self, tables: Sequence[SourceTable]) -> SourceGap | None:
        """Treat what the source finds now. Returns what keeps the whole stream from going on.

        tables: those of the source.
        """
        for finding in self._findings.told(self._look_and_add_again(tables)):
            is_error = finding.severity is CheckSeverity.ERROR
            if finding.table is None:
                if is_error:
                    return SourceGap(finding.message, where="the source", hint=finding.remedy)
                continue
            name = str(finding.table)
            if finding.check == DIFFERS and finding.kind:
                error = TableAltered(finding.message, table=name, hint=finding.remedy)
                kinds = frozenset({finding.kind})
                self.differs(TableDiffers(finding.table, kinds, error, (), finding.within))
            if is_error:
                as_what = TableAltered if finding.check == ALTERED else TableError
                self._lost(finding.table, as_what(finding.message, table=name, hint=finding.remedy))
        return None

    def _look_and_add_again(self, tables: Sequence[SourceTable]) -> Sequence[CheckResult]:
        """Add tables again that the source has ceased to stream, and have them read again. Returns
        what the source finds then. tables: those of the source."""
        found, streamed = self._source.watch(self._streamed()), self._streamed()
        if self._backfills.refused or not all(sink.is_corrected for sink in self._sinks):
            return list(unpublished.without_repair(found))
        again = unpublished.find(found, streamed, tables, self._settings)
        is_ignored = SchemaChangeKind.PUBLICATION_CHANGED in self._settings.ignores
        require = self.ignored.note if is_ignored else self._backfills.require
        tried = unpublished.include(self._source.objects, again, require)
        later = {Inclusion.LOCKED, Inclusion.AWAITED}
        waiting = {table for table, outcome in tried.items() if outcome in later}
        self._backfills.hold(waiting)
        if Inclusion.ADDED in tried.values():
            self._records.reached(CrashPoint.PUBLICATION_JOINED)
            # What differs is told once.
            told = [one for one in found if one.severity is not CheckSeverity.ERROR]
            found = [*told, *self._source.watch(streamed)]
        return list(unpublished.waiting(found, waiting))
