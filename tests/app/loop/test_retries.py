"""Tables whose batches do not get in: tried again at growing distances, and never in the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.retries import CONFLICT_LIMIT, FAULT_LONGEST, UNKNOWN_LIMIT
from mirrorlake.errors import WorkerLost
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.engine import Conflicted, Failed, Outcome, Unknown
from mirrorlake.mirror.faults import TableFault
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.crash_points import no_crash
from mirrorlake.storage.local import LocalStore
from tests.app.zones import MARKER, Zone
from tests.doubles.clock import SteppedClock
from tests.doubles.executors import Held
from tests.sim.engine import Lake, ModelledEngine

FAULT = Failed(TableFault("OSError at probe.py:1", table="s.stuck"))
DEATH = Failed(WorkerLost("the tasks of its batch died: crashed", table="s.stuck"))


@dataclass
class Stuck(ModelledEngine):
    """An engine on which one table does not get on, as long as `answer` is set."""

    answer: Outcome | None = None
    tried: list[float] = field(default_factory=list)
    jobs: list[set[str]] = field(default_factory=list)
    now: Callable[[], float] = float

    def apply(
        self, steps: Sequence[ApplyFiles], before_commit: Callable[[], None]
    ) -> Sequence[Outcome]:
        outcomes = []
        self.jobs.append({step.table.name for step in steps})
        for step in steps:
            if step.table.name == "stuck":
                self.tried.append(self.now())
            if step.table.name == "stuck" and self.answer:
                outcomes.append(self.answer)
            else:
                outcomes += super().apply([step], before_commit)
        return outcomes


class Scene:
    """A zone with two tables, one file each, and a loop whose clock stands still."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.clock, self.held, self.stop = SteppedClock(), Held(), Event()
        self.held.is_open = True
        self.zone = Zone(root, None)  # type: ignore[arg-type]
        for name in ("stuck", "well"):
            self.zone.table(name, "id")
            self.zone.land(name, 1, {"id": [1], MARKER: [0]})
        store = LocalStore(root)
        self.engine = Stuck(Lake(), store, Random(1), no_crash, lost_answers=0.0)
        self.engine.now = self.clock.monotonic
        self.loop = ApplyLoop(
            store,
            self.engine,
            MirrorSettings(**settings),
            self.clock,
            stop=self.stop,
            executors=self.held.executors,
        )
        self.loop.open()

    def recorded(self, name: str) -> int:
        return self.engine.lake.tables[f"Tables/s/{name}"].recorded

    def cycles(self, seconds: float) -> int:
        """Cycles for so long, ten in a second; returns how often the table was tried."""
        before = len(self.engine.tried)
        for _ in range(round(seconds * 10)):
            self.loop.cycle(None)
            self.clock.advance(0.1)
        return len(self.engine.tried) - before

    def errors(self) -> dict[str, str]:
        return {error.table: str(error) for error in self.loop.report.errors}


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "root")


def test_what_fails_after_the_loop_was_asked_to_end_is_no_error_of_its_table(scene: Scene) -> None:
    """Its jobs are cancelled then."""

    def end() -> float:
        scene.stop.set()
        return 0.0

    scene.engine.answer, scene.engine.now = FAULT, end
    assert not scene.loop.once().errors
    assert len(scene.engine.tried) == 1


