"""Everything is killed inside the task of a batch: what the task has written is never read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from mirrorlake.lake.log import TableLog
from mirrorlake.spark.session import Spark
from tests.app.zones import MARKER, Zone
from tests.crash.project import PATIENCE
from tests.lake.handmade import HandmadeTable
from tests.lake.readers import rows_by_delta_rs

pytestmark = [pytest.mark.spark, pytest.mark.crash]

HOOKS = """
import os, pathlib, signal

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
        for process in reversed(line):
            os.kill(process, signal.SIGKILL)

    return called


if os.getpid() != driver:
    from mirrorlake.lake import datafile

    name = os.environ["KILL_AFTER"]
    setattr(datafile, name, killing(getattr(datafile, name)))
"""
"""In every Python below the first: what has written a file of one kind kills the first one, its
Java, and all that is between them and itself."""

ORPHANS = {"write_data": 1, "write_changes": 2, "write_bytes": 3}
"""Files that are there when one of this kind is: data, then images, then a deletion vector."""


def files(table: Path) -> set[Path]:
    """All files of a table but its log."""
    return {path for kind in ("*.parquet", "*.bin") for path in table.rglob(kind)}


def killed(zone: Zone, folder: Path, after: str) -> None:
    """`apply --once` on one core, which dies in a task that has written a file of this kind."""
    settings = {
        "name": "shop",
        "root": str(zone.root),
        "spark": {"master": "local[1]", "driver_memory": "1g"},
    }
    (folder / "mirrorlake.yaml").write_text(yaml.safe_dump(settings))
    (folder / "sitecustomize.py").write_text(HOOKS)
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", "apply", "--once"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "KILL_AFTER": after},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, f"{done.returncode}: {done.stderr}"


@pytest.mark.parametrize(
    "after",
    ["write_data", pytest.param("write_changes", marks=pytest.mark.long), "write_bytes"],
)
@pytest.mark.clause("LZ-326", "LZ-258")
def test_a_batch_whose_task_is_killed_with_everything_is_applied_once(
    tmp_path: Path, spark: Spark, after: str
) -> None:
    zone, table = Zone(tmp_path / "root", spark), tmp_path / "root/Tables/s/orders"
    zone.table("orders", "id")
    zone.land("orders", 1, {"id": range(100), "name": ["old"] * 100, MARKER: [0] * 100})
    assert not zone.apply().errors
    before = files(table)
    zone.land("orders", 2, {"id": range(60, 160), "name": ["new"] * 100, MARKER: [4] * 100})
    killed(zone, tmp_path, after)
    assert TableLog(table).versions()[-1] == 1
    orphans = files(table) - before
    assert len(orphans) == ORPHANS[after]
    for orphan in orphans:  # whoever opened one would say so
        orphan.write_bytes(b"of a task that was killed")

    assert not zone.apply().errors
    expected = Counter((n, "old" if n < 60 else "new") for n in range(160))
    assert Counter(zone.rows("orders")) == expected
    assert Counter(rows_by_delta_rs(table)) == expected
    feed = Counter(kind for kind, _row in HandmadeTable(table).feed(2).elements())
    assert feed == {"update_preimage": 40, "update_postimage": 40, "insert": 60}
    actions = [action for v in TableLog(table).versions() for action in TableLog(table).actions(v)]
    assert [action["txn"]["version"] for action in actions if "txn" in action] == [1, 2]
