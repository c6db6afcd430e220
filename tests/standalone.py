"""A standalone cluster of Spark on this machine: a master and workers, each a process of its own.

For tests and the bench. All of it lies below one folder and ends with the context.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from mirrorlake.errors import SparkUnavailable

HERE = "127.0.0.1"
PATIENCE = 120.0
"""Seconds in which a process must have said that it is there."""

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


_APART = """
set -e
mkdir "$own" && mount -t tmpfs none "$own"
mkdir -p "$own/scratch" "$own$visible" && cp -r "$hidden$visible" "$own$visible/.."
mount --bind "$own" "$hidden"
for cache in "$HOME"/.ivy2*; do if [ -d "$cache" ]; then mount -t tmpfs none "$cache"; fi; done
cd "$hidden" && exec "$@"
"""
"""What begins a program in a mount namespace of its own: the folder `hidden` is an empty one there,
but for a copy of what lies at `visible` below it, and nothing is left of downloaded jars."""


def can_be_apart() -> bool:
    """Whether this process may make mount namespaces."""
    program = shutil.which("unshare")
    if program is None:
        return False
    mount = [program, "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def host_of(worker: int) -> str:
    """The address of a worker, and of its executors: of those with one address Spark believes that
    they see each other's files."""
    return f"127.0.1.{worker + 1}"


class Standalone:
    """A running cluster. Use as a context manager.

    folder: of logs, working folders and scratch, made if need be; environment: of the workers, and
    so of their executors, beside that of this process. hidden: a folder around it, of which each
    worker has one of its own in its place, and sees nothing but a copy of the folder `visible`.
    pinned: all of a worker, with its executors, runs on as many cores of this machine as it offers.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
        hidden: Path | None = None,
        visible: Path | None = None,
        pinned: bool = False,
    ) -> None:
        self._hidden, self._visible, self._pinned = hidden, visible, pinned
        self._folder, self._workers, self._cores, self._memory = folder, workers, cores, memory
        home = Path(pyspark.__file__).parent
        self._program = str(home / "bin" / "spark-class")
        self._environment = {
            **os.environ,
            **(environment or {}),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self.running: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        (self._folder / "scratch").mkdir(parents=True, exist_ok=True)
        try:
            self.url = self._master()
            self.add(self._workers)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def add(self, workers: int) -> None:
        """Start workers, and wait until the master knows them."""
        first = len(self.running) - 1
        for log in [self._worker(first + number) for number in range(workers)]:
            self._said(log, re.compile(_REGISTERED))

    def settings(self) -> dict[str, str]:
        """Settings of a session whose driver runs on this machine too."""
        return {
            "spark.driver.host": HERE,
            "spark.driver.bindAddress": HERE,
            "spark.executor.cores": str(self._cores),
        }

    def _master(self) -> str:
        log = self._start(
            "master",
            "org.apache.spark.deploy.master.Master",
            *("--host", HERE, "--port", "0", "--webui-port", "0"),
        )
        return self._said(log, _MASTER)[1]

    def _worker(self, number: int) -> Path:
        name = f"worker{number}"
        host = host_of(number)
        return self._start(
            name,
            "org.apache.spark.deploy.worker.Worker",
            *("--host", host, "--webui-port", "0"),
            *("--cores", str(self._cores), "--memory", self._memory),
            *("--work-dir", str((self._hidden or self._folder) / name), self.url),
            hidden=self._hidden,
            host=host,
            cores=self._cores_of(number) if self._pinned else (),
        )

    def _cores_of(self, worker: int) -> list[int]:
        cores = sorted(os.sched_getaffinity(0))
        first = worker * self._cores
        return [cores[n % len(cores)] for n in range(first, first + self._cores)]

    def _start(
        self,
        name: str,
        program: str,
        *arguments: str,
        hidden: Path | None = None,
        host: str = HERE,
        cores: Sequence[int] = (),
    ) -> Path:
        log = self._folder / f"{name}.log"
        command = [self._program, program, *arguments]
        if cores:
            command = ["taskset", "--cpu-list", ",".join(map(str, cores)), *command]
        environment = {**self._environment, "SPARK_LOCAL_IP": host}
        if hidden is not None:
            assert self._visible is not None
            environment = environment | {
                "own": str(self._folder / f"own-{name}"),
                "hidden": str(hidden),
                "visible": f"/{self._visible.relative_to(hidden)}",
                "SPARK_LOCAL_DIRS": str(hidden / "scratch"),
                "TMPDIR": str(hidden / "scratch"),
            }
            command = ["unshare", "--mount", "sh", "-c", _APART, "sh", *command]
        with log.open("wb") as output:
            self.running.append(
                subprocess.Popen(
                    command,
                    env=environment,
                    cwd=self._folder,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            )
        return log

    def _said(self, log: Path, wanted: re.Pattern[str]) -> re.Match[str]:
        """What a process has said of itself. Raises SparkUnavailable when it does not in time."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if found := wanted.search(log.read_text(errors="replace")):
                return found
            if self.running[-1].poll() is not None:
                break
            time.sleep(0.1)
        raise SparkUnavailable(
            "the cluster did not start", where=str(log), hint="See the log for the cause."
        )

    def _stop(self) -> None:
        """End every process, and the executors that the workers have started."""
        for process in reversed(self.running):
            if process.poll() is None:
                process.terminate()  # a worker ends its executors
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()
