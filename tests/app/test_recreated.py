"""Folders that their publishers recreate: what was not applied is never put aside as applied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mirrorlake.app.loop.report import ApplyReport
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import Zone

pytestmark = [pytest.mark.spark, pytest.mark.clause("LZ-251")]

OLD = [(1, "old"), (2, "old"), (3, "old")]


@pytest.fixture
def zone(tmp_path: Path, spark: Spark) -> Zone:
    """Three files applied: the last one is in the folder, the others were put aside."""
    zone = Zone(tmp_path / "root", spark)
    zone.table("t", "id")
    land(zone, "old", 1, 2, 3)
    zone.apply()
    assert present(zone) == {3}
    return zone


def land(zone: Zone, text: str, *numbers: int) -> None:
    for number in numbers:
        zone.land("t", number, {"id": [number], "v": [text]})


def recreate(zone: Zone) -> None:
    shutil.rmtree(zone.folder("t"))
    zone.table("t", "id")


def present(zone: Zone) -> set[int]:
    return {int(path.stem) for path in zone.folder("t").glob("*.parquet")}


def stopped(zone: Zone, report: ApplyReport, *told: str) -> bool:
    (error,) = report.errors
    assert error.code == "foreign_table"
    assert "mirrorlake reset s.t" in error.hint
    assert all(text in str(error) for text in told)
    return zone.rows("t") == OLD


@pytest.mark.full
@pytest.mark.clause("LZ-222", "LZ-232")
@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3, 4)], ids=str)
def test_a_recreated_folder_makes_its_table_anew(zone: Zone, numbers: tuple[int, ...]) -> None:
    recreate(zone)
    land(zone, "new", *numbers)
    assert not zone.apply().errors
    assert zone.rows("t") == [(number, "new") for number in numbers]
    land(zone, "next", numbers[-1] + 1)
    assert not zone.apply().errors
    assert zone.rows("t")[-1] == (numbers[-1] + 1, "next")


@pytest.mark.full
def test_without_its_first_file_it_stops_and_nothing_is_moved(zone: Zone) -> None:
    recreate(zone)
    land(zone, "new", 2)
    assert stopped(zone, zone.apply(), "file 3, the last one applied")
    assert present(zone) == {2}


@pytest.mark.full
@pytest.mark.clause("LZ-268")
@pytest.mark.parametrize("number", [1, 2])
def test_a_number_that_was_put_aside_and_comes_again_stops_the_table(
    zone: Zone, number: int
) -> None:
    land(zone, "new", number)
    assert stopped(zone, zone.apply(), f"file {number} was applied and moved to the cleanup folder")
    assert present(zone) == {number, 3}
    (zone.folder("t") / f"{number:020d}.parquet").unlink()
    assert not zone.apply().errors


@pytest.mark.full
def test_a_copy_of_the_zone_with_other_times_goes_on(zone: Zone) -> None:
    os.utime(zone.folder("t") / f"{3:020d}.parquet", (4e9, 4e9))
    land(zone, "next", 4)
    assert not zone.apply().errors
    assert zone.rows("t") == [*OLD, (4, "next")]


def test_a_publisher_that_takes_its_last_file_away_goes_on(zone: Zone) -> None:
    (zone.folder("t") / f"{3:020d}.parquet").unlink()
    land(zone, "next", 4)
    assert not zone.apply().errors
    assert zone.rows("t") == [*OLD, (4, "next")]
