"""The tables of one stream as a whole: found in the source, and put in order before it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mirrorlake.capture.records.records import Records
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members, replaced
from mirrorlake.capture.tables.dropped import DroppedTables, dropped_names
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable


class CarriedTables:
    """Finds them anew at each call. Not for several threads. guard: raises when this process may no
    longer write."""

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
        self._settings, self._clock = settings, clock
        self._guard, self._reached = guard, reached
        self.dropped = DroppedTables(source, records, sinks, settings, clock, guard, reached)

    def keep_names(self) -> None:
        """Let tables that were renamed keep the names with which they were loaded."""
        names = replaced.names(self._records, self._sinks)
        # Event files say nothing of identities.
        taken = {name for sink in self._sinks for name in sink.identities() or sink.tables()}
        self._source.keep_names(names, taken, dropped_names(self._records))

    def before_start(self) -> list[SourceTable]:
        """The tables to capture, while nothing is streamed."""
        if SchemaChangeKind.TABLE_CREATED not in self._settings.ignores:
            self._records.end_admission()
        selected = self._source.discover()
        self.dropped.came_back(selected)
        return self.decide(selected, ())

    def decide(
        self, selected: Sequence[SourceTable], written: Collection[TableId]
    ) -> list[SourceTable]:
        """Record what has become of the tables, and delete what was dropped a while ago. Returns
        the tables to capture. selected: those that are there; written: those that a writer is open
        for."""
        records, sinks, ignored = self._records, self._sinks, self._settings.ignores
        self.dropped.look(selected, written)
        admitted = members.admit(selected, records, sinks, ignored, self._clock)
        return members.decide(admitted, records, sinks)

    def replaced(self, tables: Sequence[SourceTable]) -> list[SourceTable]:
        """Tables that were created again since they were loaded, and are loaded again."""
        if SchemaChangeKind.TABLE_RECREATED in self._settings.stops_at:
            return []
        if not all(sink.is_corrected for sink in self._sinks):
            # What is left of those would be mixed with the new one.
            noted = self._records.dropped()
            tables = [table for table in tables if str(table.table) not in noted]
        return replaced.replaced(tables, self._records, self._sinks)

    def begin_replaced(self) -> None:
        """Forget the former tables of those that were created again, while nothing is streamed."""
        if not (tables := self.replaced(self._source.discover())):
            return
        replaced.give_up_names(tables, self._records, self._sinks)
        for table in tables:
            self._guard()
            what = replaced.RECREATED
            replaced.begin_anew(table.table, what, self._records, self._sinks, self._reached)
        self.keep_names()

    def begin_loaded_first(self) -> None:
        """Forget what there is of tables whose rows could not be read beside their changes, while
        nothing is streamed: they are missing then, and loaded before changes."""
        stopped = self._records.stopped().items()
        interrupted = {name for name, facts in stopped if facts.get(replaced.REPLACED)}
        beginning = self._records.unloaded() | interrupted
        for name in sorted(self._records.load_first() & beginning):
            self._guard()
            what = "its rows cannot be read beside its changes"
            table = TableId.parse(name)
            replaced.begin_anew(table, what, self._records, self._sinks, self._reached)
