"""Hundreds of seeds: whatever happens, every table is what it claims to be."""

from __future__ import annotations

from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from mirrorlake.capture.backfill.backfills import BACKFILL_STARTED
from mirrorlake.capture.backfill.noted_rows import BACKFILL_RESUMED
from tests.profiles import tries
from tests.sim.altering import ALTERING, AlteringSimulation
from tests.sim.beside import (
    AlteringBesideSimulation,
    BesideSimulation,
    BesideWithoutRangesSimulation,
    RecreatingBesideSimulation,
)
from tests.sim.recreating import RecreatingSimulation
from tests.sim.simulation import Simulation
from tests.sim.without_ranges import NOTING, SimulationWithoutRanges

GROUPS = 20
SEEDS = tries(600, long=100_000)
WITHOUT_RANGES = tries(240, quick=16, long=30_000)
BESIDE = tries(160, quick=6, long=20_000)
Run = TypeVar("Run", bound=Simulation)


def ran(run: Run, note: str) -> Run:
    """A simulation that has been run. note: is added to an error, to find its seed."""
    try:
        run.run()
    except BaseException as error:
        error.add_note(note)
        raise
    return run


@pytest.mark.parametrize("group", range(GROUPS))
def test_tables_equal_the_source_whatever_happens(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        ran(Simulation(seed), f"seed {seed}")


@pytest.mark.clause("ST-290", "CF-086")
@pytest.mark.parametrize("group", range(4))
def test_backfills_mend_whatever_somebody_did_to_the_tables(group: int) -> None:
    for seed in range(group, SEEDS // 5, 4):
        ran(Simulation(seed, is_damaged=True), f"seed {seed}, damaged")


@pytest.mark.parametrize("group", range(2))
def test_tables_equal_the_source_after_repairs(group: int) -> None:
    losses = 0
    for seed in range(group, SEEDS // 10, 2):
        losses += ran(Simulation(seed, loses=True), f"seed {seed}, loses").losses
    assert losses > SEEDS // 40


@pytest.mark.parametrize("group", range(4))
def test_tables_equal_the_source_whatever_becomes_of_their_columns(group: int) -> None:
    for seed in range(group, SEEDS // 3, 4):
        ran(AlteringSimulation(seed), f"seed {seed}, alters")


@pytest.mark.parametrize("group", range(2))
def test_tables_equal_the_source_when_they_are_created_again(group: int) -> None:
    recreated = 0
    for seed in range(group, SEEDS // 10, 2):
        recreated += ran(RecreatingSimulation(seed), f"seed {seed}, recreates").recreated
    assert recreated > SEEDS // 20


@pytest.mark.clause("ST-290")
@pytest.mark.parametrize("group", range(2))
def test_tables_without_ranges_equal_the_source_whatever_happens(group: int) -> None:
    for seed in range(group, WITHOUT_RANGES, 2):
        ran(SimulationWithoutRanges(seed), f"seed {seed}, without ranges")


@pytest.mark.clause("ST-290", "CF-086")
def test_backfills_mend_tables_without_ranges() -> None:
    for seed in range(WITHOUT_RANGES // 5):
        ran(SimulationWithoutRanges(seed, is_damaged=True), f"seed {seed}, damaged")


def test_tables_without_ranges_equal_the_source_after_repairs() -> None:
    losses = 0
    for seed in range(WITHOUT_RANGES // 4):
        losses += ran(SimulationWithoutRanges(seed, loses=True), f"seed {seed}, loses").losses
    assert losses > WITHOUT_RANGES // 16


@pytest.mark.parametrize("group", range(2))
def test_tables_that_are_loaded_beside_their_changes_get_all_rows(group: int) -> None:
    found = []
    for seed in range(group, BESIDE, 2):
        run = ran(BesideSimulation(seed, loses=not seed % 4), f"seed {seed}, beside")
        found += [feed for t in run.lake.tables.values() for _chunk, feed in t.backfilled]
        ran(RecreatingBesideSimulation(seed), f"seed {seed}, recreates, beside")
        ran(AlteringBesideSimulation(seed), f"seed {seed}, alters, beside")
        ran(BesideWithoutRangesSimulation(seed), f"seed {seed}, without ranges, beside")
    assert sum(map(bool, found)) > BESIDE // 4


@pytest.mark.full
def test_the_simulation_does_go_on_with_noted_parts_and_pieces() -> None:
    with capture_logs() as logs:
        runs = [SimulationWithoutRanges(seed) for seed in range(60)]
        for run in runs:
            run.run()
    trace = [line for run in runs for line in run.trace]
    for point in NOTING:
        assert any(line.endswith(f"died: {point}") for line in trace), point
    assert sum(entry["event"] == BACKFILL_RESUMED for entry in logs) > 20
    begun = [entry for entry in logs if entry["event"] == BACKFILL_STARTED]
    assert sum(entry["rows"] > 0 for entry in begun) > 5


@pytest.mark.full
def test_the_simulation_does_alter_tables_and_crashes_meanwhile() -> None:
    runs = [AlteringSimulation(seed) for seed in range(80)]
    for run in runs:
        run.run()
    trace = [line for run in runs for line in run.trace]
    tables = [table for run in runs for table in run.lake.tables.values()]
    assert sum(len(table.columns.at) > 1 for table in tables) > 80
    assert sum(bool(table.altered) for table in tables) > 60
    assert sum(line.count(": key ") for line in trace) > 30
    assert sum(line.count(": widen ") for line in trace) > 15
    for point in ALTERING:
        assert any(line.endswith(f"died: {point}") for line in trace), point


@pytest.mark.full
def test_the_simulation_does_read_altered_tables_again() -> None:
    runs = [AlteringSimulation(seed) for seed in range(40, 60)]
    for run in runs:
        run.run()
    found = [feed for r in runs for t in r.lake.tables.values() for _chunk, feed in t.backfilled]
    assert sum(map(bool, found)) > 10


@pytest.mark.full
def test_the_simulation_does_backfill_tables_that_change_meanwhile() -> None:
    runs = [Simulation(seed, is_damaged=bool(seed % 2)) for seed in range(10, 26)]
    for run in runs:
        run.run()
    found = [
        feed
        for run in runs
        for table in run.lake.tables.values()
        for _chunk, feed in table.backfilled
    ]
    assert sum(not feed for feed in found) > 20
    assert any(found)


@pytest.mark.parametrize(
    "kind", [Simulation, AlteringSimulation, RecreatingSimulation, SimulationWithoutRanges]
)
def test_the_same_seed_gives_the_same_trace(kind: type[Simulation]) -> None:
    one, other = kind(7), kind(7)
    one.run()
    other.run()
    assert one.trace == other.trace
    assert one.files.content.keys() == other.files.content.keys()


@pytest.mark.full
def test_the_simulation_does_crash_processes() -> None:
    runs = [Simulation(seed) for seed in range(20)]
    for run in runs:
        run.run()
    assert sum(run.crashes for run in runs) > 20
