"""A mirror is killed at what it does beside its batches: leases, keys, status files, checkpoints,
vacuum, what has been aside for long enough; and at all of it where everything lies in a bucket."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from mirrorlake import root
from mirrorlake.model.crash_points import CrashPoint
from tests.crash.forked import mirrorlake
from tests.crash.life import LATER, LATEST, TABLES, Life
from tests.delta.readers import rows_by_delta_rs
from tests.objects import S3Server
from tests.profiles import some

pytestmark = pytest.mark.crash

BESIDE_BATCHES = [
    (CrashPoint.LEASE_TAKEN, 1),
    (CrashPoint.PROPERTIES_SET, 1),
    (CrashPoint.CLEANUP_EXPIRED_ONE, 1),
    (CrashPoint.CLEANUP_EXPIRED_ONE, 3),
    (CrashPoint.STATUS_WRITTEN, 1),
    (CrashPoint.STATUS_WRITTEN, 2),
    (CrashPoint.LEASE_RENEWED, 1),
    (CrashPoint.DROP_RECORDED, 1),
    (CrashPoint.TABLE_DROPPED, 1),
    (CrashPoint.LEASE_RELEASED, 1),
]
IN_FOLDERS = [
    (CrashPoint.VACUUM_BEGUN, 1),
    (CrashPoint.VACUUM_DONE, 1),
    (CrashPoint.CHECKPOINT_WRITTEN, 1),
    (CrashPoint.CHECKPOINT_WRITTEN, 2),
]
"""Of tables on objects Delta does these."""
OF_BATCHES = [
    (CrashPoint.COMMITTED, 1),
    (CrashPoint.BATCH_WRITTEN, 1),
    (CrashPoint.COMMIT_BEGUN, 2),
    (CrashPoint.COMMITTED, 2),
    (CrashPoint.COMMIT_DURABLE, 1),
    (CrashPoint.CLEANUP_MOVED_ONE, 1),
    (CrashPoint.CLEANUP_DONE, 1),
]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "root"
    Life(str(folder)).begin()
    return folder


@pytest.fixture
def life(begun: Path, tmp_path: Path) -> Life:
    life = Life(shutil.copytree(begun, str(tmp_path / "root")))
    life.change()
    return life


@pytest.fixture
def in_a_bucket(s3: S3Server, begun: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    s3.described(monkeypatch)
    life = Life(f"{s3.new_bucket()}/shop")
    for path in (path for path in begun.rglob("*") if path.is_file()):
        s3.put(f"{life.location}/{path.relative_to(begun).as_posix()}", path.read_bytes())
    life.change()
    return life


@pytest.mark.parametrize(("point", "passage"), some([*BESIDE_BATCHES, *IN_FOLDERS], 4))
def test_a_mirror_that_is_killed_beside_its_batches_goes_on(
    life: Life, point: CrashPoint, passage: int
) -> None:
    life.killed(LATER, point, passage)
    life.live(LATER)
    life.assert_whole()
    for name, rows in TABLES.items():
        table = Path(life.location, "Tables/s", name)
        assert sorted(rows_by_delta_rs(table)) == rows
        pointed = json.loads((table / "_delta_log/_last_checkpoint").read_text())["version"]
        assert (table / f"_delta_log/{pointed:020d}.checkpoint.parquet").exists()


@pytest.mark.parametrize(("point", "passage"), some([*OF_BATCHES, *BESIDE_BATCHES]))
def test_a_mirror_in_a_bucket_that_is_killed_goes_on(
    in_a_bucket: Life, point: CrashPoint, passage: int
) -> None:
    in_a_bucket.killed(LATER, point, passage)
    in_a_bucket.live(LATER)
    in_a_bucket.assert_whole()


def test_what_was_dropped_is_removed_once(life: Life) -> None:
    life.live(LATER)
    assert life.store.list(f"{root.DROPPED}/Tables/s").folders == ("gone",)
    life.killed(LATEST, CrashPoint.DROPPED_DELETED)
    life.live(LATEST)
    assert not life.store.list(f"{root.DROPPED}/Tables/s").folders
    assert json.loads(life.store.read("Files/Mirrorlake/dropped.json"))["tables"] == {}


@pytest.mark.full
@pytest.mark.spark
def test_what_spark_committed_in_a_bucket_before_a_kill_is_found(
    in_a_bucket: Life, s3: S3Server, tmp_path: Path
) -> None:
    reached = {"url": in_a_bucket.location, "endpoint": s3.endpoint, "region": "us-east-1"}
    project = tmp_path / "mirrorlake.yaml"
    project.write_text(json.dumps({"name": "p", "root": reached}))
    ended = mirrorlake("apply", "--once", "-c", str(project), CRASH_AT=CrashPoint.COMMITTED)
    assert ended.code == -signal.SIGKILL, ended
    in_a_bucket.live(LATER)
    in_a_bucket.assert_whole()
