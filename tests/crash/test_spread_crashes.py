"""Apply is killed while a batch is spread over many tasks: what it leaves is never read."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mirrorlake.app.apply import ApplyLoop
from mirrorlake.lake.log import TableLog
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.seams import Point, WallClock, killing_probe, no_probe
from mirrorlake.spark.spread import SCRATCH
from tests.app.zones import MARKER, Zone
from tests.crash.project import PATIENCE
from tests.doubles.handmade_engine import HandmadeEngine
from tests.lake.handmade import HandmadeTable

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
SPREAD = 2

WITHOUT_ORPHANS = {
    f"{Point.PIECES_WRITTEN}#1",
    f"{Point.PIECES_WRITTEN}#2",
    str(Point.COMMITTED),
}
"""Points at which the table has no file that no commit names."""

DYING = """
import sys
from pathlib import Path
from tests.crash.test_spread_crashes import apply
apply(Path(sys.argv[1]), sys.argv[2])
"""


def apply(root: Path, point: str | None = None) -> None:
    """`apply --once` with every batch in pieces; killed at a point."""
    store = Zone(root).store
    probe = killing_probe(point) if point else no_probe
    engine = HandmadeEngine(store, probe, spread=SPREAD)
    loop = ApplyLoop(store, engine, MirrorSettings(), WallClock(), probe=probe)
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def named(table: Path) -> set[Path]:
    """The data and change files that commits of a table name."""
    log = TableLog(table)
    actions = [action for version in log.versions() for action in log.actions(version)]
    files = [action.get("add") or action.get("cdc") for action in actions]
    return {table / file["path"] for file in files if file}


@pytest.mark.parametrize(
    "point",
    [
        pytest.param(f"{Point.PIECES_WRITTEN}#1", id="keys dealt out"),
        pytest.param(f"{Point.PIECES_WRITTEN}#2", id="net changes"),
        pytest.param(f"{Point.PIECES_WRITTEN}#3", id="vectors"),
        pytest.param(f"{Point.PIECES_WRITTEN}#4", id="data files and images"),
        pytest.param(str(Point.BATCH_WRITTEN), id="all pieces"),
        pytest.param(str(Point.COMMIT_BEGUN), id="before the commit"),
        pytest.param(str(Point.COMMITTED), id="after the commit"),
    ],
)
def test_a_batch_that_is_killed_in_pieces_is_applied_once(tmp_path: Path, point: str) -> None:
    zone, table = Zone(tmp_path / "root"), tmp_path / "root/Tables/s/orders"
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": range(100), "name": ["old"] * 100, MARKER: [0] * 100})
    apply(zone.root)
    zone.land("orders", 2, {"id": range(60, 160), "name": ["new"] * 100, MARKER: [4] * 100})
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(zone.root), point],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{done.returncode}: {done.stderr}"
    orphans = set(table.rglob("*.parquet")) - named(table)
    assert bool(orphans) == (point not in WITHOUT_ORPHANS)
    apply(zone.root)
    assert Counter(name for _id, name in zone.rows("orders")) == {"old": 60, "new": 100}
    feed = Counter(kind for kind, _row in HandmadeTable(table).feed(2).elements())
    assert feed == {"update_preimage": 40, "update_postimage": 40, "insert": 60}
    assert not orphans & named(table)
    if point != str(Point.COMMITTED):  # then there is nothing left to spread, and to sweep before
        assert not zone.store.list(SCRATCH).folders
