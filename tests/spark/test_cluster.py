"""On a cluster of processes a mirror does what it does in one, whatever becomes of a worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import deltalake
import psutil
import pytest
import yaml

import mirrorlake
from mirrorlake.apply.logs.table_reader import LogReader
from mirrorlake.apply.stages.spread import Exchange
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.model.change import Marker
from mirrorlake.model.clock import WallClock
from mirrorlake.model.landed import FileKind, Footer
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store
from tests.app.zones import Zone
from tests.objects import CREDENTIALS, S3Server
from tests.spark import reading
from tests.spark.large import (
    TABLES,
    changes_of,
    content,
    fill,
    fill_notes,
    land,
    rows_of,
    written_by_last,
)
from tests.standalone import Standalone, can_be_apart, host_of

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(1_800),
    pytest.mark.full,
]

PATIENCE = 1_200

SMALL = [f"small{number}" for number in range(10)]
MAINTAINED = ("orders", "small0")
ROWS = 1_000_000
SECOND = 1 / 86_400
"""Of a day."""
KEEPS_NOTHING = {
    "compaction": False,
    "vacuum_days": SECOND,
    "vacuum_early": True,
    "subscription_days": 0,
}
"""What `maintain` finds to do is left to it."""
ELASTIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.dynamicAllocation.executorIdleTimeout": "3s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "3s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "3s",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}
"""Executors that are idle for seconds leave; a task that takes a little longer than others runs
twice."""
LEAVES_LATER = {name: "30s" for name in ELASTIC if name.endswith(("Timeout", "timeout"))}
TWICE = {
    **{name: value for name, value in ELASTIC.items() if "speculation" in name},
    # A job of one task has no others to be compared with.
    "spark.speculation.task.duration.threshold": "200ms",
}
APART, EVERYTHING = can_be_apart(), "the folders of the driver"
EXECUTOR = "CoarseGrainedExecutorBackend"

HOOKS = """
import importlib, os, pathlib, signal, time

host = os.environ.get("SPARK_LOCAL_IP", "")
once = pathlib.Path(os.environ.get("KILL_ONCE", "/").replace("HOST", host))


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
        if os.environ.get("KILL_WORKER") == host:
            os.kill(parent(executor), signal.SIGKILL)
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return called


