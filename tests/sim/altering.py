"""The simulation of `simulation.py` with tables that are altered all the time.

Columns are added, with a default or without one, or with values that the log does not have; they
are renamed, exchanged, dropped, computed anew, and get other types, wider ones too; the key gets
another name, or is another column.
An alteration is told before the next row of its table, and so are several that came before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.delta.schema import VECTORS
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import METADATA_COLUMNS, ROW_DELETED
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.model.table import TableId
from tests.doubles.memory_store import Crash, MemoryStore
from tests.reference import plain
from tests.sim.altered_source import AlteringDatabase, Draft, TableNow, rows_of
from tests.sim.engine import LakeTable, ModelledEngine, replayed
from tests.sim.simulation import TABLES, Simulation

ALTERING = {
    CrashPoint.COLUMNS_RENAMED,
    CrashPoint.COLUMNS_ADDED,
    CrashPoint.COLUMNS_WRITTEN,
    CrashPoint.COLUMNS_ALTERED,
}


class AlteringSimulation(Simulation):
    """One run. Processes end more often at the points of ALTERING than elsewhere."""

    database: AlteringDatabase

    def __init__(self, seed: int, **options: bool) -> None:
        super().__init__(seed, **options)
        self._strict, self._settings = False, replace(self._settings, strict=False)
        self._drops = Random(f"drops {seed}").random() < 0.3
        self._renames = Random(f"renames {seed}").random() < 0.5
        self._widens = Random(f"widens {seed}").random() < 0.5
        self._alters = Random(f"alters {seed}").choice([0.1, 0.3, 0.6])

    def _new_database(self, *, sets: bool) -> AlteringDatabase:
        return AlteringDatabase(self.clock, self.random, TABLES, sets=sets)

    def _engine(self, store: MemoryStore, between: Callable[[], None]) -> ModelledEngine:
        return replace(
            super()._engine(store, between),
            lost_alterations=0.0 if self._quiet else 0.1,
            properties={VECTORS: "true"},
        )

    def _reached(self) -> Callable[[CrashPoint], None]:
        usual = super()._reached()

        def reached(point: CrashPoint) -> None:
            if point in ALTERING and not self._quiet and self.random.random() < 0.3:
                raise Crash(str(point))
            usual(point)

        return reached

    def _mirror_settings(self) -> MirrorSettings:
        return replace(
            super()._mirror_settings(),
            drops_columns=self._drops,
            renames_columns=self._renames,
            widens_types=self._widens,
        )

    # -- what happens ---------------------------------------------------------------------------

    def _write(self) -> None:
        draft = Draft(self.random, self.database.now)
        for _ in range(self.random.choice([1, 1, 2, 3, 9])):
            table = self.random.choice(TABLES)
            if self.random.random() < self._alters:
                draft.alter(table)
            else:
                draft.write(table)
        self._commit(draft)

    def _commit(self, draft: Draft) -> None:
        if draft.transaction.steps:
            self.database.commit(draft.transaction)
            steps = zip(draft.transaction.steps, draft.told, strict=True)
            told = [f"{step.table.partition('.')[2]}: {what}" for step, what in steps]
            self.trace.append(f"commit {self.database.memory.current} {told}")

    def _fail_over(self) -> None:
        """What happened once happened in this order."""

    def _settle(self) -> None:
        draft = Draft(self.random, self.database.now)
        for table in TABLES:
            draft.write(table)  # which tells how it was altered
        self._commit(draft)
        super()._settle()

    # -- what must hold -------------------------------------------------------------------------

    def _check_cuts(self) -> None:
        """A version that completes a cut is the source as it was there, as far as that was told."""
        for table in TABLES:
            mirrored = self.lake.tables.get(f"Tables/{table.schema}/{table.name}")
            if mirrored is None or mirrored.cut is None or mirrored.batch is None:
                continue
            if mirrored.batch.version == mirrored.version:
                found = self.database.at(self._cuts[mirrored.cut], table)
                assert any(self._is_one(mirrored, table) for table in found), self.told()

    def _check_all(self) -> None:
        stopped = Records(MemoryStore(self.clock, files=self.files), root.LANDING).stopped()
        assert stopped == {}, (stopped, self.told())
        for table in TABLES:
            mirrored = self.lake.tables[f"Tables/{table.schema}/{table.name}"]
            now = self.database.now[table]
            assert self._is_one(mirrored, now), self.told()
            played = replayed(mirrored)
            assert played == Counter(map(plain, mirrored.table.rows)), self.told()
            self._check_left(mirrored, now)
            self._check_positions(table, mirrored, now)
            self._check_gone(mirrored, now)
            ends = [last for _first, last in mirrored.applied]
            begins = [first for first, _last in mirrored.applied]
            assert begins == [1, *(end + 1 for end in ends[:-1])], self.told()

    def _is_one(self, mirrored: LakeTable, table: TableNow) -> bool:
        """Whether a mirrored table has the rows of a table, by the names of its columns."""
        if not {*table.schema.names} <= {*mirrored.schema.names}:
            return False
        live = [[row[name] for name in table.schema.names] for row in self._named(mirrored)]
        return Counter(map(tuple, live)) == Counter(rows_of(table))

    def _check_left(self, mirrored: LakeTable, now: TableNow) -> None:
        """A column that the source does not have any more is NULL in rows that were written since
        it had one of its name, and in none where it is dropped."""
        asked = {*now.schema.names, *METADATA_COLUMNS, ROW_DELETED}
        left = [name for name in mirrored.schema.names if name not in asked]
        assert not any("_before_" in name for name in left), (left, self.told())
        assert not (self._drops and left), (left, self.told())
        for row in self._named(mirrored):
            names = now.names[row[now.key]]
            kept = {name: row[name] for name in left if name not in names}
            assert not any(value is not None for value in kept.values()), (kept, self.told())

    def _check_positions(self, table: TableId, mirrored: LakeTable, now: TableNow) -> None:
        # A row that was written under another key has another one now.
        for row in self._named(mirrored) if self._metadata and not now.is_rekeyed else ():
            position, transaction, time = (row[name] for name in METADATA_COLUMNS)
            if transaction is None:
                assert (time, position.endswith(":0")) == (None, True), self.told()
                continue
            write, committed = self.database.write_at(position)
            assert (write.table.table, time) == (table, committed), self.told()
            assert write.row is not None, self.told()
            assert write.row[write.table.key[0]] == row[now.key], self.told()

    def _check_gone(self, mirrored: LakeTable, now: TableNow) -> None:
        """A row that is marked as deleted was the last of its key, and is no more, unless it was
        deleted under another key."""
        if now.is_rekeyed:
            return
        (key,) = mirrored.table.key
        gone = [row[key] for row in mirrored.table.rows if not self._is_there(mirrored, row)]
        assert not {*gone} & now.rows.keys(), self.told()
        assert len({*gone}) == len(gone), self.told()

    def _named(self, mirrored: LakeTable) -> Iterable[dict[str, Any]]:
        """The rows that are not marked as deleted, by the names of their columns."""
        names = mirrored.schema.names
        live = [row for row in mirrored.table.rows if self._is_there(mirrored, row)]
        return [dict(zip(names, row, strict=True)) for row in live]

    def _is_there(self, mirrored: LakeTable, row: tuple[Any, ...]) -> bool:
        flag = mirrored.table.soft
        return flag is None or not row[flag]
