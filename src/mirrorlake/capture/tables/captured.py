"""The tables that a stream captures, and the facts by which the source recognises each of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mirrorlake.capture.records.records import Records
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import Source
from mirrorlake.sources.table import KnownTables, SourceTable


class CapturedTables:
    """Those of one stream. `all`: also those that are stopped.

    Facts that a change of the catalog brings count from its point on, and are recorded with it: a
    stream that begins before that point needs the former ones.
    """

    def __init__(self, source: Source, records: Records) -> None:
        self._source, self._records = source, records
        self.all: list[SourceTable] = []

    def streamed(self) -> list[SourceTable]:
        """The tables that are not stopped."""
        stopped = self._records.stopped()
        return [table for table in self.all if str(table.table) not in stopped]

    def know(self, known: KnownTables) -> None:
        """Record these facts, as far as there are any."""
        known = {table: facts for table, facts in known.items() if facts}
        if known:
            self._records.know(known)
        self.all = [replace(t, known=known.get(t.table, t.known)) for t in self.all]

    def know_first(self) -> None:
        """Record the facts of streamed tables that have none on record."""
        recorded = self._records.known()
        self.know({t.table: t.known for t in self.streamed() if str(t.table) not in recorded})

    def know_from(self, known: KnownTables, point: LogPoint, durable: LogPoint | None) -> None:
        """Record facts that count from a point on. durable: up to where everything is; what was
        recorded before and is durable by now counts first, because points come in order."""
        if durable is not None:
            self.confirm(durable)
        self._records.know({table: facts for table, facts in known.items() if facts}, str(point))

    def confirm(self, durable: LogPoint, *, at_start: bool = False) -> None:
        """Let the facts count whose point is durable. at_start: no stream is read yet."""

        def is_durable(point: str) -> bool:
            return durable.covers(self._source.parse_point(point))

        self._records.confirm(is_durable, at_start=at_start)
        known = self._records.known()
        self.all = [replace(t, known=known.get(str(t.table), t.known)) for t in self.all]

    def leave_out(self, tables: Collection[TableId]) -> None:
        """Capture these no longer, or not yet."""
        self.all = [table for table in self.all if table.table not in tables]
