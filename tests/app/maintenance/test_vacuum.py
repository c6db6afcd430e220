"""When tables are vacuumed: each once a day, across processes, and one at a time."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.app.loop.background import Kind
from mirrorlake.app.maintenance import file_maintenance, vacuum
from mirrorlake.app.maintenance.dates import Dates
from mirrorlake.app.maintenance.vacuum import Vacuums
from mirrorlake.config import load
from mirrorlake.errors import ConfigError
from tests.app.operated import DAY, Operated
from tests.doubles.executors import Held

WEEK = timedelta(days=7)


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    mirror = Operated(tmp_path / "root")
    for name in ("a", "b"):
        mirror.table(name, "x")
    mirror.once()
    return mirror


def vacuumed(mirror: Operated) -> dict[str, int]:
    return {path[-1]: len(table.vacuumed) for path, table in mirror.lake.tables.items()}


@pytest.mark.clause("LZ-263")
class TestOnceADay:
    def test_a_new_table_is_not_vacuumed(self, mirror: Operated) -> None:
        mirror.once()
        assert vacuumed(mirror) == {"a": 0, "b": 0}

    def test_runs_that_end_vacuum_what_is_due(self, mirror: Operated) -> None:
        for _ in range(4):
            mirror.clock.advance(DAY / 2)
            mirror.once()
        assert vacuumed(mirror) == {"a": 2, "b": 2}
        assert {one for t in mirror.lake.tables.values() for one in t.vacuumed} == {WEEK}

    def test_a_run_vacuums_one_table_at_a_time(self, mirror: Operated) -> None:
        mirror.clock.advance(2 * DAY)
        held = Held()
        held.is_open = True
        with mirror.running(executors=held.executors) as loop:
            for expected in ({"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 1, "b": 1}):
                for _ in range(2):
                    loop.cycle(None)
                    loop._vacuum()
                    loop.cycle(None)
                    assert vacuumed(mirror) == expected
                mirror.clock.advance(61)

    def test_a_table_waits_for_its_own_vacuum_and_no_other_does(self, mirror: Operated) -> None:
        mirror.clock.advance(2 * DAY)
        held = Held()
        with mirror.running(executors=held.executors) as loop:
            loop.cycle(None)
            loop._vacuum()
            for name in ("a", "b"):
                mirror.land(name, 2)
            loop.cycle(None)
            recorded = {path[-1]: table.recorded for path, table in mirror.lake.tables.items()}
            assert recorded == {"a": 1, "b": 2}
            held.is_open = True
            loop.once()
        assert mirror.rows("a") == mirror.rows("b") != []

    def test_no_table_waits_for_the_vacuum_of_another(self, mirror: Operated) -> None:
        mirror.clock.advance(2 * DAY)
        held = Held()
        with mirror.running(executors=held.executors) as loop:
            for _ in range(5):
                loop.cycle(None)
                loop._vacuum()
                mirror.clock.advance(61)
            assert len(loop._background.under_way) == 1
            held.is_open = True
            for _ in range(3):
                loop.cycle(None)
                loop._vacuum()
                mirror.clock.advance(61)
            assert vacuumed(mirror) == {"a": 1, "b": 1}

    def test_checkpoints_of_many_tables_keep_none_waiting(
        self, mirror: Operated, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(file_maintenance, "CHECKPOINT_EVERY", 1)
        mirror.clock.advance(2 * DAY)
        held = Held()
        with mirror.running(executors=held.executors) as loop:
            for number in range(2, 5):  # checkpoints are begun, and none is ever done
                for name in ("a", "b"):
                    mirror.land(name, number)
                loop.cycle(None)
            assert any(flight.kind is Kind.MAINTENANCE for flight in loop._background._background)
            loop._vacuum()
            assert len(loop._background.under_way) == 1
            held.is_open = True
            loop.once()
        assert vacuumed(mirror) == {"a": 1, "b": 1}

    def test_a_day_goes_on_while_a_table_is_held(self, mirror: Operated) -> None:
        paths = ["Tables/s/a", "Tables/s/b"]
        vacuums = Vacuums(mirror.store, mirror.engine(), mirror.clock, WEEK)
        assert vacuums.next(paths, paths) is None
        mirror.clock.advance(DAY - 60)
        assert vacuums.next(paths[:1], paths) is None  # the other has a batch under way
        found = set()
        for _ in paths:
            mirror.clock.advance(60)
            found.add(vacuums.next(paths, paths))
        assert found == set(paths)

    def test_a_clock_that_was_wrong_delays_a_vacuum_by_a_day(self, mirror: Operated) -> None:
        paths = ["Tables/s/a"]
        vacuums = Vacuums(mirror.store, mirror.engine(), mirror.clock, WEEK)
        Dates(mirror.store, vacuum.PATH).write({paths[0]: mirror.clock.now() + timedelta(days=400)})
        assert vacuums.next(paths, paths) is None
        mirror.clock.advance(DAY)
        assert vacuums.next(paths, paths) == paths[0]

    def test_of_a_table_that_is_gone_nothing_is_remembered(self, mirror: Operated) -> None:
        vacuums = Vacuums(mirror.store, mirror.engine(), mirror.clock, WEEK)
        vacuums.next(["Tables/s/a", "Tables/s/b"], ["Tables/s/a", "Tables/s/b"])
        mirror.clock.advance(60)
        vacuums.next(["Tables/s/a"], ["Tables/s/a"])
        assert list(Dates(mirror.store, vacuum.PATH).read()) == ["Tables/s/a"]

    def test_the_retention_is_that_of_the_settings(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path, vacuum=timedelta(days=30))
        mirror.table("a", "x")
        mirror.once()
        mirror.clock.advance(DAY)
        mirror.once()
        assert mirror.lake.tables["Tables/s/a"].vacuumed == [timedelta(days=30)]

    def test_it_can_be_left_to_others(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path, vacuum=None)
        mirror.table("a", "x")
        mirror.once()
        mirror.clock.advance(2 * DAY)
        mirror.once()
        assert vacuumed(mirror) == {"a": 0}

    def test_a_table_of_somebody_else_is_left_alone(self, mirror: Operated) -> None:
        mirror.lake.tables["Tables/s/a"].generation = ""
        mirror.clock.advance(2 * DAY)
        mirror.once()
        mirror.clock.advance(2 * DAY)
        mirror.once()
        assert vacuumed(mirror)["a"] == 0


class TestSettings:
    def read(self, folder: Path, text: str) -> timedelta | None:
        path = folder / "mirrorlake.yaml"
        path.write_text(f"name: a\nroot: b\nmirror: {text}\n")
        return load(path, {}).mirror.vacuum

    def test_a_week_is_the_default(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "{}") == WEEK

    def test_it_can_be_switched_off(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, "{vacuum_days: null}") is None

    def test_less_than_a_week_has_to_be_said_twice(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="vacuum_early"):
            self.read(tmp_path, "{vacuum_days: 6.9}")
        days = self.read(tmp_path, "{vacuum_days: 1, vacuum_early: true}")
        assert days == timedelta(days=1)
