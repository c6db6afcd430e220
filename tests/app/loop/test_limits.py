"""The limits of the original, which are off unless a project sets them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirrorlake.app.loop.limits import TOO_MANY, Limits
from mirrorlake.app.mirror import Mirror
from mirrorlake.app.own_root import check_apart
from mirrorlake.config import Project
from mirrorlake.errors import TooManyTables, UsageError
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.mirror.steps import CreateTable, TablePlan
from mirrorlake.model.state import TableState
from mirrorlake.model.table import Schema, TableId
from mirrorlake.storage.local import LocalStore
from tests.app.operated import DAY, Operated
from tests.doubles.clock import SteppedClock


def new_table(name: str) -> TablePlan:
    """The plan of a table that is to be created."""
    table, path = TableId("s", name), f"Tables/s/{name}"
    create = CreateTable(table, path, name, Schema(()), (), "g")
    return TablePlan(table, path, name, TableState.SNAPSHOTTING, (create,))


def waiting(mirror: Operated, name: str) -> str:
    return mirror.once().tables[TableId("s", name)].waiting


class TestTheNumberOfTables:
    @pytest.mark.clause("LZ-278")
    def test_those_beyond_it_are_not_started_and_the_others_go_on(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root", max_tables=2)
        for name in ("b", "c"):
            mirror.table(name, "x")
        assert not mirror.once().errors
        mirror.table("a", "x")  # before them by its name, and yet not in the place of one
        mirror.land("b", 2)
        (error,) = mirror.once().errors
        assert (type(error), error.table) == (TooManyTables, "s.a")
        assert TOO_MANY in str(error)
        assert mirror.mirrored("a") is None
        assert mirror.rows("b") == [(1, "x"), (2, "new")]

    @pytest.mark.clause("LZ-278")
    def test_one_more_starts_when_another_is_gone(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root", max_tables=1)
        mirror.table("a", "x")
        mirror.table("b", "x")
        assert [error.table for error in mirror.once().errors] == ["s.b"]
        mirror.delete("a")
        assert not mirror.once().errors
        assert mirror.rows("b") == [(1, "x")]

    @pytest.mark.clause("LZ-278")
    def test_one_whose_first_batch_is_under_way_counts(self, store: LocalStore) -> None:
        limits = Limits(store, SteppedClock(), MirrorSettings(max_tables=1))
        planned = [new_table("a"), new_table("b")]
        allowed = limits.allowed(planned, {TableId("s", "b"): planned[1]})
        assert [type(table.error) for table in allowed] == [TooManyTables, type(None)]
        assert allowed[1].steps

    @pytest.mark.clause("LZ-278")
    def test_there_is_none_by_default(self, tmp_path: Path) -> None:
        mirror = Operated(tmp_path / "root")
        for number in range(30):
            mirror.table(f"t{number}", "x")
        assert not mirror.once().errors
        assert len(mirror.lake.tables) == 30


class TestTheBytesOfADay:
    @pytest.fixture
    def mirror(self, tmp_path: Path) -> Operated:
        """A mirror that may apply one byte a day, and has."""
        mirror = Operated(tmp_path / "root", max_bytes_per_day=1)
        mirror.table("t", "a")
        mirror.once()
        mirror.land("t", 2)
        return mirror

    @pytest.mark.clause("LZ-277", "LZ-278")
    def test_when_they_are_applied_tables_wait_for_the_next(self, mirror: Operated) -> None:
        tomorrow = mirror.clock.now().date().toordinal() + 1
        told = waiting(mirror, "t")
        until = type(mirror.clock.now().date()).fromordinal(tomorrow)
        assert told == (
            f"The replication is being throttled and expected to continue at {until}T00:00:00."
        )
        assert mirror.rows("t") == [(1, "a")]
        mirror.clock.advance(DAY)
        assert waiting(mirror, "t") == ""
        assert mirror.rows("t") == [(1, "a"), (2, "new")]

    def test_a_restart_does_not_begin_the_day_again(self, mirror: Operated) -> None:
        for _ in range(3):
            mirror.once()
        assert mirror.rows("t") == [(1, "a")]


class TestRoots:
    @pytest.mark.clause("LZ-001")
    @pytest.mark.parametrize("inner", ["sub", "Tables/s", "Files/LandingZone/deep/er"])
    def test_a_root_inside_that_of_another_mirror_is_refused(
        self, tmp_path: Path, inner: str
    ) -> None:
        (tmp_path / "a/Files/Mirrorlake").mkdir(parents=True)
        mirror = Mirror(Project.of_root(tmp_path / "a" / inner))
        with pytest.raises(UsageError, match="inside the root of another mirror"):
            mirror.apply_once()
        assert not (tmp_path / "a" / inner).exists()

    @pytest.mark.clause("LZ-001")
    def test_a_root_around_another_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a/b/Files/Mirrorlake").mkdir(parents=True)
        with pytest.raises(UsageError, match="another mirror lies inside this root"):
            check_apart(tmp_path / "a")

    @pytest.mark.clause("LZ-001")
    def test_roots_beside_each_other_are_fine(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            (tmp_path / name / "Files/Mirrorlake").mkdir(parents=True)
            check_apart(tmp_path / name)
        check_apart(tmp_path / "new")
