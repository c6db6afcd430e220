"""A database in memory as a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from mirrorlake.errors import PrerequisiteMissing, SourceGap, TableAltered
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.sources.base import (
    REACHABLE,
    AwaitedTransaction,
    CheckResult,
    CheckSeverity,
    Established,
    Inclusion,
    ManagedObjects,
    RetainedLog,
    Snapshot,
)
from mirrorlake.sources.memory.database import Slot, gap
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.snapshot import MemorySnapshot
from mirrorlake.sources.memory.stream import MemoryStream, batch_of
from mirrorlake.sources.table import SourceTable

_ERROR = CheckSeverity.ERROR


class MemorySource:
    """A `Source` on a database in memory, and its own `ManagedObjects` when it has a slot."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings, self._database = settings, settings.database
        self._name, self._words = settings.slot or "", f"slot {settings.slot}"

    @property
    def objects(self) -> ManagedObjects | None:
        return self if self._name else None

    def check(self) -> list[CheckResult]:
        found = f"{len(self._database.tables)} tables in memory"
        return [CheckResult(REACHABLE, CheckSeverity.OK, found)]

    def discover(self) -> list[SourceTable]:
        with self._database.lock:
            found = [
                replace(
                    table.described,
                    rows=len(table.rows),
                    known=table.described.known if self._settings.recognises else {},
                )
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

    def keep_names(
        self,
        names: Mapping[str, TableId],
        taken: Collection[TableId] = (),
        gone: Collection[TableId] = (),
    ) -> None:
        """Do nothing: tables in memory are not renamed."""

    def identity(self) -> Mapping[str, str]:
        return {"type": "memory", "slot": self._name}

    def parse_point(self, text: str) -> LogPoint:
        return self._database.points.parse(text)

    def current(self) -> LogPoint:
        return self._database.current

    def resume(self, since: LogPoint, _former: Mapping[str, str]) -> None:
        slot = self._slot()
        if slot is not None and not since.covers(slot.acknowledged):
            raise gap(f"{self._words} is beyond {since}")
        self._database.since(since)

    def snapshot(self) -> MemorySnapshot:
        return MemorySnapshot(self._settings)

    def snapshot_within(self, seconds: float) -> MemorySnapshot:  # noqa: ARG002 - it never waits
        return self.snapshot()

    def open_transactions(self) -> Mapping[str, AwaitedTransaction | None]:
        return {}  # its snapshots wait for none

    def stream(
        self,
        tables: Sequence[SourceTable],
        since: LogPoint,
        *,
        metadata: bool = False,
        secret: str = "",  # noqa: ARG002 - nothing is written into its log
        reached: CrashHook = no_crash,  # noqa: ARG002 - `watch` changes nothing
    ) -> MemoryStream:
        if slot := self._slot():
            since = since.join(slot.acknowledged)
            tables = [table for table in tables if table.table in slot.tables]
        return MemoryStream(self._settings, tables, since, metadata=metadata)

    def beyond(self, snapshot: Snapshot, tables: Sequence[SourceTable]) -> MemoryStream:
        return MemoryStream(self._settings, tables, snapshot.point, metadata=False)

    def reread(self, table: SourceTable, keys: pa.Table) -> pa.Table:
        selected = {tuple(row[name] for name in table.key) for row in keys.to_pylist()}
        with self._database.lock:
            now = self._database.tables.get(table.table)
            if now is None or now.described.identity != table.identity:
                raise TableAltered(
                    "rows cannot be read again: the table was dropped",
                    table=str(table.table),
                    hint="A table that is created in its place is loaded by itself.",
                )
            there = {column.name: column.type for column in now.described.schema}
            if any(there.get(column.name) != column.type for column in table.schema):
                raise TableAltered(
                    "rows cannot be read again: the table was altered",
                    table=str(table.table),
                    hint=f"Load it anew with `mirrorlake reset {table.table}`.",
                )
            keyed = {tuple(row[name] for name in table.key): row for row in now.rows.values()}
            found = [keyed[key] for key in selected if key in keyed]
        return pa.Table.from_batches([batch_of(table.schema, found)])

    def watch(self, tables: Sequence[SourceTable]) -> list[CheckResult]:
        try:
            self._slot()
        except SourceGap as error:
            return [CheckResult("slot", _ERROR, error.what, error.hint)]
        now = {table.described.identity for table in self._database.tables.values()}
        gone = [table.table for table in tables if table.identity not in now]
        what = "the table was dropped"
        return [CheckResult("table", _ERROR, what, "Reset it.", table) for table in gone]

    def gone(self, identities: Iterable[str], former: Mapping[str, str]) -> Collection[str]:
        if self.identity() != former:
            return ()
        with self._database.lock:
            there = {table.described.identity for table in self._database.tables.values()}
        return {*identities} - there

    def pulse(self) -> None:
        """It never falls silent."""

    def close(self) -> None:
        """The database stays."""

    def _slot(self) -> Slot | None:
        """Our slot in the database, None when the settings name none."""
        if self._name and self._name not in self._database.slots:
            raise gap(f"{self._words} does not exist")
        return self._database.slots[self._name] if self._name else None

    # -- the slot -------------------------------------------------------------------------------

    def occupied(self, home: str = "") -> CheckResult | None:  # noqa: ARG002 - it knows no places
        if self._name not in self._database.slots:
            return None
        return CheckResult("slot", _ERROR, f"{self._words} exists already", "Choose another name.")

    def intended(self) -> Sequence[str]:
        return [self._words]

    def establish(
        self, tables: Sequence[SourceTable], beyond: LogPoint | None = None
    ) -> Established:
        with self._database.lock:
            snapshot = self.snapshot()
            assert beyond is None or snapshot.point.covers(beyond)
            carried = {table.table for table in tables}
            self._database.slots[self._name] = Slot(snapshot.point, carried)
        return Established(snapshot, self.intended())

    def include(self, tables: Sequence[SourceTable]) -> None:
        self._database.slots[self._name].tables |= {table.table for table in tables}

    def include_again(self, table: SourceTable) -> Inclusion:
        self.include([table])
        return Inclusion.ADDED

    def name_home(self, home: str) -> None:
        """The database has no comments."""

    def rejects_changes(self) -> bool:
        return False

    def retained(self) -> RetainedLog | None:
        return None

    def release(self) -> None:
        self._database.slots.pop(self._name, None)

    def left(self, home: str) -> Sequence[str]:  # noqa: ARG002 - it knows no places
        return []

    def detach(self, made: Sequence[str]) -> list[str]:
        if self._words not in made or self._name not in self._database.slots:
            return []
        del self._database.slots[self._name]
        return [self._words]
