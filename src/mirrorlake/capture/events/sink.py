"""Event files as a sink."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

from mirrorlake.capture.events.load import EventLoader, described
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.capture.events.state import EventState, forget_all
from mirrorlake.capture.events.writer import EventsWriter
from mirrorlake.capture.records.records import Records
from mirrorlake.capture.records.stream import StreamRecord
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.capture.sink import Loaded, LoadProgress, Lost
from mirrorlake.errors import KeyColumnsChanged, SelectionChanged, TableError, TableRecreated
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Snapshot, Source
from mirrorlake.sources.table import SourceTable
from mirrorlake.storage.store import Store


class EventsSink:
    """A `Sink`: files of events in a folder or bucket. store: the destination.

    What is durable there is noted in the zone of the stream's records.
    """

    metadata = True
    unsupported = ""
    # A backfill has no event for a deleted row, and a change of the last minutes wins.
    is_corrected = False

    def __init__(
        self,
        source: Source,
        records: Records,
        capture: CaptureSettings,
        settings: EventsSettings,
        store: Store,
        clock: Clock,
        reached: CrashHook = no_crash,
        progress: Callable[[LoadProgress], None] = lambda _progress: None,
    ) -> None:
        self._source, self._records, self._settings = source, records, settings
        self._store, self._clock, self._reached = store, clock, reached
        self._loader = EventLoader(
            records,
            settings,
            store,
            min(capture.load_bytes, settings.rotation_bytes),
            clock,
            reached,
            progress,
        )

    @property
    def name(self) -> str:
        return f"events {self._settings.described}"

    def recover(self) -> None:
        EventState.begin(self._records, self._settings.described, self._clock.now())
        self._records.write_waiting_events(self._settings.described, {})

    def durable(self) -> LogPoint | None:
        position = self._state().position
        return self._source.parse_point(position) if position else None

    def tables(self) -> Collection[TableId]:
        loaded = self._state().tables.values()
        return [TableId(facts["schema"], facts["name"]) for facts in loaded]

    def holds(self, table: TableId) -> bool:
        return str(table) in self._state().tables

    def ends(self) -> Collection[LogPoint]:
        return ()  # nothing is corrected in event files

    def identities(self) -> Mapping[TableId, str]:
        return {}  # no event deletes the rows of the former table

    def loaded_as(self, table: TableId) -> str:
        return str(self._state().tables.get(str(table), {}).get("identity", ""))

    def drop(self, table: TableId) -> None:
        self._state().without(str(table)).write(self._records)

    def end(self, table: TableId) -> bool:  # noqa: ARG002  (of the contract)
        return False  # events stay, and none of them deletes its rows

    def clear(self) -> None:
        forget_all(self._records)

    def missing(self, tables: Sequence[SourceTable]) -> list[SourceTable]:
        for name in self._state().loads:
            self._loader.finish(name)
        loaded = self._state().tables
        return [table for table in tables if str(table.table) not in loaded]

    def load(
        self,
        record: StreamRecord,  # noqa: ARG002  (of the contract)
        snapshot: Snapshot,
        tables: Sequence[SourceTable],
        pool: Executor,
        guard: Callable[[], None],
    ) -> Iterator[Loaded | TableError | None]:
        guard()
        return self._loader.run(snapshot, tables, pool)

    def open(
        self,
        record: StreamRecord,  # noqa: ARG002
        tables: Sequence[SourceTable],
        start: LogPoint,
        lost: Lost,
    ) -> EventsWriter:
        self._forget_stopped()
        state = self._state()
        found = []
        for table in tables:
            facts = state.tables[str(table.table)]
            error = _changed(table, facts)
            if error is None:
                found.append((table, self._source.parse_point(str(facts["point"]))))
            else:
                lost(table.table, error)
        return EventsWriter(
            self._source,
            self._records,
            self._state(),
            found,
            self.durable() or start,
            self._settings,
            self._store,
            self._clock,
            lost,
            self._reached,
        )

    def _forget_stopped(self) -> None:
        """What happens to a table while it is stopped is missing: then it is loaded again."""
        state = self._state()
        for name in self._records.stopped():
            state = state.without(name)
        if state != self._state():
            state.write(self._records)

    def _state(self) -> EventState:
        return EventState.read(self._records, self._settings.described)


def _changed(table: SourceTable, facts: Mapping[str, Any]) -> TableError | None:
    """Why the table is not the one that was loaded, None when it is."""
    name, now = str(table.table), described(table, facts["point"])
    hint = f"Run `mirrorlake reset {name}` to load it again."
    if facts["identity"] != now["identity"]:
        what = "the table was dropped and created again in the source"
        return TableRecreated(what, table=name, hint=hint)
    if facts["key"] != now["key"]:
        return KeyColumnsChanged(
            f"the key was ({', '.join(facts['key'])}) when the table was loaded and is now "
            f"({', '.join(table.key)})",
            table=name,
            hint=hint,
        )
    if facts["selection"] != now["selection"]:
        return SelectionChanged(
            "the selected columns or rows differ from those with which the table was loaded",
            table=name,
            hint=hint,
        )
    return None
