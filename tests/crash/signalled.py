"""Processes that are sent a signal: how long they live on, and what they were at."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from mirrorlake.model.clock import WallClock
from tests.crash.project import Project

SECONDS = 5.5
"""The end comes within five seconds; half of one is what it takes to see it."""

PATIENCE = 90
"""Seconds for what takes less than five by itself: other tests run on the same cores."""


def send(process: subprocess.Popen[str], number: signal.Signals, *, group: bool = False) -> float:
    """Send the signal, also to its group; returns how many seconds the process lived on."""
    begun = time.monotonic()
    if group:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    process.wait(PATIENCE)
    return time.monotonic() - begun


def seconds_to_end(
    process: subprocess.Popen[str], number: signal.Signals, *, group: bool = False
) -> float:
    """As `send`, to a process of a project, which ends well."""
    seconds = send(process, number, group=group)
    assert process.returncode == 0
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()
    return seconds


def processes_that_name(text: str) -> list[str]:
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it may end while we look
            if text in (line := command.read_text(errors="replace")):
                found.append(line)
    return found


def until_it_says(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(words):
            return
    raise AssertionError(f"it ended before it said {words}")


def until(holds: Callable[[], object], pause: float = 0.05) -> None:
    clock, deadline = WallClock(), time.monotonic() + 2 * PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        clock.sleep(pause)


def until_applied(project: Project) -> None:
    """Until the first load is in the table."""
    until((project.root / "Tables/a/orders/_delta_log/00000000000000000000.json").exists)


class SparkJobs:
    """What Spark says of the jobs of a project, in a file that it flushes as each of them begins
    and ends."""

    def __init__(self, project: Project) -> None:
        """Let the project, which has not run, have that file."""
        self._folder = project.folder / "spark-events"
        self._folder.mkdir()
        project.configure("spark", conf=self._settings())

    def _settings(self) -> dict[str, str]:
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self._folder.as_uri(),
        }

    def begun(self) -> int:
        """How many jobs have begun by now."""
        return self._counted("Start")

    def is_at_work(self, before: int = 0) -> bool:
        """Whether one is under way that has begun after so many others."""
        ended = self._counted("End")
        return self._counted("Start") > max(before, ended)

    def _counted(self, what: str) -> int:
        begins = f'{{"Event":"SparkListenerJob{what}"'
        files = [file.read_text() for file in self._folder.rglob("events_*")]
        return sum(line.startswith(begins) for text in files for line in text.splitlines())
