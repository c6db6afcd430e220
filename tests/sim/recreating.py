"""The simulation of `simulation.py` with tables that are dropped and created again.

The new table has the name and the columns of the former one, and none of its rows. Nothing in the
log tells where one ends: capture recognises a table by its identity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from mirrorlake.capture.records.records import Records
from mirrorlake.model.clock import Clock
from mirrorlake.model.position import LogPoint
from mirrorlake.model.table import TableId
from mirrorlake.root import LANDING
from mirrorlake.sources.memory.database import MemoryTransaction
from tests.doubles.memory_store import MemoryStore
from tests.sim.simulation import TABLES, Simulation
from tests.sim.source import COLUMNS, Row, SimulatedDatabase, rows_after


class RecreatingDatabase(SimulatedDatabase):
    """former: the identities of the tables that were dropped, by name."""

    recognises = True

    def __init__(self, clock: Clock, random: Random, *, sets: bool) -> None:
        super().__init__(clock, random, TABLES, sets=sets)
        self.former: dict[TableId, list[str | None]] = {table: [] for table in TABLES}

    def drop(self, table: TableId) -> None:
        self.former[table].append(self.memory.tables[table].described.identity)
        self.memory.drop(str(table))

    def create(self, table: TableId) -> None:
        self.memory.create(str(table), COLUMNS, ["id"])

    def states(self, point: LogPoint, table: TableId) -> Iterator[dict[int, Row]]:
        """What a mirror may have that has read the log up to a point: the rows of the table, or
        those of one that was dropped, as they were after any transaction before."""
        now = self.memory.tables[table].described.identity
        yield self.rows_at(point, table, lambda write: write.table.identity == now)
        read = [one for one in self._done if point.covers(one.end)]
        for former in self.former[table]:
            for count in range(len(read) + 1):
                yield rows_after(read[:count], lambda write, it=former: write.table.identity == it)


class RecreatingSimulation(Simulation):
    """One run. recreated: how often a table was created again."""

    database: RecreatingDatabase

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.recreated = 0
        after = Random(f"drop after {seed}").choice([0.0, 60.0])
        self._settings = replace(self._settings, drop_after_seconds=after)

    def _new_database(self, *, sets: bool) -> RecreatingDatabase:
        return RecreatingDatabase(self.clock, self.random, sets=sets)

    def _steps(self) -> list[Callable[[], None]]:
        return [*super()._steps(), self._recreate]

    # -- what happens ---------------------------------------------------------------------------

    def _recreate(self) -> None:
        """A table is dropped and created again, perhaps while capture runs without it, and perhaps
        with rows at once."""
        table = self.random.choice(TABLES)
        self.database.drop(table)
        self.recreated += 1
        self.trace.append(f"drop {table.name}")
        try:
            if self.random.random() < 0.3:
                self._surviving(self._capture_step)
        finally:
            self.database.create(table)
            self.trace.append(f"create {table.name}")
        if self.random.random() < 0.5:
            transaction = MemoryTransaction()
            for key in self.random.sample(range(4), 2):
                transaction.insert(str(table), id=key, note=self._text(), text=self._text())
            self.database.commit(transaction)

    def _fail_over(self) -> None:
        """What happened once happened in this order."""

    # -- what must hold -------------------------------------------------------------------------

    def _check_cuts(self) -> None:
        for table in [] if self._strict else TABLES:
            mirrored = self.lake.tables.get(f"Tables/{table.schema}/{table.name}")
            if mirrored is not None and mirrored.cut is not None:
                live = self._live(mirrored.table.rows)
                states = self.database.states(self._cuts[mirrored.cut], table)
                assert any(live == Counter(rows.values()) for rows in states), self.told()

    def _check_all(self) -> None:
        stopped = Records(MemoryStore(self.clock, files=self.files), LANDING).stopped()
        assert stopped == {}, (stopped, self.told())
        super()._check_all()
