"""Tables whose files are found by time, on Spark and Delta: each file once, through crashes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.app.mirror import Mirror
from mirrorlake.app.reset import plan_reset
from mirrorlake.app.status import mirror_status
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.spark.session.spark_session import Spark
from tests.app.test_faults import before_the_tasks
from tests.app.zones import MARKER, Zone
from tests.crash.forked import mirrorlake
from tests.delta.log.test_spark import delta_log
from tests.doubles.handmade_engine import HandmadeReader
from tests.mirror.planning import applied
from tests.profiles import some
from tests.spark import reading

pytestmark = pytest.mark.spark

GUID = "6f1c1e9c-9d7b-4d0e-8f0e-2f6d1c1f3a55.parquet"
DATED = "20260128_093015_123456_000001.parquet"
ODD = "注文 '2026`\n%41.parquet"
DAY = 86_400.0


@pytest.fixture
def zone(tmp_path: Path, spark: Spark) -> Zone:
    """A table that is described like example E of the specification."""
    zone = Zone(tmp_path / "root", spark)
    zone.folder("t").mkdir(parents=True)
    described = {
        "keyColumns": ["id"],
        "fileDetectionStrategy": "LastUpdateTimeFileDetection",
        "isUpsertDefaultRowMarker": True,
    }
    (zone.folder("t") / "_metadata.json").write_text(json.dumps(described))
    return zone


def land(zone: Zone, name: str, day: float, *ids: int, **more: list[Any]) -> Path:
    """A file whose rows have its name, last written on a day."""
    path = zone.folder("t") / name
    hidden = path.with_name("_x.temp")
    pq.write_table(pa.table({"id": list(ids), "v": [name] * len(ids), **more}), hidden)
    os.utime(hidden, (day * DAY, day * DAY))
    hidden.replace(path)
    return path


def here(zone: Zone, folder: str = ".") -> set[str]:
    found = (zone.folder("t") / folder).glob("*.parquet")
    return {path.name for path in found}


def status(zone: Zone) -> mirror_status.TableStatus:
    (table,) = mirror_status.read(Project.of_root(zone.root)).tables
    return table


@pytest.mark.clause("LZ-122", "LZ-124", "LZ-126", "LZ-127", "LZ-250", "LZ-258", "LZ-324", "LZ-341")
def test_files_of_any_name_are_applied_once_in_the_order_of_their_times(zone: Zone) -> None:
    land(zone, GUID, 3, 1, 2)
    land(zone, DATED, 2, 2, 3)
    land(zone, ODD, 2.5, 3, 4)
    land(zone, "_hidden.parquet", 1, 9)
    (planned,) = Mirror(Project.of_root(zone.root)).plan()
    assert applied(planned).names == (DATED, ODD, GUID)
    assert status(zone).pending_files == 3
    assert not zone.apply().errors
    assert zone.rows("t") == [(1, GUID), (2, GUID), (3, ODD), (4, ODD)]
    assert (here(zone), here(zone, "_FilesReadyToDelete")) == (
        {GUID, "_hidden.parquet"},
        {DATED, ODD},
    )

    land(zone, "late.parquet", 1, 4)  # older than all of them
    land(zone, DATED, 9, 1)  # a processed path, written again
    assert status(zone).pending_files == 1
    report = zone.apply()
    assert not report.errors
    assert zone.rows("t") == [(1, GUID), (2, GUID), (3, ODD), (4, "late.parquet")]
    assert here(zone) == {"late.parquet", "_hidden.parquet"}
    assert [table.last_file for table in report.tables.values()] == ["late.parquet"]
    table = status(zone)
    assert (table.last_file, table.pending_files, table.error) == ("late.parquet", 0, None)
    feed = reading.feed(zone.spark.session, zone.root / "Tables/s/t")
    assert feed[1] == Counter(
        {("update_preimage", (4, ODD)): 1, ("update_postimage", (4, "late.parquet")): 1}
    )


@pytest.mark.full
@pytest.mark.clause("LZ-127", "LZ-258")
def test_what_was_applied_is_known_when_the_log_has_forgotten_it(zone: Zone) -> None:
    for day in range(1, 4):
        land(zone, f"{day}.parquet", day, day)
        zone.apply()
    path = zone.root / "Tables/s/t"
    delta_log(zone.spark.session, path).checkpoint()
    log = TableLog(path)
    for version in log.versions()[:-1]:
        log.commit_file(version).unlink()
    land(zone, "1.parquet", 8, 99)
    land(zone, "4.parquet", 9, 4)
    assert not zone.apply().errors
    assert zone.rows("t") == [(day, f"{day}.parquet") for day in (1, 2, 3, 4)]

    shutil.rmtree(zone.root / "Files/Mirrorlake/processed")
    land(zone, "5.parquet", 10, 5)
    (error,) = zone.apply().errors
    assert error.code == "progress_lost"
    assert len(zone.rows("t")) == 4
    assert here(zone) == {"4.parquet", "5.parquet"}
    assert status(zone).error is not None

    # The way out that the error names; what is still there is applied anew.
    reset = plan_reset(Project.of_root(zone.root), ["s.t"])
    assert "5 files" in reset.sentences()[0]
    reset.execute()
    assert not zone.apply().errors
    rows = [(2, "2.parquet"), (3, "3.parquet"), (4, "4.parquet"), (5, "5.parquet")]
    assert zone.rows("t") == [*rows, (99, "1.parquet")]


@pytest.mark.full
@pytest.mark.parametrize("again", [True, False], ids=["written again", "taken away"])
def test_a_file_that_changes_after_it_was_planned_for_is_looked_at_anew(
    zone: Zone, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    land(zone, "a.parquet", 1, 1)
    changing = land(zone, "b.parquet", 2, 2)
    land(zone, "c.parquet", 3, 3)
    action = (lambda: land(zone, "b.parquet", 4, 4)) if again else changing.unlink
    before_the_tasks(monkeypatch, lambda: action() and None)
    assert not zone.apply().errors
    expected = [(1, "a.parquet"), (3, "c.parquet")] + [(4, "b.parquet")] * again
    assert zone.rows("t") == sorted(expected)


POINTS = [
    pytest.param(CrashPoint.COMMITTED, marks=pytest.mark.long),
    *some([CrashPoint.COMMIT_DURABLE, CrashPoint.NAMES_RECORDED, CrashPoint.CLEANUP_MOVED_ONE]),
]


@pytest.mark.full
@pytest.mark.crash
@pytest.mark.clause("LZ-326", "LZ-258", "LZ-243", "LZ-250")
@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_applies_no_file_twice(zone: Zone, point: CrashPoint) -> None:
    for number in range(3):
        land(zone, f"{number}.parquet", number + 1, number, **{MARKER: [0]})
    ended = mirrorlake("apply", "--once", "--root", str(zone.root), CRASH_AT=point)
    assert ended.code == -signal.SIGKILL, ended
    land(zone, "late.parquet", 0.5, 9, **{MARKER: [0]})
    assert not zone.apply().errors
    # The files insert: one that was applied twice would leave two rows.
    rows = [(number, f"{number}.parquet") for number in range(3)]
    assert zone.rows("t") == [*rows, (9, "late.parquet")]
    assert here(zone) == {"late.parquet"}
    feed = HandmadeReader(zone.store).feed("Tables/s/t")
    assert sum(map(Counter.total, feed.values())) == 4
