"""`reset` and `detach` are killed: what comes next loads again what has to be, and all of it."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from mirrorlake.app.loop.apply_loop import ApplyLoop
from mirrorlake.app.source import detached
from mirrorlake.landing.metadata import BY_TIME
from mirrorlake.mirror.settings import MirrorSettings
from mirrorlake.model.clock import WallClock
from mirrorlake.model.crash_points import CrashPoint
from mirrorlake.storage.local import LocalStore
from tests.app.zones import MARKER, Zone
from tests.crash.forked import mirrorlake
from tests.crash.project import CHANGES, TABLES, Project
from tests.doubles.handmade_engine import HandmadeReader, in_process_engine
from tests.profiles import some

pytestmark = [pytest.mark.postgres, pytest.mark.crash]

OF_ALL = [
    (CrashPoint.RESET_STREAM_FORGOTTEN, 1),
    (CrashPoint.RESET_FOLDER_DELETED, 1),
    (CrashPoint.RESET_FOLDER_DELETED, 3),
]


def apply(project: Project) -> None:
    store = LocalStore(project.root)
    loop = ApplyLoop(store, in_process_engine(store), MirrorSettings(), WallClock())
    loop.open()
    report = loop.once()
    loop.close()
    assert not report.errors


def assert_mirrored(project: Project) -> None:
    reader = HandmadeReader(LocalStore(project.root))
    for table in TABLES:
        rows = reader.rows("Tables/" + table.replace(".", "/"))
        assert Counter(rows) == project.source_rows(table)


@pytest.mark.parametrize(("point", "passage"), some(OF_ALL))
def test_a_reset_of_all_that_is_killed_loads_all_again(
    project: Project, point: CrashPoint, passage: int
) -> None:
    project.run("capture", "--once")
    apply(project)
    project.killed_at(point, "reset", "--all", "--yes", passage=passage)
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    apply(project)
    assert_mirrored(project)


@pytest.mark.full
def test_a_reset_of_a_table_that_is_killed_loads_it_again(project: Project) -> None:
    project.run("capture", "--once")
    apply(project)
    project.killed_at(CrashPoint.RESET_FOLDER_DELETED, "reset", "a.orders", "--yes")
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    apply(project)
    assert_mirrored(project)


@pytest.mark.parametrize("by_time", some([True, False]))
def test_a_reset_of_tables_of_others_that_is_killed_applies_each_file_once(
    tmp_path: Path, by_time: bool
) -> None:
    zone = Zone(tmp_path / "root")
    for table in ("t", "other"):
        zone.table(table, "id")
        if by_time:
            described = {"keyColumns": ["id"], "fileDetectionStrategy": BY_TIME}
            (zone.folder(table) / "_metadata.json").write_text(json.dumps(described))
        for number in (1, 2):
            zone.land(table, number, {"id": [number], "v": ["x"], MARKER: [0]})
    assert not zone.apply().errors
    command = ("reset", "--all", "--yes", "--root", str(zone.root))
    ended = mirrorlake(*command, CRASH_AT=CrashPoint.RESET_TABLE_DELETED)
    assert ended.code == -signal.SIGKILL, ended
    assert not zone.apply().errors
    assert zone.rows("t") == zone.rows("other") == [(1, "x"), (2, "x")]


def test_a_mirror_whose_detach_was_killed_is_detached_by_the_next(project: Project) -> None:
    project.run("capture", "--once")
    project.killed_at(CrashPoint.DETACHED, "detach", "--yes")
    assert project.database.sql.execute("select * from pg_replication_slots").fetchone() is None
    lost = mirrorlake("capture", "--once", "-c", str(project.file), TEST_URL=project.database.url)
    assert lost.code == 1, lost
    assert "publication mirrorlake_" in lost.error
    assert "mirrorlake repair" in lost.error
    project.run("detach", "--yes")
    assert detached.since(LocalStore(project.root)) is not None
    project.run("reset", "--all", "--yes")
    project.database.execute(CHANGES)
    project.run("capture", "--once")
    apply(project)
    assert_mirrored(project)
