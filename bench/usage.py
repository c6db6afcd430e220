"""What a run costs: CPU and memory of this process, its JVM, and the workers of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psutil
from pyspark import SparkContext


@dataclass(frozen=True, slots=True)
class Usage:
    """cpu: seconds of all processes so far; heap: MiB that the JVM holds after a collection; the
    others are resident MiB. A JVM takes what it may before it collects, so what is resident of it
    grows for a while whatever it does."""

    cpu: float
    driver: int
    jvm: int
    heap: int
    workers: int


def usage() -> Usage:
    """As of now. The JVM is that of the running session."""
    ours = psutil.Process()
    gateway: Any = SparkContext._gateway
    jvm = psutil.Process(gateway.proc.pid)
    workers = jvm.children(recursive=True)
    return Usage(
        cpu=sum(map(_cpu, [ours, jvm, *workers])),
        driver=_resident(ours),
        jvm=_resident(jvm),
        heap=_heap(),
        workers=sum(map(_resident, workers)),
    )


def _heap() -> int:
    machine: Any = SparkContext._jvm
    machine.java.lang.System.gc()
    runtime = machine.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory()) >> 20


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss) >> 20
    except psutil.NoSuchProcess:
        return 0
