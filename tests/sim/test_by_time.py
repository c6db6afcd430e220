"""Seeds of the simulation of tables in timestamp mode; each one is a different history."""

from __future__ import annotations

import pytest

from mirrorlake.errors import ProgressLost
from tests.profiles import tries
from tests.sim.by_time import SimulationByTime

SEEDS = tries(120, long=2_000)
GROUPS = 4


@pytest.mark.full
@pytest.mark.clause("LZ-122", "LZ-124", "LZ-125", "LZ-126", "LZ-127", "LZ-250", "LZ-326")
@pytest.mark.parametrize("group", range(GROUPS))
def test_each_file_is_applied_once_and_in_its_order_whatever_happens(group: int) -> None:
    for seed in range(group, SEEDS, GROUPS):
        try:
            SimulationByTime(seed).run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.full
def test_the_simulation_does_crash_processes_and_forget_commits() -> None:
    runs = [SimulationByTime(seed) for seed in range(20)]
    for run in runs:
        run.run()
    assert sum(run.crashes for run in runs) > 20
    assert sum(table.forgotten for run in runs for table in run.lake.tables.values()) > 50


@pytest.fixture
def ended() -> SimulationByTime:
    """A run at its end, of which the tables have forgotten every commit."""
    run = SimulationByTime(3)
    run.run()
    for table in run.lake.tables.values():
        table.forgotten = len(table.named)
        assert table.named
    return run


@pytest.mark.clause("LZ-127")
def test_the_side_record_alone_tells_what_was_applied(ended: SimulationByTime) -> None:
    before = {path: table.version for path, table in ended.lake.tables.items()}
    ended.make_durable()
    assert {path: table.version for path, table in ended.lake.tables.items()} == before


@pytest.mark.clause("LZ-258")
def test_without_record_and_commits_the_table_stops_and_reads_nothing_twice(
    ended: SimulationByTime,
) -> None:
    for path in [path for path in ended.files.content if "/processed/" in path]:
        del ended.files.content[path]
    before = {path: table.version for path, table in ended.lake.tables.items()}
    files = {path for p in ended.publishers for path in p.landed(ended.files.content)}
    loop = ended.new_loop(rivals=False)
    loop.open()
    errors = loop.once().errors
    assert [type(error) for error in errors] == [ProgressLost, ProgressLost]
    assert all("mirrorlake reset s." in error.hint for error in errors)
    assert {path: table.version for path, table in ended.lake.tables.items()} == before
    assert files <= ended.files.content.keys()
