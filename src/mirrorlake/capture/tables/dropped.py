"""Tables that were dropped in the source: what is mirrored of them is deleted, or stays.

In this order, of which each step may be done again:

    noted → what is landed of it recorded as deleted → deleted → what is recorded of it forgotten

The mirror drops its table once the folder is gone that is recorded so (LZ-231). Nothing is noted
unless the source is the one that was captured, and has no table of that identity, under whatever
name, nor another of that name. It is deleted a while later, and only if all that still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta

import structlog

from mirrorlake.capture.backfill.jobs import BackfillRecords
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.capture.tables.replaced import REPLACED
from mirrorlake.capture.watch.ignored import CHANGE_IGNORED
from mirrorlake.errors import NotSelected, TableDropped, TableRecreated
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.model.landed import format_time, parse_time
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

TABLE_DROPPED = "table_dropped"
DROPPED_DELETED = "dropped_table_deleted"
DELETION_FAILED = "dropped_table_not_deleted"

STAYS = (
    "the table was dropped in the source, and stays as it was captured last: changes shortly "
    "before that may be missing; mirror.schema_change ignored it"
)
ENDED = "the table was dropped in the source; what is landed of it will be deleted"
WRITTEN = "the table was dropped in the source; its event files stay"

STAYING = "stays"
"""Of a table that was dropped: the project ignored that, and nothing of it is deleted, also when
the project ignores it no more."""


_RESET = "`mirrorlake reset {table}` deletes what is mirrored of it."


class DroppedTables:
    """Those of one stream. Nothing of them is captured any more; they are recorded with those that
    are stopped, and are no error. Not for several threads.

    guard: raises when this process may no longer write.
    """

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        settings: CaptureSettings,
        clock: Clock,
        guard: Callable[[], None],
        reached: CrashHook,
    ) -> None:
        self._source, self._records, self._sinks = source, records, sinks
        self._clock, self._guard, self._reached = clock, guard, reached
        self._after = timedelta(seconds=settings.drop_after_seconds)
        self._is_error = SchemaChangeKind.TABLE_DROPPED in settings.stops_at
        self._is_ignored = SchemaChangeKind.TABLE_DROPPED in settings.ignores
        self._begins_anew = SchemaChangeKind.TABLE_RECREATED not in settings.stops_at

    def look(self, selected: Sequence[SourceTable], written: Collection[TableId]) -> None:
        """Note the tables that a sink holds and that are gone, and delete those that were noted a
        while ago. selected: those that are there; written: those that a writer is open for. What
        was noted is an error again when the project stops at it, and kept once it ignores it."""
        if self._is_error:
            for name in self._records.dropped():
                self._records.go_on(name)
            return
        stopped = self._records.stopped()
        left = {table.table for table in selected}
        self.note(
            table
            for table in {table for sink in self._sinks for table in sink.tables()} - left
            if not (found := stopped.get(str(table))) or (self._is_ignored and _is_left_out(found))
        )
        if self._is_ignored:
            self._let_stay()
        else:
            self._delete(written)

    def came_back(self, selected: Sequence[SourceTable]) -> None:
        """Stop tables that were created again and are not loaded anew. selected: those that are
        there."""
        noted = self._records.dropped()
        for name in [str(table.table) for table in selected if table.refused is None]:
            if name in noted and not (noted[name].get(REPLACED) and self._begins_anew):
                what = "the table was dropped and created again in the source"
                hint = f"Run `mirrorlake reset {name}` to reload it."
                members.stop(self._records, TableRecreated(what, table=name, hint=hint))

    def among(self, tables: Iterable[TableId]) -> set[TableId]:
        """Those of the tables that certainly do not exist any more; none where that is an error."""
        loaded = {} if self._is_error else self._loaded(tables)
        record = self._records.stream() if loaded else None
        absent = self._source.gone(loaded.values(), record.source) if record else ()
        gone = {table for table, identity in loaded.items() if identity in absent}
        if gone:  # another one of the name is a table that was created again
            gone -= {table.table for table in self._source.discover()}
        return gone

    def note(self, tables: Iterable[TableId]) -> set[TableId]:
        """Note those of the tables that do not exist any more, as `among` returns them."""
        gone = self.among(tables)
        stays = not self._can_begin_anew
        since = format_time(self._clock.now())
        for table in sorted(gone):
            if self._is_ignored:
                self._note_staying(str(table), since)
                continue
            what, hint = WRITTEN, _RESET.format(table=table)
            if not stays:
                what, hint = ENDED, "To keep it, set mirror.schema_change.table_dropped to ignore."
            error = TableDropped(what, table=str(table), hint=hint)
            noted = error.facts() | {"ignored": True, "since": since}
            self._records.stop(str(table), noted if stays else noted | {REPLACED: True})
            log.warning(TABLE_DROPPED, table=str(table), reason=what)
        return gone

    def _note_staying(self, table: str, since: str) -> None:
        error = TableDropped(STAYS, table=table, hint=_RESET.format(table=table))
        noted = error.facts() | {"ignored": True, "since": since, STAYING: True}
        self._records.stop(table, noted)
        log.warning(CHANGE_IGNORED, table=table, change="the table was dropped")

    def _let_stay(self) -> None:
        """Keep the tables that were to be deleted and are still there."""
        for name, noted in self._records.dropped().items():
            table = TableId.parse(name)
            if not noted.get(STAYING) and any(sink.holds(table) for sink in self._sinks):
                self._note_staying(name, noted["since"])

    @property
    def _can_begin_anew(self) -> bool:
        """Whether nothing of a former table is left, so that another may have its name."""
        return all(sink.is_corrected for sink in self._sinks)

    def _delete(self, written: Collection[TableId]) -> None:
        now = self._clock.now()
        for name, noted in self._records.dropped().items():
            table = TableId.parse(name)
            is_due = now - parse_time(noted["since"]) >= self._after
            if noted.get(STAYING) or table in written or not is_due or not self._is_over(table):
                continue
            self._guard()
            try:
                self._end(table)
            except OSError as error:  # the mirror may be using its files (LZ-235, LZ-236)
                log.warning(DELETION_FAILED, table=name, reason=str(error))

    def _end(self, table: TableId) -> None:
        """Raises OSError; the next look tries it again."""
        was_held = any(sink.holds(table) for sink in self._sinks)
        is_deleted = [sink.end(table) for sink in self._sinks]
        if was_held:
            log.warning(DROPPED_DELETED, table=str(table))
        if all(is_deleted):
            self._reached(CrashPoint.REPLACED_DELETED)
            BackfillRecords(self._records).drop(str(table))
            self._records.forget(str(table))

    def _is_over(self, table: TableId) -> bool:
        """Whether a table that was noted is gone still, or nothing of it is left."""
        is_held = any(sink.holds(table) for sink in self._sinks)
        return not is_held or table in self.among([table])

    def _loaded(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """The identities of those of the tables that every sink can tell that holds them."""
        found = {}
        for table in tables:
            known = {sink.loaded_as(table) for sink in self._sinks if sink.holds(table)}
            if len(known) == 1 and (identity := known.pop()):
                found[table] = identity
        return found


def dropped_names(records: Records) -> set[TableId]:
    """The names of tables that were dropped, also of those of which nothing is left."""
    return {TableId.parse(name) for name in (*records.deleted(), *records.dropped())}


def _is_left_out(stopped: dict[str, object]) -> bool:
    """Whether a table is only stopped because it is not found any more."""
    return stopped.get("code") == NotSelected.code and not stopped.get("given_up")
