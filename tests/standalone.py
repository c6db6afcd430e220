"""A standalone cluster of Spark on this machine: a master and workers, each a process of its own.

For tests and the bench. All of it lies below one folder and ends with the context.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping
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


class Standalone:
    """A running cluster. Use as a context manager.

    folder: of logs, working folders and scratch, made if need be; environment: of the workers, and
    so of their executors, beside that of this process.
    """

    def __init__(
        self,
        folder: Path,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._workers, self._cores, self._memory = folder, workers, cores, memory
        home = Path(pyspark.__file__).parent
        self._program = str(home / "bin" / "spark-class")
        self._environment = {
            **os.environ,
            **(environment or {}),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": HERE,
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        self._running: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        (self._folder / "scratch").mkdir(parents=True, exist_ok=True)
        try:
            self.url = self._master()
            logs = [self._worker(number) for number in range(self._workers)]
            for log in logs:
                self._said(log, re.compile(_REGISTERED))
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
        return self._start(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--host", HERE, "--webui-port", "0"),
            *("--cores", str(self._cores), "--memory", self._memory),
            *("--work-dir", str(self._folder / f"worker{number}"), self.url),
        )

    def _start(self, name: str, program: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as output:
            self._running.append(
                subprocess.Popen(
                    [self._program, program, *arguments],
                    env=self._environment,
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
            if any(process.poll() is not None for process in self._running):
                break
            time.sleep(0.1)
        raise SparkUnavailable(
            "the cluster did not start", where=str(log), hint="See the log for the cause."
        )

    def _stop(self) -> None:
        """End every process, and the executors that the workers have started."""
        for process in reversed(self._running):
            if process.poll() is None:
                process.terminate()  # a worker ends its executors
        for process in self._running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()
