"""What a program and everything it started cost: seconds of CPU, and the peak of its memory."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

import psutil

LOOK_SECONDS = 0.5


@dataclass(slots=True)
class Cost:
    """cpu: seconds by process; peak: MiB resident by role, the most that all of it had at once."""

    cpu: dict[int, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)

    @property
    def cpu_seconds(self) -> float:
        return sum(self.cpu.values())


class Watch:
    """Looks at a process of `mirrorlake run` and its children, until told to stop."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._cost = Cost()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def cpu_seconds(self) -> float:
        """Used so far."""
        self._look()
        return self._cost.cpu_seconds

    def result(self) -> Cost:
        self._stop.set()
        self._thread.join()
        return self._cost

    def _work(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        now: dict[str, int] = {}
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in [self._root, *self._root.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    self._cost.cpu[process.pid] = times.user + times.system
                    role = self._role(process)
                    now[role] = now.get(role, 0) + (process.memory_info().rss >> 20)
        for role, size in now.items():
            self._cost.peak[role] = max(self._cost.peak.get(role, 0), size)

    def _role(self, process: psutil.Process) -> str:
        if process == self._root:
            return "driver"
        line = " ".join(process.cmdline())
        if "pyspark.daemon" in line:
            return "workers"
        if "java" in process.name():
            return "jvm"
        return "capture" if "multiprocessing" in line else "other"
