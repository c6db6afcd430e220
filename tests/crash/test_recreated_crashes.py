"""A folder of somebody else is recreated, and apply is killed while its table is made anew."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import Zone
from tests.crash.forked import mirrorlake

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.full]


@pytest.mark.parametrize("point", [CrashPoint.TABLE_CREATED, CrashPoint.COMMITTED])
@pytest.mark.clause("LZ-232", "LZ-326")
def test_each_row_of_the_new_files_is_there_once(
    tmp_path: Path, spark: Spark, point: CrashPoint
) -> None:
    zone = Zone(tmp_path / "root", spark)
    fill(zone, "old", 3)
    assert not zone.apply().errors
    shutil.rmtree(zone.folder("t"))
    fill(zone, "new", 2)
    killed(zone, point)
    assert not zone.apply(lambda _loop: None).errors
    assert zone.rows("t") == [(1, "new"), (2, "new")]
    zone.land("t", 3, {"id": [3], "v": ["next"]})
    assert not zone.apply().errors
    assert zone.rows("t") == [(1, "new"), (2, "new"), (3, "next")]


def fill(zone: Zone, text: str, files: int) -> None:
    zone.table("t", "id")
    for number in range(1, files + 1):
        zone.land("t", number, {"id": [number], "v": [text]})


def killed(zone: Zone, point: CrashPoint) -> None:
    """`apply --once` in a process of its own, which kills itself at the point."""
    ended = mirrorlake("apply", "--once", "--root", str(zone.root), CRASH_AT=point)
    assert ended.code == -signal.SIGKILL, ended