@pytest.mark.parametrize(
    ("answer", "limit", "told"),
    [
        (Unknown("IOException"), UNKNOWN_LIMIT, "failed 5 times in a row: IOException"),
        (
            Conflicted("a rival"),
            CONFLICT_LIMIT,
            "20 commits in a row conflicted with those of other writers: a rival",
        ),
        (FAULT, 1, "OSError at probe.py:1"),
        (DEATH, 1, "the tasks of its batch died: crashed"),
    ],
    ids=["unknown", "conflicted", "fault", "death"],
)
class TestATableThatDoesNotGetOn:
    def test_once_ends_with_its_error_and_the_others_applied(
        self, scene: Scene, answer: Any, limit: int, told: str
    ) -> None:
        scene.engine.answer = answer
        assert [error.table for error in scene.loop.once().errors] == ["s.stuck"]
        assert told in scene.errors()["s.stuck"]
        assert len(scene.engine.tried) == limit
        assert scene.recorded("well") == 1

    @pytest.mark.full
    def test_it_is_tried_again_ever_more_rarely(
        self, scene: Scene, answer: Any, limit: int, told: str
    ) -> None:
        scene.engine.answer = answer
        scene.loop.once()
        assert 3 <= scene.cycles(60) <= 6
        assert scene.cycles(600) <= 600 / FAULT_LONGEST + 1

    @pytest.mark.full
    def test_its_error_stays_until_it_succeeds(
        self, scene: Scene, answer: Any, limit: int, told: str
    ) -> None:
        scene.engine.answer = answer
        scene.loop.once()
        scene.cycles(30)
        assert "s.stuck" in scene.errors()
        scene.engine.answer = None
        scene.cycles(FAULT_LONGEST)
        assert (scene.errors(), scene.recorded("stuck")) == ({}, 1)

    def test_the_others_go_on_meanwhile(
        self, scene: Scene, answer: Any, limit: int, told: str
    ) -> None:
        scene.engine.answer = answer
        scene.loop.once()
        scene.zone.land("well", 2, {"id": [2], MARKER: [0]})
        scene.cycles(0.1)
        assert scene.recorded("well") == 2

    def test_a_file_that_changed_is_tried_at_once(
        self, scene: Scene, answer: Any, limit: int, told: str
    ) -> None:
        scene.engine.answer = answer
        scene.loop.once()
        scene.engine.answer = None
        scene.zone.land("stuck", 1, {"id": [1, 2], MARKER: [0, 0]})
        scene.cycles(0.2)
        assert (scene.errors(), scene.recorded("stuck")) == ({}, 1)


def test_a_batch_whose_tasks_died_is_tried_beside_and_alone_until_it_is_in(scene: Scene) -> None:
    scene.engine.answer = DEATH
    scene.cycles(0.1)
    scene.held.is_open = False
    for number in range(2, 42):
        scene.zone.land("well", number, {"id": [number], MARKER: [0]})
        assert scene.cycles(0.1) == 0
    assert scene.recorded("well") == 41
    assert len(scene.held.maintenance.submitted) == 1
    scene.held.is_open = True
    scene.cycles(0.1)
    assert scene.engine.jobs[0] == {"stuck", "well"}
    assert {"stuck", "well"} not in scene.engine.jobs[1:]
    assert "s.stuck" in scene.errors()
    scene.engine.answer = None
    scene.cycles(FAULT_LONGEST)
    assert (scene.errors(), scene.recorded("stuck")) == ({}, 1)


def test_no_round_of_large_batches_waits_for_one_whose_tasks_died(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "root", limits=BatchLimits(large_rows=3))
    scene.engine.answer = DEATH
    scene.cycles(0.1)
    scene.held.is_open = False
    scene.cycles(5)
    assert len(scene.held.maintenance.submitted) == 1
    scene.zone.land("well", 2, {"id": list(range(9)), MARKER: [4] * 9})
    scene.cycles(0.1)
    assert len(scene.held.large.submitted) == 1


def test_an_answer_that_is_lost_now_and_then_is_no_error(scene: Scene) -> None:
    for number in range(2, 30):
        scene.zone.land("stuck", number, {"id": [number], MARKER: [0]})
        scene.engine.answer = Unknown("no answer")
        scene.cycles(0.1)
        scene.engine.answer = None
        scene.cycles(0.5)
    assert (scene.errors(), scene.recorded("stuck")) == ({}, 29)


def test_a_table_that_waits_for_its_next_attempt_holds_up_nobody(scene: Scene) -> None:
    scene.engine.answer = Unknown("no answer")
    scene.cycles(0.1)
    assert (scene.recorded("well"), scene.errors()) == (1, {})
    scene.engine.answer = None
    assert not scene.loop.once().errors
    assert scene.recorded("stuck") == 1


def test_a_run_tells_how_many_files_wait(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    told: list[tuple[str, int]] = []
    store = LocalStore(tmp_path)
    scene.loop.close()
    loop = ApplyLoop(
        store,
        scene.engine,
        MirrorSettings(),
        scene.clock,
        pending=lambda table, files: told.append((table.name, files)),
    )
    loop.open()
    loop.once()
    assert [files for name, files in told if name == "well"] == [1, 0]
