"""A publisher is killed at each of its steps and started again: no batch lost, none twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.crash.forked import forked
from tests.profiles import some
from tests.publisher import scripted
from tests.publisher.mirrored_zone import apply
from tests.sim.engine import Lake

pytestmark = pytest.mark.crash

POINTS = [
    f"{point}#{passage}"
    for point, passages in (
        (CrashPoint.BATCH_ASSIGNED, 3),
        (CrashPoint.BATCH_STAGED_ONE, 4),
        (CrashPoint.TABLE_DESCRIBED, 1),
        (CrashPoint.BATCH_SEALED, 3),
        (CrashPoint.BATCH_PUBLISHED_ONE, 4),
        (CrashPoint.BATCH_RECORDED, 3),
    )
    for passage in range(1, passages + 1)
]


def run(root: Path, crash_at: str = "") -> int:
    ended = forked(scripted.main, str(root), CRASH_AT=crash_at)
    assert ended.code in {0, -signal.SIGKILL}, ended
    return ended.code


@pytest.mark.full
@pytest.mark.clause("LZ-121", "LZ-135", "LZ-136")
@pytest.mark.parametrize("point", some(POINTS, 5))
def test_a_kill_at_any_step_changes_nothing(tmp_path: Path, point: str) -> None:
    assert run(tmp_path, point) == -signal.SIGKILL
    assert run(tmp_path) == 0
    assert_published(tmp_path)


@pytest.mark.clause("LZ-231")
def test_what_is_published_after_a_killed_drop_begins_anew(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    ended = forked(scripted.drop, str(tmp_path), CRASH_AT=CrashPoint.FOLDER_DROPPED)
    assert ended.code == -signal.SIGKILL, ended
    assert not (tmp_path / "Files/LandingZone/s.schema/t").exists()
    assert run(tmp_path) == 0
    assert_published(tmp_path)


def assert_published(tmp_path: Path) -> None:
    """Each batch is there once, and its rows are mirrored."""
    folder = tmp_path / "Files/LandingZone/s.schema/t"
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("_"))
    assert names == [f"{number:020d}.parquet" for number in (1, 2, 3, 4)]
    assert sorted(path.name for path in folder.glob("_*")) == ["_metadata.json", "_publisher.json"]
    lake = Lake()
    apply(LocalStore(tmp_path), lake, _Hurried())
    rows = lake.tables["Tables/s/t"].table.rows
    assert sorted(rows) == [
        (0, "a", None),
        (2, "a", None),
        (10, "x", None),
        (11, "y", 1.5),
    ]


class _Hurried(WallClock):
    """The real time, in which nobody waits."""

    def sleep(self, seconds: float) -> None:
        """The process whose lease it was has ended."""
