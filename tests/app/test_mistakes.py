"""What people do by mistake, and what becomes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mirrorlake.app.reset import plan_reset
from mirrorlake.config import Project
from mirrorlake.errors import LeaseHeld, LeaseLost, TableError
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.lease import TERM
from tests.app.zones import MARKER, Zone
from tests.doubles.clock import SteppedClock

pytestmark = pytest.mark.spark


@pytest.fixture
def zone(tmp_path: Path, spark: Spark) -> Zone:
    """A table with two rows applied, and a change landed."""
    zone = Zone(tmp_path / "root", spark)
    zone.table("t", "id")
    zone.land("t", 1, {"id": [1, 2], "v": ["a", "b"]})
    zone.apply()
    zone.land("t", 2, {"id": [2, 3], "v": ["B", "c"], MARKER: [1, 0]})
    return zone


@pytest.mark.full
def test_a_second_process_is_refused_and_told_who_works(zone: Zone) -> None:
    def second(_first: object) -> None:
        with pytest.raises(LeaseHeld, match=r"process \d+ on"):
            zone.loop().open()

    zone.apply(second)
    assert zone.rows("t") == [(1, "a"), (2, "B"), (3, "c")]


@pytest.mark.full
def test_a_driver_that_stalls_and_wakes_up_after_another_took_over_changes_nothing(
    zone: Zone,
) -> None:
    clock = SteppedClock()

    def take_over(point: CrashPoint) -> None:
        """The first driver stalls after its last check, just before its commit."""
        if point is CrashPoint.COMMIT_BEGUN:
            clock.advance(TERM.total_seconds() + 1)
            rival = zone.loop(clock)
            rival.open()
            rival.once()

    stalled = zone.loop(clock, take_over)
    stalled.open()
    with pytest.raises(LeaseLost):
        stalled.once()
    assert zone.rows("t") == [(1, "a"), (2, "B"), (3, "c")]
    version = stalled._engine.progress("Tables/s/t")
    assert (version.recorded, version.version) == (2, 1)


@pytest.mark.full
def test_a_restored_table_stops_until_it_is_reset(zone: Zone) -> None:
    zone.apply()
    path = zone.root / "Tables/s/t"
    zone.spark.session.sql(f"restore table delta.`{path}` to version as of 0")
    zone.land("t", 3, {"id": [4], "v": ["d"], MARKER: [0]})
    (error,) = zone.apply().errors
    assert error.code == "table_restored"
    assert "mirrorlake reset s.t" in error.hint
    plan_reset(Project.of_root(zone.root), ["s.t"]).execute()
    assert not zone.apply().errors
    assert zone.rows("t") == [(1, "a"), (2, "B"), (3, "c"), (4, "d")]


def test_a_reset_is_refused_when_files_are_gone(zone: Zone) -> None:
    zone.apply()
    shutil.rmtree(zone.folder("t") / "_FilesReadyToDelete")
    with pytest.raises(TableError, match="file 1 no longer exists"):
        plan_reset(Project.of_root(zone.root), ["s.t"])


@pytest.mark.full
def test_a_copied_root_goes_on_from_where_it_was_copied(
    zone: Zone, tmp_path: Path, spark: Spark
) -> None:
    copy = Zone(tmp_path / "copy", spark)
    shutil.copytree(zone.root, copy.root)
    copy.apply()
    zone.apply()
    assert copy.rows("t") == zone.rows("t") == [(1, "a"), (2, "B"), (3, "c")]


@pytest.mark.full
def test_a_landing_zone_that_is_copied_without_its_tables_makes_them_again(
    zone: Zone, tmp_path: Path, spark: Spark
) -> None:
    zone.apply()
    copy = Zone(tmp_path / "copy", spark)
    shutil.copytree(zone.root / "Files", copy.root / "Files")
    assert not copy.apply().errors
    assert copy.rows("t") == zone.rows("t")


def test_tables_inside_each_other_are_both_refused(zone: Zone) -> None:
    outer = zone.root / "Files/LandingZone/s"
    outer.mkdir()
    (outer / "_metadata.json").write_text('{"keyColumns": ["id"]}')
    report = zone.apply()
    assert {error.code for error in report.errors} == {"nested_tables"}
    assert {error.table for error in report.errors} == {"s", "s.t"}


@pytest.mark.full
def test_a_table_of_somebody_else_in_the_way_is_not_touched(zone: Zone) -> None:
    path = zone.root / "Tables/s/theirs"
    zone.spark.session.range(5).write.format("delta").save(str(path))
    zone.table("theirs", "id")
    zone.land("theirs", 1, {"id": [1]})
    (error,) = zone.apply().errors
    assert error.code == "foreign_table"
    assert len(zone.rows("theirs")) == 5
