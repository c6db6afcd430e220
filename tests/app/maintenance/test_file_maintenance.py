"""Files of tables between batches: few, mostly alive, and no longer waited for than a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.loop.background import Kind
from mirrorlake.app.maintenance import file_maintenance
from mirrorlake.errors import TableError
from mirrorlake.mirror.batch_limits import BatchLimits
from mirrorlake.mirror.compaction import small_files as compaction
from mirrorlake.mirror.compaction.small_files import FANOUT, counted
from mirrorlake.mirror.engine import Applied, Conflicted, Failed, Outcome
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import Compact
from mirrorlake.mirror.table.progress import table_name
from mirrorlake.model.table import TableId
from mirrorlake.storage.local import LocalStore
from tests.app.operated import Operated
from tests.app.zones import MARKER, Zone
from tests.doubles.clock import SteppedClock
from tests.doubles.executors import Held
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.sim.engine import ModelledEngine

ROWS, BATCH = 400, 20


class Worked:
    """A table of true files, with the tasks of the engine and without a JVM."""

    def __init__(self, root: Path, **limits: Any) -> None:
        self.store, self.held = LocalStore(root), Held()
        self.engine = in_process_engine(self.store)
        self.zone = Zone(self.store.root, None)  # type: ignore[arg-type]
        self.random, self.rows = Random(1), dict[int, str]()
        self.number = 0
        self.zone.table("t", "id")
        self.land(dict.fromkeys(range(ROWS), "first"))
        settings = MirrorSettings(limits=BatchLimits(**limits))
        self.loop = ApplyLoop(
            self.store, self.engine, settings, SteppedClock(), executors=self.held.executors
        )
        self.loop.open()

    def land(self, rows: dict[int, str | None]) -> None:
        """A file that sets rows, or deletes them where there is no text."""
        self.number += 1
        markers = [2 if text is None else 4 for text in rows.values()]
        columns = {"id": list(rows), "v": list(rows.values()), MARKER: markers}
        self.zone.land("t", self.number, columns)
        for row, text in rows.items():
            self.rows.pop(row, None)
            if text is not None:
                self.rows[row] = text

    def change(self) -> None:
        chosen = self.random.sample(range(ROWS), BATCH)
        self.land({n: None if self.random.random() < 0.2 else f"{self.number}" for n in chosen})

    def files(self) -> list[Any]:
        return list(self.engine._logs.log("Tables/s/t").snapshot().files.values())

    def content(self) -> Counter[tuple[Any, ...]]:
        return Counter(map(tuple, HandmadeReader(self.store).rows("Tables/s/t")))


@pytest.mark.full
@pytest.mark.clause("LZ-263", "CF-156")
def test_over_many_small_batches_files_stay_few_and_mostly_alive(tmp_path: Path) -> None:
    worked = Worked(tmp_path / "root")
    for _ in range(120):
        worked.change()
        worked.loop.cycle(None)
        files = worked.files()
        assert len(files) <= FANOUT + 1
        # What dies between two joinings is what so many batches touch.
        stored = ROWS + FANOUT * BATCH
        known = [counted(file) for file in files]
        share = sum(file.gone for file in known) / sum(file.rows for file in known)
        assert share <= FANOUT * BATCH / stored + 0.01
    assert worked.content() == Counter(worked.rows.items())


class TestALongRearrangement:
    @pytest.fixture
    def worked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worked:
        """A table whose files are about to be compacted, by work that counts as long."""
        monkeypatch.setattr(compaction, "JOINED_ROWS", 0)  # no batch takes files along
        worked = Worked(tmp_path / "root", large_rows=ROWS // 2)
        worked.held.is_open = True
        worked.loop.once()
        worked.held.is_open = False
        while not worked.loop._background:
            worked.change()
            worked.loop.cycle(None)
        return worked

    def test_keeps_its_own_table_waiting_and_no_other(self, worked: Worked) -> None:
        before = worked.number
        worked.change()
        worked.zone.table("quiet", "id")
        worked.zone.land("quiet", 1, {"id": [1]})
        worked.loop.cycle(None)
        assert worked.engine.progress("Tables/s/quiet").recorded == 1
        assert worked.engine.progress("Tables/s/t").recorded == before

    def test_is_one_step_and_then_the_batches_go_on(self, worked: Worked) -> None:
        many = len(worked.files())
        worked.change()
        worked.held.is_open = True
        worked.loop.cycle(None)  # notes the one, applies the other
        assert len(worked.files()) < many
        assert worked.engine.progress("Tables/s/t").recorded == worked.number
        assert worked.content() == Counter(worked.rows.items())


@dataclass
class Tried(ModelledEngine):
    """There is always something to compact, and this is what becomes of it."""

    outcome: Outcome | None = None
    tried: int = 0

    def compaction(self, path: str) -> Compact | None:
        return Compact(TableId.parse(table_name(path)), path, 1)

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        self.tried += 1
        return [self.outcome for _step in steps]


@pytest.mark.parametrize(
    ("outcome", "is_left_alone"),
    [
        (Applied(1), False),
        (Conflicted("another writer was faster"), False),
        (Failed(TableError("a disk is full", table="s.t")), True),
        (None, True),
    ],
)
def test_what_came_to_nothing_is_not_tried_again_soon(
    tmp_path: Path, outcome: Outcome | None, is_left_alone: bool
) -> None:
    mirror = Operated(tmp_path / "root")
    mirror.table("t", "first")
    mirror.kind = partial(Tried, outcome=outcome)  # type: ignore[assignment]
    with mirror.running() as loop:
        engine: Any = loop._engine
        loop.once()
        for number in (2, 3):
            mirror.land("t", number)
            loop.once()
        assert engine.tried == (1 if is_left_alone else 3)
        mirror.clock.advance(file_maintenance.REST_SECONDS)
        mirror.land("t", 4)
        loop.once()
        assert engine.tried == (2 if is_left_alone else 4)


@dataclass
class Due(ModelledEngine):
    """Each table has so many rows to compact, once."""

    rows: int = 1
    compacted: list[str] = field(default_factory=list)

    def compaction(self, path: str) -> Compact | None:
        if path in self.compacted:
            return None
        return Compact(TableId.parse(table_name(path)), path, self.rows)

    def compact(
        self, steps: Sequence[Compact], before_commit: Callable[[], None]
    ) -> Sequence[Outcome | None]:
        self.compacted += [step.path for step in steps]
        return [Applied(1) for _step in steps]


class TestTablesThatAreDueTogether:
    TABLES, LARGE = 5, 100

    def mirror(self, root: Path, rows: int) -> Operated:
        mirror = Operated(root, limits=BatchLimits(large_rows=self.LARGE))
        for number in range(self.TABLES):
            mirror.table(f"t{number}", "first")
        mirror.kind = partial(Due, rows=rows)  # type: ignore[assignment]
        return mirror

    def written(self, mirror: Operated, loop: ApplyLoop, number: int) -> None:
        """A batch of each table, and a cycle."""
        for table in range(self.TABLES):
            mirror.land(f"t{table}", number)
        loop.cycle(None)

    def recorded(self, mirror: Operated) -> list[int]:
        tables = [mirror.mirrored(f"t{number}") for number in range(self.TABLES)]
        return [table.recorded for table in tables if table is not None]

    def test_take_no_more_of_a_cycle_than_one_of_them_may(self, tmp_path: Path) -> None:
        mirror = self.mirror(tmp_path / "root", rows=40)
        with mirror.running() as loop:
            engine: Any = loop._engine
            done = []
            loop.cycle(None)
            for number in (2, 3, 4):
                done.append(len(engine.compacted))
                self.written(mirror, loop, number)
        assert done == [2, 4, 5]

    def test_do_not_wait_for_each_other_s_long_ones(self, tmp_path: Path) -> None:
        mirror, held = self.mirror(tmp_path / "root", rows=self.LARGE + 1), Held()
        with mirror.running(executors=held.executors) as loop:
            engine: Any = loop._engine
            loop.cycle(None)  # the first one begins with its compaction
            self.written(mirror, loop, 2)
            assert self.recorded(mirror) == [1, 2, 2, 2, 2]
            held.is_open = True
            for number in range(3, 3 + 2 * self.TABLES):
                self.written(mirror, loop, number)
            assert len(engine.compacted) == self.TABLES
            loop.once()
        assert set(self.recorded(mirror)) == {number}

    @pytest.mark.parametrize("rows", [60, LARGE + 1], ids=["short", "long"])
    def test_have_their_turn_beside_one_that_is_always_due(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
    ) -> None:
        mirror = self.mirror(tmp_path / "root", rows)

        def compaction(engine: Due, path: str) -> Compact:
            return Compact(TableId.parse(table_name(path)), path, engine.rows)

        monkeypatch.setattr(Due, "compaction", compaction)
        held = Held()
        held.is_open = True
        with mirror.running(executors=held.executors) as loop:
            engine: Any = loop._engine
            loop.cycle(None)
            for number in range(2, 2 + 4 * self.TABLES):
                self.written(mirror, loop, number)
            assert len(set(engine.compacted)) == self.TABLES

    @pytest.mark.parametrize("rows", [40, LARGE + 1], ids=["short", "long"])
    def test_have_all_had_their_turn_when_there_are_no_more_batches(
        self, tmp_path: Path, rows: int
    ) -> None:
        mirror = self.mirror(tmp_path / "root", rows)
        with mirror.running() as loop:
            loop.once()
            engine: Any = loop._engine
            assert len(engine.compacted) == len(set(engine.compacted)) == self.TABLES


@dataclass
class Unkept(ModelledEngine):
    """No checkpoint of this engine succeeds."""

    def checkpoint(self, path: str) -> None:
        super().checkpoint(path)
        raise TableError("the disk is full", table=path)


@dataclass
class Begun:
    """Counts what is begun, and does nothing of it."""

    begun: int = 0

    def begin(self, _kind: Kind, _work: Callable[[], Any]) -> None:
        self.begun += 1


class TestCheckpoints:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_maintenance, "CHECKPOINT_EVERY", 5)

    @pytest.fixture
    def mirror(self, tmp_path: Path) -> Operated:
        mirror = Operated(tmp_path / "root")
        mirror.table("t", "first")
        return mirror

    @pytest.fixture
    def held(self) -> Held:
        return Held()

    def batches(self, mirror: Operated, loop: ApplyLoop, numbers: Iterator[int]) -> None:
        for number in numbers:
            mirror.land("t", number)
            loop.cycle(None)

    def test_follow_each_other_at_a_distance_of_commits(self, mirror: Operated, held: Held) -> None:
        held.is_open = True
        with mirror.running(executors=held.executors) as loop:
            loop.once()
            self.batches(mirror, loop, iter(range(2, 24)))
            assert loop._engine.checkpoints == ["Tables/s/t"] * 4  # type: ignore[attr-defined]

    def test_of_a_table_that_was_made_anew_begin_anew(self) -> None:
        nobody: Any = None  # is asked for the checkpoints that do not come to be written
        background: Any = Begun()
        care_of = file_maintenance.FileMaintenance(
            nobody, background, lambda: None, MirrorSettings(), SteppedClock()
        )
        for version in [*range(1_000, 1_010), *range(20)]:
            care_of._checkpoint("Tables/t", version)
        assert background.begun == 6

    def test_keep_no_batch_waiting(self, mirror: Operated, held: Held) -> None:
        with mirror.running(executors=held.executors) as loop:
            loop.cycle(None)
            self.batches(mirror, loop, iter(range(2, 24)))
            table = mirror.mirrored("t")
            assert table is not None
            assert table.recorded == 23
            assert len(held.maintenance.submitted) == 4

    def test_one_that_fails_is_told_and_stops_nothing(self, mirror: Operated, held: Held) -> None:
        mirror.kind, held.is_open = Unkept, True
        with mirror.running(executors=held.executors) as loop, capture_logs() as logs:
            loop.once()
            self.batches(mirror, loop, iter(range(2, 8)))
        assert [log["code"] for log in logs if log["event"] == file_maintenance.CHECKPOINT_FAILED]
        table = mirror.mirrored("t")
        assert table is not None
        assert table.recorded == 7

    def test_of_tables_that_are_written_together_are_due_one_after_another(
        self, tmp_path: Path, held: Held
    ) -> None:
        mirror = Operated(tmp_path / "many")
        for number in range(30):
            mirror.table(f"t{number}", "first")
        with mirror.running(executors=held.executors) as loop:
            loop.cycle(None)
            due = []
            for number in range(2, 12):
                before = len(held.maintenance.submitted)
                for table in range(30):
                    mirror.land(f"t{table}", number)
                loop.cycle(None)
                due.append(len(held.maintenance.submitted) - before)
        assert sum(due) == 60
        assert max(due) <= 15
        assert due[:5] == due[5:]
