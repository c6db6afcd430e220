"""Maintenance is killed at each durable step of clustering: rows and feed stay, and the next one
ends what was begun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from mirrorlake.app.maintenance.maintain import MaintenanceStep, TableMaintenance
from mirrorlake.app.maintenance.vacuum import Vacuums
from mirrorlake.apply.in_process.tables import LogTables
from mirrorlake.mirror.compaction import clustering, small_files
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashHook, CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.maintenance.test_maintain import PATH, Kept
from tests.doubles.handmade_engine import in_process_engine

pytestmark = [pytest.mark.crash, pytest.mark.full]


def maintain(root: Path, reached: CrashHook) -> list[MaintenanceStep]:
    """Cluster the small table as if its files were large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_files, "SMALLEST", 1_000)
        patch.setattr(clustering, "CLASSES", (1, 1, 1))
        patch.setattr(clustering, "FILE_ROWS", 5)
        store = LocalStore(root)
        engine = in_process_engine(store, reached, tables=LogTables(store, reached=reached))
        week = timedelta(days=7)
        vacuums = Vacuums(store, engine, WallClock(), week, 2 * week, lambda _path: [])
        return list(TableMaintenance(engine, vacuums, lambda: None).run(PATH))


def killed_at(number: int) -> CrashHook:
    seen: list[CrashPoint] = []

    def reached(point: CrashPoint) -> None:
        seen.append(point)
        if len(seen) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


@pytest.mark.clause("CF-095", "CF-156")
def test_clustering_that_is_killed_at_any_step_is_ended_by_the_next(tmp_path: Path) -> None:
    table = Kept(tmp_path / "root")
    before, version = table.content(), table.engine.progress(PATH).version
    shutil.copytree(table.root, kept := tmp_path / "kept")
    points: list[CrashPoint] = []
    whole = [step.act for step in maintain(table.root, points.append)]
    assert "cluster" in whole
    assert {CrashPoint.FILES_COMPACTED, CrashPoint.COMPACTION_COMMITTED} <= set(points)
    script = "import sys, pathlib; from tests.crash.test_clustering_crashes import *; "
    script += "maintain(pathlib.Path(sys.argv[1]), killed_at(int(sys.argv[2])))"
    for number, point in enumerate(points, start=1):
        shutil.rmtree(table.root)
        shutil.copytree(kept, table.root)
        command = [sys.executable, "-c", script, str(table.root), str(number)]
        ended = subprocess.run(command, check=False, timeout=120)
        assert ended.returncode == -signal.SIGKILL, point
        table.engine = in_process_engine(table.zone.store)
        assert table.content() == before, point
        maintain(table.root, lambda _point: None)
        table.engine = in_process_engine(table.zone.store)
        assert table.content() == before, point
        assert table.engine.progress(PATH).version >= version + 1, point
        assert "cluster" not in [step.act for step in maintain(table.root, lambda _point: None)]
