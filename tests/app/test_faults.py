"""Faults outside the landed files: each stops its own table, is shown, and is tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.status import mirror_status
from mirrorlake.apply.engine import Engine
from mirrorlake.apply.strategy import OpenBatch
from mirrorlake.apply.task.landed_rows import LandedRows
from mirrorlake.config import Project
from mirrorlake.mirror.engine import Outcome
from mirrorlake.mirror.steps import ApplyFiles
from mirrorlake.model.state import TableState
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone

pytestmark = pytest.mark.spark


@pytest.fixture
def zone(tmp_path: Path, spark: Spark) -> Zone:
    """Two tables at file 1, and a change of the only row of each, landed and not applied."""
    zone = Zone(tmp_path / "root", spark)
    for name in ("a", "b"):
        zone.table(name, "id")
        zone.land(name, 1, {"id": [1], "v": ["secret"]})
    zone.apply()
    for name in ("a", "b"):
        zone.land(name, 2, {"id": [1], "v": ["new"], MARKER: [1]})
    return zone


def states(zone: Zone) -> dict[str, tuple[TableState, str | None]]:
    found = mirror_status.read(Project(name="p", root=zone.root)).tables
    return {t.table: (t.state, t.error["code"] if t.error else None) for t in found}


def data_file(zone: Zone, name: str) -> Path:
    (path,) = (zone.root / "Tables/s" / name).glob("**/*.parquet")
    return path


class TestADataFileOfTheDeltaTableThatIsGone:
    @pytest.fixture
    def lost(self, zone: Zone, tmp_path: Path) -> Path:
        """Where the data file of table a can be put back from."""
        return data_file(zone, "a").rename(tmp_path / "aside")

    @pytest.mark.full
    @pytest.mark.clause("LZ-267")
    def test_it_stops_its_table_alone(self, zone: Zone, lost: Path) -> None:
        (error,) = zone.apply().errors
        assert (error.table, error.code) == ("s.a", "foreign_table")
        assert ".parquet is missing" in str(error)
        assert "mirrorlake reset s.a" in error.hint
        assert zone.rows("b") == [(1, "new")]

    @pytest.mark.full
    def test_it_is_shown_by_status(self, zone: Zone, lost: Path) -> None:
        zone.apply()
        assert states(zone)["s.a"] == (TableState.FAILED, "foreign_table")
        assert states(zone)["s.b"] == (TableState.REPLICATING, None)

    @pytest.mark.full
    def test_once_it_is_back_the_table_goes_on(self, zone: Zone, lost: Path) -> None:
        name = next((zone.root / "Tables/s/a/_delta_log").glob("*0.json")).read_text()
        zone.apply()
        path = name.split('"path":"')[1].split('"')[0]
        lost.rename(zone.root / "Tables/s/a" / path)
        assert not zone.apply().errors
        assert zone.rows("a") == [(1, "new")]

    @pytest.mark.full
    def test_one_that_is_cut_short_is_named_too(self, zone: Zone) -> None:
        path = data_file(zone, "a")
        path.write_bytes(path.read_bytes()[:-9])
        (error,) = zone.apply().errors
        assert (error.table, error.code) == ("s.a", "foreign_table")
        assert path.name in str(error)


@pytest.mark.full
@pytest.mark.parametrize("is_missing", [True, False], ids=["missing", "garbage"])
def test_a_damaged_log_stops_its_table_alone(zone: Zone, *, is_missing: bool) -> None:
    commit = zone.root / "Tables/s/a/_delta_log" / f"{0:020d}.json"
    if is_missing:
        commit.rename(commit.with_name(f"{1:020d}.json"))
    else:
        commit.write_text("garbage\n")
    (error,) = zone.apply().errors
    assert (error.table, error.code) == ("s.a", "foreign_table")
    assert zone.rows("b") == [(1, "new")]
    assert states(zone)["s.a"] == (TableState.FAILED, "foreign_table")
    assert states(zone)["s.b"] == (TableState.REPLICATING, None)


def before_the_tasks(
    monkeypatch: pytest.MonkeyPatch, action: Callable[[], None]
) -> list[Sequence[ApplyFiles]]:
    """Acts once, between plan and tasks; returns the calls."""
    calls: list[Sequence[ApplyFiles]] = []
    apply = Engine.apply

    def wrapped(
        self: Engine, steps: Sequence[ApplyFiles], check: Callable[[], None]
    ) -> Sequence[Outcome]:
        calls.append(steps)
        if len(calls) == 1:
            action()
        return apply(self, steps, check)

    monkeypatch.setattr(Engine, "apply", wrapped)
    return calls


class TestALandedFileThatIsGoneBeforeItsTask:
    @pytest.mark.clause("LZ-268")
    def test_the_run_goes_on_without_it(self, zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
        path = zone.folder("a") / f"{2:020d}.parquet"
        before_the_tasks(monkeypatch, path.unlink)
        report = zone.apply()
        assert not report.errors  # its publisher took it away, and nothing else waits
        assert (zone.rows("a"), zone.rows("b")) == ([(1, "secret")], [(1, "new")])

    @pytest.mark.full
    def test_a_later_file_waits_for_it(self, zone: Zone, monkeypatch: pytest.MonkeyPatch) -> None:
        zone.land("a", 3, {"id": [3], "v": ["c"], MARKER: [0]})
        before_the_tasks(monkeypatch, (zone.folder("a") / f"{2:020d}.parquet").unlink)
        (error,) = zone.apply().errors
        assert (error.table, error.code) == ("s.a", "missing_file")
        assert zone.rows("b") == [(1, "new")]
        assert states(zone)["s.a"] == (TableState.FAILED, "missing_file")


class TestAFaultThatNobodyForesaw:
    @pytest.mark.full
    def test_it_stops_its_table_alone_and_tells_no_values(
        self, zone: Zone, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What the one strategy does not expect is tried by the other."""
        truly = OpenBatch.rows

        def spoiled(batch: OpenBatch, threads: int = 1) -> LandedRows:
            spoil: Any = {"default": "secret"} if batch.step.table.name == "a" else {}
            return replace(truly(batch, threads), **spoil)

        monkeypatch.setattr(OpenBatch, "rows", spoiled)
        zone.land("a", 2, {"id": [1], "v": ["new"]})
        (error,) = zone.apply().errors
        assert (error.table, error.code) == ("s.a", "internal")
        assert "secret" not in str(error)
        assert zone.rows("b") == [(1, "new")]
