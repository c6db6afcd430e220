"""Event files that are applied by tasks of Spark: in a session, on a cluster, on S3."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirrorlake import config
from mirrorlake.app.mirror import Mirror
from mirrorlake.apply.events.batches import spread
from mirrorlake.apply.events.batches.spread import EventSpread
from mirrorlake.spark.session.spark_session import Spark
from tests.apply.events.bucket import Bucket
from tests.apply.events.drawn_files import rows_of
from tests.apply.events.test_spread import of
from tests.objects import CREDENTIALS, S3Server
from tests.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(900)]

TABLES = 4


def fill_bucket(bucket: Bucket, first: int, rows: int, note: str = "") -> None:
    """Write rows with these numbers into several tables."""
    for table in range(TABLES):
        numbers = range(first, first + rows)
        events = (of(f"t{table}", first + n, {"id": n, "v": first, "w": note}) for n in numbers)
        bucket.put(f"{first}.jsonl", *events, of=f"public_t{table}")


def project(folder: Path, **more: Any) -> Path:
    said = {
        "name": "t",
        "root": "./lake",
        "source": {"type": "events", "url": "./bucket", "format": "json"},
        **more,
    }
    path = folder / "mirrorlake.yaml"
    path.write_text(yaml.safe_dump(said))
    return path


def ids(folder: Path, table: int) -> list[int]:
    return sorted(row["id"] for row in rows_of(folder / f"lake/Tables/public/t{table}"))


@pytest.fixture
def spreads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of every size are applied by tasks."""
    monkeypatch.setattr(EventSpread, "suits", lambda *_anything: True)


@pytest.mark.usefixtures("spreads")
def test_tasks_of_a_given_session_apply_event_files(
    spark: Spark, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = Bucket(tmp_path)
    fill_bucket(bucket, 1, 20)
    with Mirror.open(project(tmp_path), spark=spark.session) as mirror:
        report = mirror.apply_once()
        assert [table.inserts for table in report.tables.values()] == [20] * TABLES
        fill_bucket(bucket, 11, 20)
        report = mirror.apply_once()
    counts = [(table.inserts, table.updates) for table in report.tables.values()]
    assert counts == [(10, 10)] * TABLES
    assert all(ids(tmp_path, table) == list(range(1, 31)) for table in range(TABLES))
    assert capsys.readouterr().out.count(spread.EVENTS_SPREAD) == 2


@pytest.mark.usefixtures("spreads")
def test_tasks_read_and_write_on_s3(spark: Spark, s3: S3Server, tmp_path: Path) -> None:
    """Also what is remembered of the keys."""
    bucket, url = Bucket(tmp_path), s3.new_bucket()
    place = {"url": f"{url}/lake", "endpoint": s3.endpoint, "region": "us-east-1"}
    target = project(tmp_path, root=place)
    fill_bucket(bucket, 1, 20)
    with Mirror(config.load(target), spark=spark.session) as mirror:
        mirror.apply_once()
        fill_bucket(bucket, 11, 20)
        report = mirror.apply_once()
    counts = [(table.inserts, table.updates) for table in report.tables.values()]
    assert counts == [(10, 10)] * TABLES


@pytest.mark.xdist_group("cluster")
def test_a_cluster_applies_large_batches(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    fill_bucket(bucket, 1, 12_000, "x" * 200)
    with Standalone(tmp_path / "cluster") as cluster:
        project(tmp_path, spark={"master": cluster.url, "conf": cluster.settings()})
        done = subprocess.run(
            [sys.executable, "-m", "mirrorlake.cli.main", "apply", "--once", "-v"],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=os.environ | CREDENTIALS,
        )
    assert done.returncode == 0, done.stderr
    assert spread.EVENTS_SPREAD in done.stdout + done.stderr
    assert all(ids(tmp_path, table) == list(range(1, 12_001)) for table in range(TABLES))
