"""All is killed inside the tasks of a batch, or its driver is: what they wrote is never read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.crash.entry import CRASH_AT
from tests.crash.forked import PATIENCE
from tests.delta.handmade import HandmadeTable
from tests.delta.readers import rows_by_delta_rs

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.full]

CORES = 2
REPOSITORY = Path(__file__).parents[2]

HOOKS = """
import os, pathlib, signal

in_stages = "IN_STAGES" in os.environ
driver = int(os.environ.setdefault("DRIVER", str(os.getpid())))


def parent(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def killing(function):
    def called(*arguments, **options):
        function(*arguments, **options)
        line = [os.getpid()]
        while line[-1] != driver:
            line.append(parent(line[-1]))
        for process in [driver] if in_stages else reversed(line):
            os.kill(process, signal.SIGKILL)

    return called


if os.getpid() != driver:
    from mirrorlake.delta.write import data_files

    if name := os.environ["KILL_AFTER"]:
        setattr(data_files, name, killing(getattr(data_files, name)))
elif in_stages:
    from mirrorlake.apply.stages import spread

    spread.Spread.suits = lambda self, step, steps, slots: spread._can_be_spread(step)
"""
"""In every Python below the first: what has written a file of one kind kills the first one, its
Java, and all that is between them and itself. With stages, in which every batch goes then, it kills
the first one alone: the others go on for as long as Java lets them."""

ORPHANS = {"write_data": 1, "write_changes": 2, "write_bytes": 3}
"""Files that are there when one of this kind is: data, then images, then a deletion vector."""


def files(table: Path) -> set[Path]:
    """All files of a table but its log."""
    return {path for kind in ("*.parquet", "*.bin") for path in table.rglob(kind)}


def run(zone: Zone, folder: Path, cores: int = 1, **more: str) -> subprocess.CompletedProcess[str]:
    """`apply --once`, with the hooks. more: its environment."""
    settings = {
        "name": "shop",
        "root": str(zone.root),
        "spark": {"master": f"local[{cores}]", "driver_memory": "1g"},
    }
    (folder / "mirrorlake.yaml").write_text(yaml.safe_dump(settings))
    (folder / "sitecustomize.py").write_text(HOOKS)
    paths = [str(folder), str(REPOSITORY), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    hooks = {"PYTHONPATH": os.pathsep.join(paths), "KILL_AFTER": ""}
    return subprocess.run(
        [sys.executable, "-m", "tests.crash.entry", "apply", "--once"],
        env=os.environ | hooks | more,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def landed(zone: Zone) -> Path:
    """A table of a hundred rows, and a change of forty of them, with sixty new ones, that waits to
    be applied. Returns the table."""
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": range(100), "name": ["old"] * 100, MARKER: [0] * 100})
    assert not zone.apply().errors
    zone.land("orders", 2, {"id": range(60, 160), "name": ["new"] * 100, MARKER: [4] * 100})
    return zone.root / "Tables/s/orders"


def is_applied_once(zone: Zone, table: Path) -> None:
    expected = Counter((n, "old" if n < 60 else "new") for n in range(160))
    assert Counter(zone.rows("orders")) == expected
    assert Counter(rows_by_delta_rs(table)) == expected
    feed = Counter(kind for kind, _row in HandmadeTable(table).feed(1).elements())
    assert feed == {"update_preimage": 40, "update_postimage": 40, "insert": 60}
    actions = [action for v in TableLog(table).versions() for action in TableLog(table).actions(v)]
    assert [action["txn"]["version"] for action in actions if "txn" in action] == [1, 2]


@pytest.mark.parametrize(
    "after",
    ["write_data", pytest.param("write_changes", marks=pytest.mark.long), "write_bytes"],
)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_batch_whose_task_is_killed_with_everything_is_applied_once(
    tmp_path: Path, spark: Spark, after: str
) -> None:
    zone = Zone(tmp_path / "root", spark)
    table = landed(zone)
    before = files(table)
    done = run(zone, tmp_path, KILL_AFTER=after)
    assert done.returncode == -signal.SIGKILL, f"{done.returncode}: {done.stderr}"
    assert TableLog(table).versions()[-1] == 0
    orphans = files(table) - before
    assert len(orphans) == ORPHANS[after]
    for orphan in orphans:  # whoever opened one would say so
        orphan.write_bytes(b"of a task that was killed")
    assert not zone.apply().errors
    is_applied_once(zone, table)


@pytest.mark.parametrize(
    ("hooks", "version"),
    [
        pytest.param({"KILL_AFTER": "write_changes"}, 0, id="under way"),
        pytest.param({CRASH_AT: f"{CrashPoint.STAGE_WRITTEN}"}, 0, id="all stages written"),
        pytest.param({CRASH_AT: f"{CrashPoint.COMMITTED}"}, 1, id="after the commit"),
    ],
)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_batch_whose_driver_is_killed_beside_its_stages_is_applied_once(
    tmp_path: Path, spark: Spark, hooks: dict[str, str], version: int
) -> None:
    zone = Zone(tmp_path / "root", spark)
    table = landed(zone)
    before = files(table)
    done = run(zone, tmp_path, CORES, IN_STAGES="yes", **hooks)
    assert done.returncode == -signal.SIGKILL, f"{done.returncode}: {done.stderr}"
    assert TableLog(table).versions()[-1] == version
    written = files(table) - before
    assert written
    if version == 0:
        for orphan in written:
            orphan.write_bytes(b"of tasks that were left alone")
    assert not zone.apply().errors
    is_applied_once(zone, table)
