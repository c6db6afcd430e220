"""Tables that were dropped in the source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import structlog

from mirrorlake.capture.record import Records
from mirrorlake.capture.sink import Sink
from mirrorlake.capture.tables import members
from mirrorlake.capture.watch.ignored import CHANGE_IGNORED
from mirrorlake.errors import NotSelected, TableDropped, TableRecreated
from mirrorlake.model.change import SchemaChangeKind
from mirrorlake.model.clock import Clock
from mirrorlake.model.landed import format_time
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable

log = structlog.get_logger()

DROPPED = (
    "the table was dropped in the source, and stays as it was captured last: changes shortly "
    "before that may be missing; mirror.schema_change ignores it"
)


class DroppedTables:
    """The tables of one stream that were dropped in the source. Nothing of them is captured any
    more, and what is mirrored of them stays: they are recorded with those that are stopped, and are
    no error. Not for several threads.

    kinds: the changes that the project ignores.
    """

    def __init__(
        self,
        source: Source,
        records: Records,
        sinks: Sequence[Sink],
        clock: Clock,
        kinds: Collection[SchemaChangeKind],
    ) -> None:
        self._source, self._records, self._sinks = source, records, sinks
        self._clock = clock
        self._is_ignored = SchemaChangeKind.TABLE_DROPPED in kinds

    def look(self, selected: Sequence[SourceTable]) -> None:
        """Note the tables that a sink holds and that are gone. selected: those that are there. What
        was noted is an error again when the project no longer ignores it."""
        if not self._is_ignored:
            for name in self._records.dropped():
                self._records.go_on(name)
            return
        stopped = self._records.stopped()
        left = {table.table for table in selected}
        self.note(
            table
            for table in {table for sink in self._sinks for table in sink.tables()} - left
            if not (found := stopped.get(str(table))) or _is_left_out(found)
        )

    def came_back(self, selected: Sequence[SourceTable]) -> None:
        """Stop tables that were created again and are not loaded anew. selected: those that are
        there."""
        noted = self._records.dropped()
        for name in [str(table.table) for table in selected if table.refused is None]:
            if name in noted:
                what = "the table was dropped and created again in the source"
                hint = f"Run `mirrorlake reset {name}` to reload it."
                members.stop(self._records, TableRecreated(what, table=name, hint=hint))

    def among(self, tables: Iterable[TableId]) -> set[TableId]:
        """Those of the tables that do not exist any more; none where dropped ones are not
        ignored."""
        loaded = self._loaded(tables) if self._is_ignored else {}
        there = self._source.existing(loaded.values()) if loaded else ()
        gone = {table for table, identity in loaded.items() if identity not in there}
        if gone:  # another one of the name is a table that was created again
            gone -= {table.table for table in self._source.discover()}
        return gone

    def note(self, tables: Iterable[TableId]) -> set[TableId]:
        """Note those of the tables that do not exist any more, as `among` returns them."""
        gone = self.among(tables)
        for table in sorted(gone):
            error = TableDropped(
                DROPPED,
                table=str(table),
                hint=f"`mirrorlake reset {table}` deletes what is mirrored of it.",
            )
            since = format_time(self._clock.now())
            self._records.stop(str(table), error.facts() | {"ignored": True, "since": since})
            log.warning(CHANGE_IGNORED, table=str(table), change="the table was dropped")
        return gone

    def _loaded(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """The identities of those of the tables that every sink can tell that holds them."""
        held = [(sink, sink.identities()) for sink in self._sinks]
        found = {}
        for table in tables:
            known = {ids.get(table, "") for sink, ids in held if sink.holds(table)}
            if len(known) == 1 and (identity := known.pop()):
                found[table] = identity
        return found


def _is_left_out(stopped: dict[str, object]) -> bool:
    """Whether a table is only stopped because it is not found any more."""
    return stopped.get("code") == NotSelected.code and not stopped.get("given_up")
