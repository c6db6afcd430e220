"""A database in memory as a source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from zlib import crc32

import pyarrow as pa

from mirrorlake.errors import (
    CannotBackfill,
    PrerequisiteMissing,
    SourceGap,
    TableAltered,
    TableRecreated,
)
from mirrorlake.model.crash_points import CrashHook, no_crash
from mirrorlake.model.keys import KeyRange
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
from mirrorlake.sources.memory.columns import are_other
from mirrorlake.sources.memory.database import Key, Row, Slot, gap
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.memory.stream import MemoryStream, batch_of
from mirrorlake.sources.ordered import check_readable, has_ranges
from mirrorlake.sources.table import SnapshotPart, SourceTable

_ERROR = CheckSeverity.ERROR


class MemorySnapshot:
    """A `Snapshot` of all tables."""

    def __init__(self, settings: MemorySettings) -> None:
        self._settings, self._database = settings, settings.database
        with self._database.lock:
            self.taken = self._database.clock.now()
            self.point = self._database.current
            tables = self._database.tables
            self._rows = {name: dict(table.rows) for name, table in tables.items()}
            self._described = {name: table.described for name, table in tables.items()}
        self._read: dict[tuple[TableId, int], LogPoint] = {}

    @property
    def recognising(self) -> None:
        return None

    def parts(self, table: SourceTable) -> Sequence[SnapshotPart]:
        count = self._settings.parts()
        return [SnapshotPart(table, (index, count)) for index in range(count)]

    def read(self, part: SnapshotPart) -> Iterator[pa.RecordBatch]:
        index, count = part.range
        keys = [key for key in self._rows_of(part) if crc32(repr(key).encode()) % count == index]
        while keys:
            size = self._settings.rows(len(keys))
            rows = self._rows_of(part)
            yield batch_of(part.table.schema, [rows[key] for key in keys[:size] if key in rows])
            keys = keys[size:]
        is_one = self._settings.is_consistent
        self._read[part.table.table, index] = self.point if is_one else self._database.current

    def ordered(
        self, table: SourceTable, keys: KeyRange
    ) -> Iterator[tuple[pa.RecordBatch, LogPoint]]:
        check_readable(table)
        part = SnapshotPart(table)
        with self._database.lock:
            self._check_described(table)
        every = batch_of(table.schema, list(self._rows_of(part).values()))
        if not has_ranges(table) and self._settings.is_consistent:
            yield every, self.point
            return
        if not table.key:
            raise CannotBackfill(
                "the table has no key, and is not read at one point", table=str(table.table)
            )
        rows = pa.Table.from_batches([every])
        rows = rows.filter(pa.array(keys.contains(rows)))
        rows = rows.sort_by([(name, "ascending") for name in table.key])
        remaining = list(zip(*(rows[name].to_pylist() for name in table.key), strict=True))
        while remaining:
            size = self._settings.rows(len(remaining))
            with self._database.lock:
                self._check_described(table)
                rows_now, point = self._rows_of(part).values(), self._database.current
                # The key may be another one by now.
                held = {tuple(row[name] for name in table.key): row for row in rows_now}
                found = [held[key] for key in remaining[:size] if key in held]
            yield (
                batch_of(table.schema, found),
                self.point if self._settings.is_consistent else point,
            )
            remaining = remaining[size:]

    @property
    def shared(self) -> str:
        return ""

    def estimated(self, table: SourceTable, keys: KeyRange) -> int | None:
        rows = batch_of(table.schema, list(self._rows_of(SnapshotPart(table)).values()))
        return int(keys.contains(pa.Table.from_batches([rows])).sum())

    def _check_described(self, table: SourceTable) -> None:
        """Raises TableAltered when the columns differ from those that the stream has described."""
        is_one, name = self._settings.is_consistent, table.table
        found = self._database.tables.get(name)
        now = found.described if found else None
        seen = self._described.get(name) if is_one else now
        if seen is not None and seen.identity != table.identity:
            raise TableRecreated(
                f"{name} was dropped and created again in the source",
                table=str(name),
                hint="The new table is loaded by itself.",
            )
        if seen is None or seen.schema != table.schema or are_other(table.known, seen.known):
            raise TableAltered(
                f"the columns of {name} have changed since its last row was read; the stream "
                "sees the change of columns with the next change of a row",
                table=str(name),
                hint=f"Change any row of it, then run `mirrorlake backfill {name}` again.",
            )

    def upto(self, part: SnapshotPart, /) -> LogPoint:
        return self._read[part.table.table, part.range[0]]

    def close(self) -> None:
        self._rows = {}

    def _rows_of(self, part: SnapshotPart) -> Mapping[Key, Row]:
        if self._settings.is_consistent:
            return self._rows[part.table.table]
        with self._database.lock:
            return dict(self._database.tables[part.table.table].rows)


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
