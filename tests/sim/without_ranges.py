"""The simulation of `simulation.py` with tables that have no ranges of a key.

One has no key: whole rows are logged, and several may be equal. The key of the other one is a
floating point number. Their backfills read parts, which are noted, and land pieces by hashes.
Rows have versions, and are written while parts are read; a process ends more often there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from mirrorlake.capture.capture import Capture
from mirrorlake.errors import SourceUnavailable
from mirrorlake.model.clock import Clock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import Column, Schema, TableId
from mirrorlake.model.types import DOUBLE
from mirrorlake.sources.memory.database import Logged, MemoryTransaction, Write, WriteKind
from mirrorlake.sources.memory.settings import MemorySettings
from tests.doubles.memory_store import Crash
from tests.sim.engine import LakeTable
from tests.sim.simulation import KEYS, TABLES, Simulation
from tests.sim.source import COLUMNS, Row, SimulatedDatabase, values

WHOLE, FLOATING = TABLES
MOST = 14
"""Rows of the table without a key."""

WITH_FLOATS = Schema.of([Column("id", DOUBLE), *(c for c in COLUMNS if c.name != "id")])

NOTING = {
    CrashPoint.BACKFILL_PART_STAGED,
    CrashPoint.BACKFILL_NOTED,
    CrashPoint.BACKFILL_STAGED,
    CrashPoint.BACKFILL_PUBLISHED,
    CrashPoint.BACKFILL_RECORDED,
}


class DatabaseWithoutRanges(SimulatedDatabase):
    """meanwhile: called now and then while a part is read."""

    def __init__(self, clock: Clock, random: Random, *, sets: bool) -> None:
        super().__init__(clock, random, TABLES, sets=sets)
        self.parts = 3
        self.meanwhile: Callable[[], None] = lambda: None

    def _create(self, table: TableId) -> None:
        if table == WHOLE:
            self.memory.create(str(table), COLUMNS, whole_rows=True)
        else:
            self.memory.create(str(table), WITH_FLOATS, ["id"])

    def settings(self, failures: float) -> MemorySettings:
        random = self.random
        if failures and random.random() < 0.1:
            self.parts = random.choice([2, 3, 5])

        def rows(left: int) -> int:
            if random.random() < 5 * failures:
                raise SourceUnavailable("the simulated database went away")
            if failures and random.random() < 0.1:
                self.meanwhile()
            return random.randint(1, left)

        parts = self.parts
        return replace(
            super().settings(failures), has_versions=True, parts=lambda: parts, rows=rows
        )

    def rows(self, table: TableId) -> dict[Any, Row]:
        """As of every table; without a key by numbers."""
        if table != WHOLE:
            return super().rows(table)
        return dict(enumerate(map(row_of, self.memory.rows(str(table)))))

    def rows_at(
        self, point: LogPoint, table: TableId, is_of: Callable[[Write], bool] = lambda _: True
    ) -> dict[Any, Row]:
        if table != WHOLE:
            return super().rows_at(point, table, is_of)
        read = [one for one in self._done if point.covers(one.end)]
        return dict(enumerate(whole_rows_after(read, table)))


def whole_rows_after(transactions: Sequence[Logged], table: TableId) -> list[Row]:
    """The rows of a table without a key after these transactions."""
    rows: list[Row] = []
    for write in (write for transaction in transactions for write in transaction.writes):
        if write.table.table != table:
            continue
        if write.kind is WriteKind.TRUNCATE:
            rows.clear()
        if write.old is not None:
            rows.remove(row_of(write.old))
        if write.row is not None:
            rows.append(row_of(write.row))
    return rows


def row_of(row: Mapping[str, Any]) -> Row:
    return row["id"], row["note"], row["text"]


class SimulationWithoutRanges(Simulation):
    """One run."""

    database: DatabaseWithoutRanges

    def __init__(self, seed: int, *, is_damaged: bool = False, loses: bool = False) -> None:
        super().__init__(seed, is_damaged=is_damaged, loses=loses)
        # Neither is possible where whole rows are logged.
        self._strict = self._soft = False
        self._settings = replace(self._settings, strict=False)
        own = Random(f"without ranges {seed}")
        self._ends = own.choice([0.02, 0.1, 0.2])
        self._divide(own)
        self.database.meanwhile = self._write_meanwhile

    def _divide(self, random: Random) -> None:
        """Choose how large a table is that is landed in one piece."""
        limits = replace(self._backfill.limits, whole=random.choice([1, 200, 400, 1 << 20]))
        self._backfill = replace(self._backfill, limits=limits)

    def _new_capture(self) -> Capture:
        if self.random.random() < 0.2:
            self._divide(self.random)
        return super()._new_capture()

    def _new_database(self, *, sets: bool) -> DatabaseWithoutRanges:
        return DatabaseWithoutRanges(self.clock, self.random, sets=sets)

    def _reached(self) -> Callable[[CrashPoint], None]:
        usual = super()._reached()

        def reached(point: CrashPoint) -> None:
            if point in NOTING and not self._quiet and self.random.random() < self._ends:
                raise Crash(str(point))
            usual(point)

        return reached

    def _steps(self) -> list[Callable[[], None]]:
        return [*super()._steps(), self._capture_step, self._capture_step]

    # -- what happens ---------------------------------------------------------------------------

    _stops = 0.1

    def _keys(self, table: TableId) -> Sequence[Any]:
        return [key / 2 for key in range(KEYS)]

    def _add_write(
        self, transaction: MemoryTransaction, tables: dict[TableId, dict[int, Row]]
    ) -> None:
        if self.random.random() < 0.4:
            super()._add_write(transaction, {FLOATING: tables[FLOATING]})
        else:
            self._add_whole(transaction, tables[WHOLE])

    def _add_whole(self, transaction: MemoryTransaction, rows: dict[int, Row]) -> None:
        """Change one row, or all that are equal to it."""
        kind = self.random.choice(["insert", "insert", "again", "update", "update", "delete"])
        name, is_one = str(WHOLE), self.random.random() < 0.8
        if self.random.random() < 0.03:
            rows.clear()
            transaction.truncate(name)
            return
        new: Row = (self.random.randint(0, KEYS), self._text(), self._text())
        if kind == "again" and rows:
            new = self.random.choice([*rows.values()])
        if kind in {"insert", "again"} and len(rows) < MOST:
            rows[max(rows, default=0) + 1] = new
            transaction.insert(name, **values(new))
            return
        if not rows:
            return
        old = self.random.choice([*rows.values()])
        equal = [number for number, row in rows.items() if row == old]
        for number in equal[:1] if is_one else equal:
            del rows[number]
            if kind != "delete":
                rows[max(rows, default=0) + 1] = new
        if kind == "delete":
            (transaction.delete_one if is_one else transaction.delete)(name, **values(old))
        else:
            update = transaction.update_one if is_one else transaction.update
            update(name, values(old), **values(new))

    def _damages(self, mirrored: LakeTable) -> Sequence[str]:
        """Without a key, a row that is not there cannot be deleted."""
        return super()._damages(mirrored) if mirrored.key else ["double", "invent"]

    def _write_meanwhile(self) -> None:
        if not self._quiet:
            self._write()

    def _ask(self, table: TableId, *, whole: bool = False) -> None:
        """Almost always for all of the table: a range is refused."""
        super()._ask(table, whole=whole or self.random.random() < 0.95)

    # -- what must hold -------------------------------------------------------------------------

    def _check_deleted(self, table: TableId, rows: list[Any]) -> None:
        """Deletes are not soft."""
