"""Large tables are read by the executors of the mirror's Spark, each with its own connection."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from mirrorlake import root
from mirrorlake.app.mirror import Mirror
from mirrorlake.capture.landing.stage_part import STAGED
from mirrorlake.capture.settings import CaptureSettings
from mirrorlake.config import Project
from mirrorlake.spark.session.spark_session import Spark
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store
from tests.conftest import Database
from tests.objects import CREDENTIALS, S3Server
from tests.spark.test_cluster import copy_of, started
from tests.standalone import can_be_apart, host_of

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.full]

ROWS = 20_000
MIB = 1 << 20
TABLES = (
    "create table large (id int primary key, note text)",
    f"insert into large select g, repeat('x', 100) from generate_series(1, {ROWS}) g",
    "create table small (id int primary key)",
    "insert into small values (1)",
)
LANDED = f"{root.LANDING}/public.schema/large"


def test_parts_are_tasks_of_the_session(database: Database, spark: Spark, tmp_path: Path) -> None:
    database.execute(*TABLES)
    source = database.settings(part_bytes=MIB)
    project = Project("shop", tmp_path / "root", source, CaptureSettings(parts_on_spark=True))
    mirror = Mirror(project, spark=spark.session)
    mirror.capture_once()
    landed = sorted((project.root / LANDED).glob("0*.parquet"))
    assert len(landed) == 4, "parts of the table, and the end of the load"
    assert sum(pq.read_metadata(file).num_rows for file in landed) == ROWS
    assert not mirror.apply_once().errors
    assert ids_of(project.root / "Tables/public/large") == list(range(1, ROWS + 1))
    mirror.close()


@pytest.mark.long
@pytest.mark.xdist_group("cluster")
@pytest.mark.timeout(900)
def test_workers_that_share_nothing_but_a_bucket_load_a_table_while_one_is_killed(
    database: Database, s3: S3Server, tmp_path: Path
) -> None:
    database.execute(
        *TABLES, "create role loader login superuser replication password 'hushhidden'"
    )
    url, hidden = f"{s3.new_bucket()}/shop", tmp_path / "hidden"
    is_apart = can_be_apart()
    with started(hidden / "cluster", hidden if is_apart else None, workers=2) as cluster:
        folder = hidden / "project"
        kill = {
            "KILL_IN": "mirrorlake.capture.landing.stage_part",
            "KILL_AFTER": "_written",
            "KILL_ONCE": str(hidden / "killed-HOST") if is_apart else str(tmp_path / "killed"),
            "KILL_WORKER": host_of(0),
        }
        events = tmp_path / "events"
        events.mkdir()
        conf = {
            **cluster.project(folder, **CREDENTIALS, **kill).conf,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
        }
        said = run_once(database, s3, url, cluster.standalone.url, conf, folder)
        assert any(one.poll() is not None for one in cluster.standalone.running), "none was killed"
    assert "load_tasks_taken" in said
    store = open_store(url, s3.options)
    assert ids_of(copy_of(store, tmp_path / "copy") / "Tables/public/large") == [
        *range(1, ROWS + 1)
    ]
    assert not staged(store)
    logged = [file for file in events.rglob("*") if file.is_file()]
    assert any(b"SparkListenerJobStart" in file.read_bytes() for file in logged)
    shown = [*logged, *(hidden / "cluster").rglob("*.log"), *folder.glob("*.log")]
    assert not [file for file in shown if b"hushhidden" in file.read_bytes()]


def run_once(
    database: Database, s3: S3Server, url: str, master: str, conf: dict[str, str], folder: Path
) -> str:
    """Run a mirror on a cluster once, which must be good. Returns what it logs."""
    settings = {
        "name": f"shop_{database.name}",
        "root": {"url": url, "endpoint": s3.endpoint, "region": "us-east-1"},
        "source": {"type": "postgresql", "url": "${SHOP_URL}"},
        "load": {"on": "spark", "part_bytes": MIB // 4},
        "spark": {"master": master, "driver_memory": "1g", "conf": conf},
    }
    file = folder / "mirrorlake.yaml"
    file.write_text(yaml.safe_dump(settings))
    secret = database.url_as("loader").replace("loader:loader@", "loader:hushhidden@")
    done = subprocess.run(
        [sys.executable, "-m", "mirrorlake.cli.main", "run", "--once", "-c", str(file)],
        env=os.environ | {"TMPDIR": str(folder), "SHOP_URL": secret},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=800,
    )
    said = done.stdout + done.stderr
    (folder / "run.log").write_text(said)
    assert done.returncode == 0, said
    return said


def ids_of(path: Path) -> list[int]:
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(path)))
    return sorted(pa.table(query.execute("select id from t").read_all())["id"].to_pylist())


def staged(store: Store) -> list[str]:
    """Files of attempts that do not count."""
    return [file.name for file in store.list(LANDED).files if file.name.startswith(STAGED)]
