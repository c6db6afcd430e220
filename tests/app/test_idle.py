"""A table in which nothing happens costs a look at it, and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop import planning
from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.maintenance import landing_cleanup
from mirrorlake.landing.cuts import Cut
from mirrorlake.mirror.plan import plan
from mirrorlake.model.crash_points import CrashPoint
from tests.app.operated import Operated
from tests.doubles.clock import SteppedClock


@pytest.fixture
def mirror(tmp_path: Path) -> Operated:
    mirror = Operated(tmp_path / "root")
    for name in ("a", "b"):
        mirror.table(name, "first")
    return mirror


@pytest.fixture
def loop(mirror: Operated) -> Iterator[ApplyLoop]:
    with mirror.running() as loop:
        loop.once()
        yield loop


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were planned for."""
    names: list[str] = []

    def noted(known: Any, *rest: Any) -> Any:
        names.append(known.scan.table.name)
        return plan(known, *rest)

    monkeypatch.setattr(planning, "plan", noted)
    return names


class TestATableIsPlannedForAgain:
    @pytest.fixture(autouse=True)
    def settled(self, loop: ApplyLoop, planned: list[str]) -> None:
        loop.cycle(None)
        planned.clear()

    def test_not_when_nothing_happened(self, loop: ApplyLoop, planned: list[str]) -> None:
        loop.cycle(None)
        assert planned == []

    def test_when_a_file_lands(self, mirror: Operated, loop: ApplyLoop, planned: list[str]) -> None:
        mirror.land("a", 2)
        loop.cycle(None)
        assert planned == ["a"]

    def test_when_its_metadata_is_written_again(
        self, mirror: Operated, loop: ApplyLoop, planned: list[str]
    ) -> None:
        described = mirror.zone.folder("a") / "_metadata.json"
        described.write_text('{"keyColumns": ["id"], "isUpsertDefaultRowMarker": true}')
        loop.cycle(None)
        assert planned == ["a"]

    def test_when_somebody_writes_its_table(
        self, mirror: Operated, loop: ApplyLoop, planned: list[str]
    ) -> None:
        table = mirror.mirrored("a")
        assert table is not None
        table.version += 1
        loop.cycle(None)
        assert planned == ["a"]

    def test_when_a_cut_allows_more(self, loop: ApplyLoop, planned: list[str]) -> None:
        loop.cycle(Cut(1, "stream", "1", None, {"s.a": 2}, full=True))
        assert planned == ["a"]

    def test_when_its_folder_is_made_again(
        self, mirror: Operated, loop: ApplyLoop, planned: list[str]
    ) -> None:
        mirror.delete("a")
        loop.cycle(None)
        mirror.table("a", "new", "rows")
        loop.cycle(None)
        assert "a" in planned


class TickingClock(SteppedClock):
    """A clock on which a second passes with each look."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


class TestCleanup:
    def test_takes_a_bounded_part_of_a_cycle_and_gets_around(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root", cleanup_seconds=0)
        mirror.clock = TickingClock()
        names = [f"t{n}" for n in range(6)]
        for name in names:
            mirror.table(name, "a", "b", "c")
        with mirror.running() as loop:
            left = []
            for _ in range(10):
                loop.cycle(None)
                left.append(sum(len(mirror.files(name)) for name in names))
        assert left[1] > len(names)  # not all in one
        assert left[-1] == len(names)  # the last of each stays

    @pytest.mark.full
    def test_removes_together_what_is_due_within_an_hour(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mirror = Operated(tmp_path / "root")
        mirror.table("t", "a")
        aside = mirror.zone.folder("t") / "_FilesReadyToDelete"
        looks = []
        listed = mirror.store.list

        def noted(path: str) -> Any:
            looks.append(path.endswith("_FilesReadyToDelete"))
            return listed(path)

        with mirror.running() as loop:
            for number in range(2, 62):  # each minute one moves aside
                mirror.land("t", number)
                mirror.cycles(loop, 60, every=60)
            mirror.cycles(loop, 120, every=60)
            monkeypatch.setattr(mirror.store, "list", noted)
            mirror.clock.advance(7 * 86_400 - 3_600)
            for _ in range(180):  # and each minute one is due
                mirror.cycles(loop, 60, every=60)
        assert not list(aside.glob("*.parquet"))
        assert sum(looks) <= 5  # instead of 60

    @pytest.mark.full
    def test_counts_anew_what_is_aside_once_some_of_it_is_removed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(landing_cleanup, "GROUP", 4)
        mirror = Operated(tmp_path / "root")
        mirror.table("t", "a")
        with mirror.running() as loop:
            for number in range(2, 200):
                mirror.land("t", number)
                mirror.cycles(loop, 3_600, every=3_600)  # a week is 168 of them
            left = []
            for number in range(200, 240):
                mirror.land("t", number)
                mirror.cycles(loop, 12 * 3_600, every=12 * 3_600)  # a week is 14 of these
                left.append(len(mirror.files("t")))
            assert max(left[-20:]) <= 14  # of 168 files a fourth would be 42

    def test_makes_durable_what_a_process_before_it_may_not_have(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root", cleanup_seconds=3_600)
        mirror.table("t", "a", "b", "c")
        with mirror.running() as loop:
            loop.cycle(None)  # applied, and nothing moved
        points: list[CrashPoint] = []
        with mirror.running(points.append) as loop:
            loop.once()
        assert points.count(CrashPoint.CLEANUP_MOVED_ONE) == 2
        assert points.index(CrashPoint.COMMIT_DURABLE) < points.index(CrashPoint.CLEANUP_MOVED_ONE)
        assert points.count(CrashPoint.COMMIT_DURABLE) == 1

    def test_moves_files_in_groups_where_many_are_aside(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(landing_cleanup, "GROUP", 4)
        mirror = Operated(tmp_path / "root")
        mirror.table("t", "a")
        written = []
        replace = mirror.store.replace

        def noted(path: str, content: bytes) -> None:
            if path.endswith("Info.json"):
                written.append(len(content))
            replace(path, content)

        monkeypatch.setattr(mirror.store, "replace", noted)
        with mirror.running() as loop:
            for number in range(2, 60):
                mirror.land("t", number)
                loop.cycle(None)
            assert len(written) < 20  # instead of 58, whatever the number of files
            assert len(mirror.files("t")) <= 60 // 4
            loop.once()
        assert mirror.files("t") == {59}
