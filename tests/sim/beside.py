"""The simulation of `simulation.py` with tables whose rows are loaded beside their changes.

A table has the rows that were changed, until the backfill that loads it has read all rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mirrorlake import root
from mirrorlake.capture.records.records import Records
from mirrorlake.model.table import TableId
from tests.doubles.memory_store import MemoryStore
from tests.sim.altering import AlteringSimulation
from tests.sim.recreating import RecreatingSimulation
from tests.sim.simulation import Simulation
from tests.sim.without_ranges import SimulationWithoutRanges


class BesideSimulation(Simulation):
    """One run."""

    def __init__(self, seed: int, **options: bool) -> None:
        super().__init__(seed, **options)
        self._strict = False  # such a zone has no backfills
        self._settings = replace(self._settings, load_beside=0, strict=False)

    # -- what must hold -------------------------------------------------------------------------

    def _corrects(self) -> bool:
        return True

    def _check_all(self) -> None:
        assert not Records(MemoryStore(self.clock, files=self.files), root.LANDING).unloaded()
        super()._check_all()

    def _check_deleted(self, table: TableId, rows: list[Any]) -> None:
        """A row that is gone before its change is landed lacks the values that were not sent."""
        gone = [row[0] for row in rows if not self._is_live(row)]
        assert not {*gone} & {*self.database.rows(table)}, self.told()
        assert {*gone} <= {key for key, _note, _text in self.database.deleted(table)}, self.told()
        assert len({*gone}) == len(gone), self.told()


class RecreatingBesideSimulation(BesideSimulation, RecreatingSimulation):
    """One run, in which tables join that are created again."""


class AlteringBesideSimulation(BesideSimulation, AlteringSimulation):
    """One run, in which tables are altered while they are loaded."""


class BesideWithoutRangesSimulation(BesideSimulation, SimulationWithoutRanges):
    """One run. Without a key a change is left out until the piece with its row is landed."""

    def _check_deleted(self, table: TableId, rows: list[Any]) -> None:
        """Deletes are not soft."""