def waiting(function):
    def called(*arguments, **options):
        from pyspark import TaskContext

        result = function(*arguments, **options)
        task = TaskContext.get()
        name = f"{task.stageId()}-{task.partitionId()}"
        (twins / f"{name}-{task.attemptNumber()}").touch()
        try:
            (twins / "first").touch(exist_ok=False)
        except FileExistsError:
            return result
        deadline = time.monotonic() + 60
        while len(list(twins.glob(f"{name}-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        return result

    return called


def hook(name, made):
    module = importlib.import_module(os.environ.get("KILL_IN", "mirrorlake.delta.write.data_files"))
    setattr(module, name, made(getattr(module, name)))


if not once.exists():
    hook(os.environ["KILL_AFTER"], killing)
if "TWINS" in os.environ:
    twins = pathlib.Path(os.environ["TWINS"])
    hook("write_data", waiting)
"""
"""In every Python of the executors: the first that has written a file of one kind kills its
executor and all that runs in it, and on the host KILL_WORKER the worker that has started it, unless
there is the file KILL_ONCE, which it leaves. HOST in its name is that of the worker. KILL_IN: the
module of what writes.

TWINS: a folder where each task that has written a data file leaves a file with the numbers of its
stage, its part and its attempt. The first of all waits until another attempt of it is as far, for a
minute at most."""


@dataclass
class Project:
    """A zone that somebody else fills, and a project for it on a cluster or in one process."""

    zone: Zone
    folder: Path
    master: str
    conf: Mapping[str, str]
    tables: Mapping[str, str] = field(default_factory=dict)
    root: Mapping[str, str] = field(default_factory=dict)
    mirror: Mapping[str, Any] = field(default_factory=dict)

    def apply(self) -> str:
        """`apply --once`, which must be good. Returns what it logs."""
        return self.ended(self.start("apply", "--once"))

    def start(self, *command: str) -> subprocess.Popen[str]:
        spark = {"master": self.master, "driver_memory": "1g", "conf": dict(self.conf)}
        settings = {
            "name": "shop",
            "root": dict(self.root) or str(self.zone.root),
            "spark": spark,
            "tables": dict(self.tables),
            "mirror": dict(self.mirror),
        }
        file = self.folder / "mirrorlake.yaml"
        file.write_text(yaml.safe_dump(settings))
        with self._log(command[0]).open("w") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "mirrorlake.cli.main", *command, "-c", str(file)],
                env=os.environ | {"TMPDIR": str(self.folder)},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                text=True,
            )

    def ended(self, process: subprocess.Popen[str]) -> str:
        """Wait for the end of a command, which must be good. Returns what it said."""
        code = process.wait(PATIENCE)
        said = self._log(str(process.args[3])).read_text()
        assert code == 0, said
        return said

    def _log(self, command: str) -> Path:
        return self.folder / f"{command}.log"


@dataclass
class Cluster:
    standalone: Standalone
    folder: Path

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.standalone.running[1:]  # without the master

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


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster below a folder of which each worker sees one of its own."""
    if not APART:
        pytest.skip(f"no right to make mount namespaces: workers would see {EVERYTHING}")
    hidden = tmp_path_factory.mktemp("apart")
    with started(hidden / "cluster", hidden) as cluster:
        yield cluster


@contextmanager
def started(folder: Path, hidden: Path | None = None, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers of one core each. hidden: as of `Standalone`."""
    (folder / "hooks").mkdir(parents=True)
    (folder / "hooks" / "sitecustomize.py").write_text(HOOKS)
    hooks = folder / "hooks"
    with Standalone(folder / "spark", workers, hidden=hidden, visible=hooks) as standalone:
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


def test_each_worker_sees_a_folder_of_its_own(apart: Cluster) -> None:
    """Skipped where we may not make mount namespaces."""
    hidden = apart.folder.parent
    (hidden / "of the driver").touch()
    assert len({*map(namespace, apart.workers), namespace(None)}) == 1 + len(apart.workers)
    for number, worker in enumerate(apart.workers):
        seen = Path(f"/proc/{worker.pid}/root{hidden}")
        assert not [*seen.glob("of *")]
        (seen / f"of {number}").touch()
    assert [file.name for file in hidden.glob("of *")] == ["of the driver"]


def test_merge_needs_no_folder_that_machines_share(
    apart: Cluster, s3: S3Server, tmp_path: Path
) -> None:
    url = f"{s3.new_bucket()}/shop"
    zones = Zones(Zone(tmp_path / "here"), open_store(url, s3.options), 1_000, SMALL[:1])
    project = replace(
        apart.project(apart.folder.parent / "merge", **CREDENTIALS),
        root={"url": url, "endpoint": s3.endpoint, "region": "us-east-1"},
        mirror={"strategy": "merge"},
    )
    project = replace(project, conf={**project.conf, **reading.SMALL})
    zones.load()
    mirror = project.start("apply")
    until(mirror, lambda: zones.applied(2))
    for number, changes in ((3, 1), (4, 300)):
        zones.change(number, changes)
        until(mirror, lambda number=number: zones.applied(number))
    for worker in apart.workers:
        assert {namespace(one) for one in executors_of(worker)} == {namespace(worker)}
    mirror.send_signal(signal.SIGTERM)
    project.ended(mirror)
    copied = zones.copied(tmp_path / "applied")
    zones.assert_mirrored(copied)
    log = TableLog(copied / "Tables/s/orders")
    actions = [action for version in log.versions() for action in log.actions(version)]
    merges = [one["commitInfo"] for one in actions if "commitInfo" in one]
    merges = [info for info in merges if info["operation"] == "MERGE"]
    # Only Delta's own say how long they took.
    assert all("executionTimeMs" in info["operationMetrics"] for info in merges)
    assert len(merges) == 2


@pytest.mark.parametrize("hides", [APART], ids=["apart" if APART else "in one mount namespace"])
def test_an_elastic_cluster_that_shares_nothing_but_a_bucket_mirrors_what_lies_in_it(
    s3: S3Server, tmp_path: Path, hides: bool
) -> None:
    """Executors come late, are killed with their worker or alone, leave, and come back, while one
    mirror goes on. Each worker sees a folder of its own where that of the driver is, if we may make
    mount namespaces."""
    url, hidden = f"{s3.new_bucket()}/shop", tmp_path / "hidden"
    zones = Zones(Zone(tmp_path / "here"), open_store(url, s3.options))
    kill = {"KILL_AFTER": "write_data", "KILL_ONCE": str(hidden / "killed-HOST")}
    with started(hidden / "cluster", hidden if hides else None, workers=1) as cluster:
        workers = cluster.standalone
        project = cluster.project(hidden / "project", **CREDENTIALS, **kill, KILL_WORKER=host_of(0))
        reached = {"url": url, "endpoint": s3.endpoint, "region": "us-east-1"}
        project = replace(
            project, root=reached, conf={**project.conf, **ELASTIC}, mirror=KEEPS_NOTHING
        )
        zones.load()
        mirror = project.start("apply")
        first = workers.running[1]
        until(mirror, lambda: first.poll() is not None)
        workers.add(2)
        others = workers.running[2:]
        until(mirror, lambda: zones.applied(2))
        zones.change(3, Exchange().rows + 1)  # so that tasks send each other keys
        until(mirror, lambda: zones.applied(3))
        assert len(written_by_last(zones.copied(tmp_path / "spread"))) > 1
        until(mirror, lambda: not any(map(executors_of, others)))
        zones.change(4, 1_000)
        until(mirror, lambda: zones.applied(4))
        mirror.send_signal(signal.SIGTERM)
        project.ended(mirror)
        killed = (Path(f"/proc/{one.pid}/root{hidden}").glob("killed-*") for one in others)
        assert all(map(list, killed))
        zones.assert_mirrored(zones.copied(tmp_path / "applied"))
        # With executors that leave within seconds, each of the many small jobs would wait for one.
        patient = replace(project, conf={**project.conf, **LEAVES_LATER})
        said = patient.ended(patient.start("maintain", *(f"s.{table}" for table in MAINTAINED)))
        assert "compact" in said
        assert said.count("vacuum") == said.count("checkpoint") == len(MAINTAINED)
    copied = zones.copied(tmp_path / "maintained")
    for table in MAINTAINED:
        path = copied / "Tables/s" / table
        assert rows_of(path) == rows_of(zones.here.root / "Tables/s" / table)
        named = {Path(name).name for name in deltalake.DeltaTable(str(path)).file_uris()}
        assert {file.name for file in path.glob("*.parquet")} == named
        assert list(path.glob("_delta_log/*.checkpoint.parquet"))


@dataclass
class Zones:
    """A landing zone in a bucket, and the same in a folder, which is applied in this process."""

    here: Zone
    store: Store
    rows: int = ROWS
    small: Sequence[str] = tuple(SMALL)

    @property
    def tables(self) -> list[str]:
        return ["orders", *self.small]

    def load(self) -> None:
        """One large table, and small ones. The last file of a load is empty."""
        for table in self.tables:
            self.here.table(table, "id")
            self._publish(self.here.folder(table) / "_metadata.json")
        for number in (1, 2):
            footer = Footer("s", FileKind.LOAD, "0/1:0", "0/1:0", complete=number == 2)
            ids = range(self.rows) if number == 1 else range(0)
            self._land("orders", number, ids, "old", [Marker.INSERT] * len(ids), footer)
            for table in self.small:
                self._land(
                    table, number, range(number * 100), "old", [Marker.UPSERT] * number * 100
                )
        assert not self.here.apply().errors

    def change(self, number: int, count: int) -> None:
        """So many changes of the large table, and some of each small one."""
        ids = range(self.rows // 2, self.rows // 2 + count)
        markers = [Marker.DELETE if n % 50 == 0 else Marker.UPSERT for n in ids]
        self._land("orders", number, ids, f"new{number}", markers)
        for table in self.small:
            self._land(table, number, range(50, 150), f"new{number}", [Marker.UPSERT] * 100)
        assert not self.here.apply().errors

    def applied(self, number: int) -> bool:
        reader = LogReader(self.store)
        paths = [f"Tables/s/{table}" for table in self.tables]
        return all(reader.progress(path).recorded >= number for path in paths)

    def copied(self, folder: Path) -> Path:
        return copy_of(self.store, folder)

    def assert_mirrored(self, copied: Path) -> None:
        for table in self.tables:
            there, here = copied / "Tables/s" / table, self.here.root / "Tables/s" / table
            assert rows_of(there) == rows_of(here)
            assert changes_of(there) == changes_of(here)

    def _land(
        self,
        table: str,
        number: int,
        ids: range,
        name: str,
        markers: list[Marker],
        footer: Footer | None = None,
    ) -> None:
        land(self.here, table, number, ids, name, [int(one) for one in markers], footer)
        self._publish(self.here.folder(table) / f"{number:020d}.parquet")

    def _publish(self, path: Path) -> None:
        self.store.create(path.relative_to(self.here.root).as_posix(), path.read_bytes())


def until(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    """Wait until something holds, while a process goes on."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline
        WallClock().sleep(1)  # a look at tables in a bucket takes long


def executors_of(worker: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The executors that a worker has started and that are there."""
    found = []
    for child in psutil.Process(worker.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if EXECUTOR in " ".join(child.cmdline()):
                found.append(child)
    return found


def namespace(process: subprocess.Popen[bytes] | psutil.Process | None) -> str:
    """The mount namespace of a process; None: of this one."""
    return str(Path(f"/proc/{process.pid if process else 'self'}/ns/mnt").readlink())


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


def test_a_task_that_runs_twice_at_once_is_applied_once(
    cluster: Cluster, expected: Path, tmp_path: Path
) -> None:
    """Spark starts a task again that takes long. Both attempts write their files before the first
    one ends."""
    twins = tmp_path / "twins"
    twins.mkdir()
    project = cluster.project(tmp_path / "project", TWINS=str(twins))
    fill_notes(project.zone)
    replace(project, conf={**project.conf, **TWICE}).apply()
    tasks = Counter(file.name.rpartition("-")[0] for file in twins.glob("*-*"))
    assert max(tasks.values()) == 2
    assert content(project.zone.root, "notes") == content(expected, "notes")


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
