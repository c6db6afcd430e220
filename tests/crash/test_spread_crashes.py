"""Apply is killed while a batch goes in stages of many tasks: what it leaves is never read."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.apply.stages import own_fold, tasks
from mirrorlake.apply.stages.spread import Exchange
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint, no_crash
from tests.app.zones import MARKER, Zone
from tests.crash.entry import kill_at
from tests.crash.forked import forked
from tests.delta.handmade import HandmadeTable
from tests.doubles.handmade_engine import ALWAYS, in_process_engine
from tests.profiles import some

pytestmark = pytest.mark.crash

SPREAD = 2

POINTS = {
    "vectors": f"{CrashPoint.STAGE_WRITTEN}#1",
    "data files and images": f"{CrashPoint.STAGE_WRITTEN}#2",
    "all stages": str(CrashPoint.BATCH_WRITTEN),
    "before the commit": str(CrashPoint.COMMIT_BEGUN),
    "after the commit": str(CrashPoint.COMMITTED),
}
TASKS = ("_read_keys", "_fold", "_take", "_write")
OWN_TASK = "_fold_and_take"
"""The only one before the last, where each task folds all keys."""


def apply(root: Path, point: str = "", exchange: Exchange = ALWAYS) -> None:
    """`apply --once` with every batch in stages; killed at a point."""
    store = Zone(root).store
    reached = kill_at(point) if point else no_crash
    engine = in_process_engine(store, reached, spread=SPREAD, exchange=exchange)
    loop = ApplyLoop(store, engine, MirrorSettings(), WallClock(), reached=reached)
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def die(root: str, point: str, task: str) -> None:
    """Let this process die at a point, or when a task of one stage has done its work."""
    if task:
        place = own_fold if task == OWN_TASK else tasks
        truly = getattr(place, task)

        def run(*arguments: Any) -> Any:
            truly(*arguments)
            kill_at(CrashPoint.STAGE_WRITTEN)(CrashPoint.STAGE_WRITTEN)

        setattr(place, task, run)
    apply(Path(root), point, Exchange() if task == OWN_TASK else ALWAYS)


def named(table: Path) -> set[Path]:
    """The data and change files that commits of a table name."""
    log = TableLog(table)
    actions = [action for version in log.versions() for action in log.actions(version)]
    files = [action.get("add") or action.get("cdc") for action in actions]
    return {table / file["path"] for file in files if file}


def killed(root: Path, *, point: str = "", task: str = "") -> set[Path]:
    """The change of a hundred rows is killed. Returns the files that it leaves in the table."""
    zone, table = Zone(root), root / "Tables/s/orders"
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": range(100), "name": ["old"] * 100, MARKER: [0] * 100})
    apply(zone.root)
    zone.land("orders", 2, {"id": range(60, 160), "name": ["new"] * 100, MARKER: [4] * 100})
    ended = forked(die, str(zone.root), point, task)
    assert ended.code == -signal.SIGKILL, ended
    return set(table.rglob("*.parquet")) - named(table)


def is_applied_once(root: Path, orphans: set[Path]) -> None:
    """By the next process, which uses nothing of what was left."""
    table = root / "Tables/s/orders"
    apply(root)
    assert Counter(name for _id, name in Zone(root).rows("orders")) == {"old": 60, "new": 100}
    feed = Counter(kind for kind, _row in HandmadeTable(table).feed(1).elements())
    assert feed == {"update_preimage": 40, "update_postimage": 40, "insert": 60}
    assert TableLog(table).versions()[-1] == 1
    assert not orphans & named(table)


@pytest.mark.full
@pytest.mark.parametrize("point", some(list(POINTS.values()), 3), ids=POINTS)
def test_a_batch_that_is_killed_between_stages_is_applied_once(tmp_path: Path, point: str) -> None:
    root = tmp_path / "root"
    orphans = killed(root, point=point)
    assert bool(orphans) == (point != CrashPoint.COMMITTED)
    is_applied_once(root, orphans)


@pytest.mark.parametrize("task", [*some(list(TASKS), 2), OWN_TASK])
def test_a_batch_that_is_killed_inside_a_task_of_a_stage_is_applied_once(
    tmp_path: Path, task: str
) -> None:
    root = tmp_path / "root"
    orphans = killed(root, task=task)
    assert bool(orphans) == (task in {"_take", "_write", OWN_TASK})
    is_applied_once(root, orphans)
