"""Apply is killed while a batch is spread over many tasks: what it leaves is never read.

In waves the driver comes by after each of them. The tasks of a crew go through all of them without
it, so that with a crew the same points lie after the last wave, and others inside its tasks.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.seams import CrashPoint, WallClock, kill_at, no_crash
from mirrorlake.spark import crew, task
from mirrorlake.spark.spread import SCRATCH
from tests.app.zones import MARKER, Zone
from tests.crash.project import PATIENCE
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import HandmadeEngine

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
SPREAD = 2

WITHOUT_ORPHANS = {
    f"{CrashPoint.STAGE_WRITTEN}#1",
    f"{CrashPoint.STAGE_WRITTEN}#2",
    str(CrashPoint.COMMITTED),
}
"""Points at which the table has no file that no commit names."""

POINTS = {
    "keys dealt out": f"{CrashPoint.STAGE_WRITTEN}#1",
    "net changes": f"{CrashPoint.STAGE_WRITTEN}#2",
    "vectors": f"{CrashPoint.STAGE_WRITTEN}#3",
    "data files and images": f"{CrashPoint.STAGE_WRITTEN}#4",
    "all pieces": str(CrashPoint.BATCH_WRITTEN),
    "before the commit": str(CrashPoint.COMMIT_BEGUN),
    "after the commit": str(CrashPoint.COMMITTED),
}
PIECES = ("DealSpec", "FoldSpec", "TakeSpec", "WriteSpec")

DYING = """
import sys
from tests.crash.test_spread_crashes import die
die(*sys.argv[1:])
"""


def apply(root: Path, point: str = "", *, crew: bool = False) -> None:
    """`apply --once` with every batch in pieces; killed at a point."""
    store = Zone(root).store
    reached = kill_at(point) if point else no_crash
    engine = HandmadeEngine(store, reached, spread=SPREAD, crew=crew)
    loop = ApplyLoop(store, engine, MirrorSettings(), WallClock(), reached=reached)
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def die(root: str, as_crew: str, point: str, piece: str) -> None:
    """Let this process die at a point, or when a member of a crew has done its piece of one kind
    and has not told the others. Who comes is waited for, however slow the machine."""
    crew.ROLL_CALL = crew.PATIENCE = float(PATIENCE)
    work = task.run

    def run(spec: task.Spec) -> task.TaskResult:
        result = work(spec)
        if type(spec).__name__ == piece:
            kill_at(CrashPoint.STAGE_WRITTEN)(CrashPoint.STAGE_WRITTEN)
        return result

    task.run = run
    apply(Path(root), point, crew=bool(as_crew))


def named(table: Path) -> set[Path]:
    """The data and change files that commits of a table name."""
    log = TableLog(table)
    actions = [action for version in log.versions() for action in log.actions(version)]
    files = [action.get("add") or action.get("cdc") for action in actions]
    return {table / file["path"] for file in files if file}


def killed(root: Path, *, crew: bool, point: str = "", piece: str = "") -> set[Path]:
    """The change of a hundred rows is killed. Returns the files that it leaves in the table."""
    zone, table = Zone(root), root / "Tables/s/orders"
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": range(100), "name": ["old"] * 100, MARKER: [0] * 100})
    apply(zone.root)
    zone.land("orders", 2, {"id": range(60, 160), "name": ["new"] * 100, MARKER: [4] * 100})
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(zone.root), "crew" * crew, point, piece],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{done.returncode}: {done.stderr}"
    return set(table.rglob("*.parquet")) - named(table)


def is_applied_once(root: Path, orphans: set[Path], *, crew: bool) -> None:
    """By the next process, which uses nothing of what was left."""
    table = root / "Tables/s/orders"
    apply(root, crew=crew)
    assert Counter(name for _id, name in Zone(root).rows("orders")) == {"old": 60, "new": 100}
    feed = Counter(kind for kind, _row in HandmadeTable(table).feed(2).elements())
    assert feed == {"update_preimage": 40, "update_postimage": 40, "insert": 60}
    assert TableLog(table).versions()[-1] == 2
    assert not orphans & named(table)


def members(root: Path) -> int:
    """How many tasks of a crew have left word in the scratch folder that they are there."""
    return len(list((root / SCRATCH).rglob("here-*.json")))


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
@pytest.mark.parametrize("crew", [False, True], ids=["in waves", "as a crew"])
def test_a_batch_that_is_killed_in_pieces_is_applied_once(
    tmp_path: Path, point: str, crew: bool
) -> None:
    root, committed = tmp_path / "root", point == str(CrashPoint.COMMITTED)
    orphans = killed(root, crew=crew, point=point)
    if crew:
        assert bool(orphans) == (not committed)
    else:
        assert bool(orphans) == (point not in WITHOUT_ORPHANS)
    if point.startswith(CrashPoint.STAGE_WRITTEN):
        assert members(root) == SPREAD * crew
    is_applied_once(root, orphans, crew=crew)
    if not committed:  # then there is nothing left to spread, and to sweep before
        assert not Zone(root).store.list(SCRATCH).folders


@pytest.mark.parametrize("piece", PIECES)
def test_a_batch_that_is_killed_inside_a_task_of_its_crew_is_applied_once(
    tmp_path: Path, piece: str
) -> None:
    root = tmp_path / "root"
    orphans = killed(root, crew=True, piece=piece)
    assert members(root) == SPREAD
    assert bool(orphans) == (piece in {"TakeSpec", "WriteSpec"})
    is_applied_once(root, orphans, crew=True)
    assert not Zone(root).store.list(SCRATCH).folders
