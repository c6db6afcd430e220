"""A compaction is killed: rows and feed are what they were, and the next one goes on."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.session.spark_session import Spark
from tests.app.zones import MARKER, Zone
from tests.crash.folded import folded
from tests.crash.forked import mirrorlake
from tests.spark import reading

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.full]

ROWS = 60_000
CHANGED = ROWS // 2


@pytest.mark.parametrize(
    ("point", "strategy"),
    [
        (CrashPoint.FILES_COMPACTED, "direct"),
        (CrashPoint.COMPACTION_COMMITTED, "direct"),
        pytest.param(CrashPoint.COMPACTION_COMMITTED, "merge", marks=pytest.mark.long),
    ],
)
@pytest.mark.clause("CF-095", "CF-156", "LZ-258")
def test_a_compaction_that_is_killed_changes_nothing(
    tmp_path: Path, spark: Spark, point: CrashPoint, strategy: str
) -> None:
    zone = Zone(tmp_path / "root", spark)
    zone.table("t", "id")
    texts = [random.Random(n).randbytes(20).hex() for n in range(ROWS)]  # too large for one class
    zone.land("t", 1, {"id": list(range(ROWS)), "v": texts})
    zone.apply()
    changed = {"id": list(range(CHANGED)), "v": ["new"] * CHANGED, MARKER: [1] * CHANGED}
    zone.land("t", 2, changed)
    project = tmp_path / "mirrorlake.yaml"
    project.write_text(f"name: p\nroot: ./root\nmirror:\n  strategy: {strategy}\n")
    ended = mirrorlake("apply", "--once", "-c", str(project), CRASH_AT=point)
    assert ended.code == -signal.SIGKILL, ended
    zone.land("t", 3, {"id": [0], "v": ["last"], MARKER: [1]})
    assert not zone.apply().errors
    expected = [(0, "last"), *((n, "new") for n in range(1, CHANGED))]
    expected += list(enumerate(texts))[CHANGED:]
    assert zone.rows("t") == sorted(expected, key=repr)
    path = zone.root / "Tables/s/t"
    (large,) = [f for f in TableLog(path).snapshot().files.values() if f["size"] > 1 << 20]
    # Of what has died in it before nothing is left; the last change may have been in it.
    assert large.get("deletionVector", {}).get("cardinality", 0) <= 1
    assert sorted(tuple(row.values()) for row in folded(path, ["id"])) == sorted(expected)
    feed = reading.feed(spark.session, str(path))
    assert sorted(sum(f.values()) for f in feed.values()) == [2, 2 * CHANGED, ROWS]
