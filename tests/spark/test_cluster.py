"""On a cluster of processes a mirror does what it does in one, whatever becomes of a worker."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

import mirrorlake
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store
from tests.app.zones import Zone
from tests.objects import CREDENTIALS, S3Server
from tests.spark.large import TABLES, content, fill, written_by_last
from tests.standalone import Standalone, can_be_apart

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(1_800),
    pytest.mark.full,
]

PATIENCE = 1_200

HOOKS = """
import os, pathlib, signal

once = pathlib.Path(os.environ.get("KILL_ONCE", "/"))


def parent(process):
    status = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def killing(function):
    def called(*arguments, **options):
        result = function(*arguments, **options)
        try:
            once.touch(exist_ok=False)
        except FileExistsError:
            return result
        executor = parent(os.getppid())
        if "KILL_WORKER" in os.environ:
            os.kill(parent(executor), signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return called


if not once.exists():
    from mirrorlake.delta.write import data_files

    name = os.environ["KILL_AFTER"]
    setattr(data_files, name, killing(getattr(data_files, name)))
"""
"""In every Python of the executors: the first that has written a file of one kind kills its
executor and all that runs in it, and with KILL_WORKER the worker that has started it, unless there
is the file KILL_ONCE, which it leaves."""


@dataclass
class Project:
    """A zone that somebody else fills, and a project for it on a cluster or in one process."""

    zone: Zone
    folder: Path
    master: str
    conf: Mapping[str, str]
    tables: Mapping[str, str] = field(default_factory=dict)
    root: Mapping[str, str] = field(default_factory=dict)

    def apply(self) -> str:
        """`apply --once`, which must be good. Returns what it logs."""
        spark = {"master": self.master, "driver_memory": "1g", "conf": dict(self.conf)}
        settings = {
            "name": "shop",
            "root": dict(self.root) or str(self.zone.root),
            "spark": spark,
            "tables": dict(self.tables),
        }
        file = self.folder / "mirrorlake.yaml"
        file.write_text(yaml.safe_dump(settings))
        done = subprocess.run(
            [sys.executable, "-m", "mirrorlake.cli.main", "apply", "--once", "-c", str(file)],
            env=os.environ | {"TMPDIR": str(self.folder)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr


@dataclass
class Cluster:
    standalone: Standalone
    folder: Path

    def project(self, folder: Path, **environment: str) -> Project:
        folder.mkdir(parents=True)
        # Executors start in a folder of their own, with nothing of the driver's but its settings.
        here = [str(self.folder / "hooks"), str(Path(mirrorlake.__file__).parents[1])]
        conf = self.standalone.settings() | {
            "spark.executor.memory": "600m",
            "spark.executorEnv.PYTHONPATH": os.pathsep.join(here),
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
        }
        return Project(Zone(folder / "root"), folder, self.standalone.url, conf)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@contextmanager
def started(folder: Path, hidden: Path | None = None) -> Iterator[Cluster]:
    """A master and two workers of one core each. hidden: as of `Standalone`."""
    (folder / "hooks").mkdir(parents=True)
    (folder / "hooks" / "sitecustomize.py").write_text(HOOKS)
    hooks = folder / "hooks"
    with Standalone(folder / "spark", workers=2, hidden=hidden, visible=hooks) as standalone:
        yield Cluster(standalone, folder)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same zone, mirrored in one process on one task per batch."""
    zone = Zone(tmp_path_factory.mktemp("here") / "root")
    fill(zone)
    assert not zone.apply().errors
    return zone.root


def test_tables_and_feeds_are_those_of_one_process(
    cluster: Cluster, expected: Path, tmp_path: Path
) -> None:
    project = cluster.project(tmp_path / "project")
    fill(project.zone)
    log = project.apply()
    assert "spread_given_up" not in log
    for table in TABLES:
        assert content(project.zone.root, table) == content(expected, table)
    assert len(written_by_last(project.zone.root)) == 2, "the changes were done on one task"


@pytest.mark.long
def test_tables_on_s3_are_those_in_a_folder(
    cluster: Cluster, expected: Path, s3: S3Server, tmp_path: Path
) -> None:
    url = f"{s3.new_bucket()}/shop"
    # Executors have the environment of the workers: who they are, they have to be told.
    project = cluster.project(tmp_path / "project", **CREDENTIALS)
    reached = {"url": url, "endpoint": s3.endpoint, "region": "us-east-1"}
    fill(project.zone)
    replace(project, tables=reached).apply()
    assert not list(project.zone.root.glob("Tables/*"))
    copied = copy_of(open_store(url, s3.options), tmp_path / "copy")
    for table in TABLES:
        assert content(copied, table) == content(expected, table)
    assert len(written_by_last(copied)) == 2, "the changes were done on one task"


def test_workers_that_share_nothing_but_a_bucket_mirror_what_lies_in_it(
    expected: Path, s3: S3Server, tmp_path: Path
) -> None:
    """Each worker sees a folder of its own where that of the driver is, if we may make mount
    namespaces. In each, the executor that first has written a data file is killed."""
    url, are_apart = f"{s3.new_bucket()}/shop", can_be_apart()
    hidden, store = tmp_path / "hidden", open_store(url, s3.options)
    once = hidden / "killed"
    kill = {"KILL_AFTER": "write_data", "KILL_ONCE": str(once)}
    with started(hidden / "cluster", hidden if are_apart else None) as cluster:
        project = cluster.project(hidden / "project", **CREDENTIALS, **kill)
        reached = {"url": url, "endpoint": s3.endpoint, "region": "us-east-1"}
        fill(project.zone)
        uploaded(project.zone.root, store)
        replace(project, root=reached).apply()
        assert once.exists() is not are_apart
        workers = cluster.standalone.running[1:]
        killed = [Path(f"/proc/{worker.pid}/root{once}").exists() for worker in workers]
        assert any(killed)
    copied = copy_of(store, tmp_path / "copy")
    for table in TABLES:
        assert content(copied, table) == content(expected, table)
    assert len(written_by_last(copied)) == 2, "the changes were done on one task"
    assert store.list("Files/Monitoring").files


def uploaded(folder: Path, store: Store) -> None:
    """Let the files of a folder lie in a store, and no longer here."""
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        store.replace(path.relative_to(folder).as_posix(), path.read_bytes())
    shutil.rmtree(folder)


def copy_of(store: Store, folder: Path, below: str = "Tables") -> Path:
    """All that lies below a folder of a store, in a folder of this machine."""
    found = store.list(below)
    for file in found.files:
        target = folder / below / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read(f"{below}/{file.name}"))
    for name in found.folders:
        copy_of(store, folder, f"{below}/{name}")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("after", ["write_data", "write_bytes"])
def test_an_executor_that_is_killed_costs_a_retry_and_nothing_else(
    cluster: Cluster, expected: Path, tmp_path: Path, after: str
) -> None:
    once = tmp_path / "killed"
    project = cluster.project(tmp_path / "project", KILL_AFTER=after, KILL_ONCE=str(once))
    fill(project.zone)
    project.apply()
    assert once.exists()
    for table in TABLES:
        assert content(project.zone.root, table) == content(expected, table)


@pytest.mark.long
def test_a_worker_that_is_killed_costs_a_retry_and_nothing_else(
    expected: Path, tmp_path: Path
) -> None:
    once = tmp_path / "killed"
    kill = {"KILL_AFTER": "write_data", "KILL_ONCE": str(once), "KILL_WORKER": "1"}
    with started(tmp_path / "cluster") as cluster:
        project = cluster.project(tmp_path / "project", **kill)
        fill(project.zone)
        project.apply()
        assert once.exists()
        assert [process.poll() is None for process in cluster.standalone.running].count(False) == 1
    for table in TABLES:
        assert content(project.zone.root, table) == content(expected, table)
