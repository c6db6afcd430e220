"""A database in memory as a source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from mirrorlake.errors import PrerequisiteMissing, SourceGap
from mirrorlake.model.position import LogPoint
from mirrorlake.sources.base import CheckResult, CheckSeverity, Established, Snapshot
from mirrorlake.sources.memory.database import MemoryDatabase, Slot, gap
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.snapshot import MemorySnapshot, batch_of
from mirrorlake.sources.memory.stream import MemoryStream
from mirrorlake.sources.table import SourceTable


class MemoryObjects:
    """The `ManagedObjects` of a source in memory: one slot."""

    def __init__(
        self, database: MemoryDatabase, slot: str, snapshot: Callable[[], Snapshot]
    ) -> None:
        self._database, self._slot, self._snapshot = database, slot, snapshot

    def occupied(self) -> CheckResult | None:
        if self._slot not in self._database.slots:
            return None
        return CheckResult(
            "slot", CheckSeverity.ERROR, f"{self._words} exists already", "Choose another name."
        )

    def intended(self) -> Sequence[str]:
        return [self._words]

    def establish(self, tables: Sequence[SourceTable]) -> Established:
        with self._database.lock:
            snapshot = self._snapshot()
            carried = {table.table for table in tables}
            self._database.slots[self._slot] = Slot(snapshot.point, carried)
        return Established(snapshot, self.intended())

    def include(self, tables: Sequence[SourceTable]) -> None:
        self._database.slots[self._slot].tables |= {table.table for table in tables}

    def detach(self, made: Sequence[str]) -> list[str]:
        if self._words not in made or self._slot not in self._database.slots:
            return []
        del self._database.slots[self._slot]
        return [self._words]

    @property
    def _words(self) -> str:
        return f"slot {self._slot}"


class MemorySource:
    """A `Source` on a database in memory."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings, self._database = settings, settings.database
        slot = settings.slot
        self.objects = None if slot is None else MemoryObjects(self._database, slot, self.snapshot)

    def check(self) -> list[CheckResult]:
        return [
            CheckResult(
                "reachable", CheckSeverity.OK, f"{len(self._database.tables)} tables in memory"
            )
        ]

    def discover(self) -> list[SourceTable]:
        with self._database.lock:
            found = [
                replace(table.described, rows=len(table.rows))
                for name, table in sorted(self._database.tables.items())
                if self._settings.selection.takes(name)
            ]
        if not found:
            raise PrerequisiteMissing(
                "no table of the database is selected",
                where="source.tables",
                hint="Widen the patterns.",
            )
        return found

    def identity(self) -> Mapping[str, str]:
        return {"type": "memory", "slot": self._settings.slot or ""}

    def parse_point(self, text: str) -> LogPoint:
        return self._database.points.parse(text)

    def current(self) -> LogPoint:
        return self._database.current

    def resume(self, since: LogPoint) -> None:
        slot = self._slot()
        if slot is not None and not since.covers(slot.acknowledged):
            raise gap(f"slot {self._settings.slot} is beyond {since}")
        self._database.since(since)

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(
            self._database, self._settings.delivery, is_one=self._settings.is_consistent
        )

    def stream(
        self, tables: Sequence[SourceTable], since: LogPoint, *, metadata: bool = False
    ) -> MemoryStream:
        settings, slot = self._settings, self._slot()
        if slot is not None:
            since = since.join(slot.acknowledged)
            tables = [table for table in tables if table.table in slot.tables]
        return MemoryStream(
            self._database, settings.delivery, tables, since, settings.slot, metadata=metadata
        )

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        wanted = {tuple(row[name] for name in table.key) for row in keys.to_pylist()}
        with self._database.lock:
            rows = self._database.tables[table.table].rows
            found = [rows[key] for key in wanted if key in rows]
        return pa.Table.from_batches([batch_of(table.schema, found)])

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        try:
            self._slot()
        except SourceGap as error:
            return [CheckResult("slot", CheckSeverity.ERROR, error.what, error.hint)]
        now = {name: table.described for name, table in self._database.tables.items()}
        return [
            CheckResult(
                "table", CheckSeverity.ERROR, "the table was dropped", "Reset it.", table.table
            )
            for table in tables
            if table.table not in now or now[table.table].identity != table.identity
        ]

    def close(self) -> None:
        """The database stays."""

    def _slot(self) -> Slot | None:
        """What the database remembers of us, None when it is to remember nothing."""
        name = self._settings.slot
        if name is not None and name not in self._database.slots:
            raise gap(f"slot {name} does not exist")
        return self._database.slots[name] if name is not None else None
