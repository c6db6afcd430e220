"""Apply is killed while a table is made anew, dropped, or its folder cleaned up."""

from __future__ import annotations

import json
import shutil
import signal
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.maintenance.deleted_tables import GONE
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.change import Alteration
from mirrorlake.model.crash_points import CrashPoint, no_crash
from mirrorlake.model.landed import FileKind, Footer
from tests.app.zones import MARKER, Zone
from tests.crash.entry import kill_at
from tests.crash.forked import forked
from tests.doubles.clock import START, SteppedClock
from tests.doubles.handmade_engine import in_process_engine

pytestmark = pytest.mark.crash

LONG = 120
"""Seconds after which a deleted table is dropped, and a lease of the dead has ended."""


def mirror(root: str, hours: str, point: str = "", renames: str = "") -> None:
    """A mirror runs for a while, so many hours after the start; killed at a point. renames: not
    empty if it renames columns by column mapping."""
    store, clock = Zone(Path(root)).store, SteppedClock(START + timedelta(hours=int(hours)))
    reached = kill_at(point) if point else no_crash
    engine = in_process_engine(store, reached)
    settings = MirrorSettings(cleanup_seconds=0, renames_columns=bool(renames))
    loop = ApplyLoop(store, engine, settings, clock, reached=reached)
    loop.open()
    assert not loop.once().errors
    for _look in range(LONG // 5):
        clock.advance(5)
        loop.cycle(None)
    loop.close()


def killed(root: Path, point: CrashPoint, renames: str = "") -> None:
    ended = forked(mirror, str(root), "1", str(point), renames)
    assert ended.code == -signal.SIGKILL, ended


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    """Two tables of three files, which were applied; all but the last ones were put aside."""
    zone = Zone(tmp_path / "root")
    for name in ("t", "other"):
        zone.table(name, "id")
        for number in (1, 2, 3):
            land(zone, name, number, "old")
    mirror(str(zone.root), "0")
    return zone


def land(zone: Zone, name: str, number: int, text: str) -> None:
    zone.land(name, number, {"id": [number], "v": [text], MARKER: [0]})


@pytest.mark.clause("LZ-232", "LZ-326")
@pytest.mark.parametrize(
    "point",
    [
        CrashPoint.PROCESSED_DISCARDED,
        CrashPoint.TABLE_CREATED,
        CrashPoint.CLEANUP_MOVED_ONE,
        CrashPoint.CLEANUP_DONE,
    ],
)
def test_a_table_that_begins_anew_has_each_row_once(zone: Zone, point: CrashPoint) -> None:
    for path in zone.folder("t").glob("*.*"):
        path.unlink()
    (zone.folder("t") / "_metadata.json").write_text('{"keyColumns": ["id"] }')
    land(zone, "t", 1, "new")
    land(zone, "t", 2, "new")
    killed(zone.root, point)
    land(zone, "t", 3, "new")
    mirror(str(zone.root), "2")
    assert zone.rows("t") == [(1, "new"), (2, "new"), (3, "new")]
    assert zone.rows("other") == [(1, "old"), (2, "old"), (3, "old")]
    log = TableLog(zone.root / "Tables/s/t")
    recorded = [action for v in log.versions() for action in log.actions(v) if "txn" in action]
    assert recorded[-1]["txn"]["version"] == 3


@pytest.mark.clause("LZ-231")
def test_a_table_that_is_dropped_is_gone_and_its_successor_begins_anew(zone: Zone) -> None:
    shutil.rmtree(zone.folder("t"))
    killed(zone.root, CrashPoint.TABLE_DROPPED)
    mirror(str(zone.root), "2")
    assert not (zone.root / "Tables/s/t").exists()
    assert "Tables/s/t" in json.loads((zone.root / GONE).read_text())["tables"]
    assert zone.rows("other") == [(1, "old"), (2, "old"), (3, "old")]
    zone.table("t", "id")
    land(zone, "t", 1, "new")
    mirror(str(zone.root), "3")
    assert zone.rows("t") == [(1, "new")]


@pytest.mark.parametrize(
    "point",
    [CrashPoint.COLUMNS_ADDED, CrashPoint.COLUMNS_WRITTEN, CrashPoint.COLUMNS_ALTERED],
)
def test_columns_are_altered_once(zone: Zone, point: CrashPoint) -> None:
    """The names of the key's neighbours go round, which is another thing when it is done twice."""
    land(zone, "t", 4, "x")
    mirror(str(zone.root), "0")
    alteration = Alteration({"v": "w", "w": "v"}, pa.record_batch({"c": pa.array([7])}))
    more = {"id": [5], "v": ["v"], "w": ["w"], "c": [8], MARKER: [0]}
    for number, altered in ((5, None), (6, alteration)):
        footer = Footer("s", FileKind.CHANGES, "1:1", "1:1", complete=True, alteration=altered)
        rows = pa.table({**more, "id": [number]})
        rows = rows.drop_columns(["c"]) if altered is None else rows
        folder = zone.folder("t")
        name = f"{number:020d}.parquet"
        pq.write_table(rows.replace_schema_metadata(footer.encode()), folder / name)
    killed(zone.root, point)
    mirror(str(zone.root), "2")
    old = [(n, None, "old", 7) for n in (1, 2, 3)]
    assert zone.rows("t") == [*old, (4, None, "x", 7), (5, "w", "v", 7), (6, "v", "w", 8)]


@pytest.mark.parametrize("point", [CrashPoint.COLUMNS_RENAMED, CrashPoint.PROPERTIES_SET])
def test_columns_are_renamed_once(zone: Zone, point: CrashPoint) -> None:
    """The names go round, which is another thing when it is done twice."""
    for number, names in ((4, ("v", "w", "x")), (5, ("w", "x", "v"))):
        around = Alteration({"w": "v", "x": "w", "v": "x"}) if number == 5 else None
        footer = Footer("s", FileKind.CHANGES, "1:1", "1:1", complete=True, alteration=around)
        rows = pa.table({"id": [number], **dict(zip(names, "abc", strict=True)), MARKER: [0]})
        path = zone.folder("t") / f"{number:020d}.parquet"
        pq.write_table(rows.replace_schema_metadata(footer.encode()), path)
    killed(zone.root, point, "renames")
    mirror(str(zone.root), "2", "", "renames")
    columns = TableLog(str(zone.root / "Tables/s/t")).snapshot().metadata["schemaString"]
    names = [field["name"] for field in json.loads(columns)["fields"]]
    assert names == ["id", "w", "x", "v"]
    old = [(n, "old", None, None) for n in (1, 2, 3)]
    assert zone.rows("t") == [*old, (4, "a", "b", "c"), (5, "a", "b", "c")]
