"""`python -m bench.soak`: a small batch every second, for as long as one likes.

One table of 100,000 rows gets a file of 200 changes each second, of which one in ten deletes a row
and one in ten brings one back; twenty more tables get one in turn. Per minute it says how old a
file became until its rows were readable, what it cost in CPU, and all that could grow. The
exit code is 1 when the last tenth is slower than the first, or memory grew: see `complaints`.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import structlog
from pyspark.sql import SparkSession
from structlog.typing import EventDict, WrappedLogger

from bench import history
from bench.many_tables import ManyTables, Table
from bench.result import Result
from bench.rounds import say
from bench.spark import session
from bench.usage import Usage, usage
from mirrorlake.app.maintenance.file_maintenance import CHECKPOINT_WRITTEN, FILES_COMPACTED
from mirrorlake.app.mirror import Mirror
from mirrorlake.cli import logs
from mirrorlake.config import Project
from mirrorlake.delta.log.table_log import TableLog
from mirrorlake.mirror.compaction.small_files import counted

ROWS, CHANGES = 100_000, 200
OTHERS = 20
WARMING = 30
"""Seconds before anything counts: a JVM compiles what it runs often."""

SLOWER = 1.5
"""The median age at the end, and the CPU of a file, against the beginning."""
GROWN, LEAST_GROWN = 1.3, 64
"""Memory of driver and workers, and the heap of the JVM; MiB below which growth is noise."""


@dataclass(frozen=True, slots=True)
class Tenth:
    """What was seen in a stretch of time. ages: in seconds; cpu: seconds per file; dead: share of
    rows that are deleted and still stored; log: MiB of the transaction log; aside: landed files
    that were moved aside; checkpoints: seconds of each."""

    ages: tuple[float, ...]
    cpu: float
    files: int
    dead: float
    log: float
    aside: int
    compactions: int
    checkpoints: tuple[float, ...]
    usage: Usage

    @property
    def p50(self) -> float:
        return float(np.percentile(self.ages, 50))

    @property
    def p99(self) -> float:
        return float(np.percentile(self.ages, 99))

    def __str__(self) -> str:
        longest = max(self.checkpoints, default=0.0)
        return (
            f"age p50 {self.p50:.2f} p99 {self.p99:.2f} s, {self.cpu * 1000:4.0f} ms CPU a file, "
            f"{self.files} files, {self.dead:4.0%} dead, {self.compactions} compactions, "
            f"log {self.log:.1f} MiB, {self.aside} aside, "
            f"{len(self.checkpoints)} checkpoints up to {longest:.1f} s, "
            f"MiB: driver {self.usage.driver} JVM {self.usage.jvm} its heap {self.usage.heap} "
            f"workers {self.usage.workers}"
        )


def complaints(first: Tenth, last: Tenth) -> list[str]:
    """What got worse from the first stretch to the last, in words."""
    found = []
    if last.p50 > SLOWER * first.p50:
        found.append(f"files become {last.p50:.2f} s old at the end, {first.p50:.2f} s before")
    if last.cpu > SLOWER * first.cpu:
        found.append(f"a file costs {last.cpu:.3f} CPU seconds at the end, {first.cpu:.3f} before")
    for name in ("driver", "heap", "workers"):
        before, after = getattr(first.usage, name), getattr(last.usage, name)
        if after > GROWN * before and after - before > LEAST_GROWN:
            found.append(f"memory of the {name} grew from {before} to {after} MiB")
    return found


def result(first: Tenth, last: Tenth, *, equal: bool, name: str = "soak") -> Result:
    """How the end of a soak compares with its beginning."""
    return Result(
        name,
        round(last.p50, 3),
        equal=equal,
        over="; ".join(complaints(first, last)),
        more={
            "first_p50_seconds": round(first.p50, 3),
            "last_p50_seconds": round(last.p50, 3),
            "last_p99_seconds": round(last.p99, 3),
            "cpu_seconds_per_file": [round(first.cpu, 3), round(last.cpu, 3)],
            "files": last.files,
            "dead": round(last.dead, 2),
            "driver_mebibytes": [first.usage.driver, last.usage.driver],
            "heap_mebibytes": [first.usage.heap, last.usage.heap],
            "workers_mebibytes": [first.usage.workers, last.usage.workers],
        },
    )


def soak(
    root: Path,
    spark: SparkSession,
    seconds: int,
    stretches: int,
    tell: Callable[[int, Tenth], None] = lambda _number, _stretch: None,
) -> tuple[list[Tenth], bool]:
    """What each of so many stretches was like, and whether the tables are right in the end.

    tell: called after each of them.
    """
    many = ManyTables(root, 1 + OTHERS, ROWS)
    say("  preparing")
    many.prepare(spark)
    events = _Events()
    stop = threading.Event()
    mirror = Mirror(Project.of_root(root), spark=spark, stop=stop)
    applying = threading.Thread(target=mirror.apply_run, name="apply")
    applying.start()
    work, found = _Work(many, events), list[Tenth]()
    try:
        work.go_on(WARMING)
        for number in range(1, stretches + 1):
            found.append(work.go_on(seconds // stretches))
            tell(number, found[-1])
    finally:
        time.sleep(2)
        stop.set()
        applying.join()
    mirror.apply_once()
    return found, many.is_equal([table for table in many.tables if table.last > 1])


class _Work:
    """Lands files, second by second."""

    def __init__(self, many: ManyTables, events: _Events) -> None:
        self._many, self._events = many, events
        self._random = np.random.default_rng(1)
        self._log = TableLog(many.path(many.tables[0]))

    def go_on(self, seconds: int) -> Tenth:
        table, others = self._many.tables[0], self._many.tables[1:]
        before, begun, began = usage(), table.last, time.monotonic()
        self._events.clear()
        for second in range(seconds):
            self._land(table)
            self._land(others[second % len(others)])
            time.sleep(max(began + second + 1 - time.monotonic(), 0.0))
        return self._seen(before, begun, seconds)

    def _land(self, table: Table) -> None:
        ids = self._random.choice(ROWS, CHANGES, replace=False)
        self._many.change(table, ids, time.time_ns(), self._random)

    def _seen(self, before: Usage, begun: int, seconds: int) -> Tenth:
        table, after = self._many.tables[0], usage()
        ages = self._many.ages(table, after=begun)
        snapshot = self._log.snapshot()
        known = [counted(action) for action in snapshot.files.values()]
        log = self._many.path(table) / "_delta_log"
        aside = self._many.folder(table) / "_FilesReadyToDelete"
        return Tenth(
            ages=tuple(ages),
            cpu=(after.cpu - before.cpu) / (2 * seconds),
            files=len(known),
            dead=sum(file.gone for file in known) / max(sum(file.rows for file in known), 1),
            log=sum(file.stat().st_size for file in log.iterdir() if file.is_file()) / (1 << 20),
            aside=sum(1 for _ in aside.glob("*.parquet")),
            compactions=self._events.compactions,
            checkpoints=tuple(self._events.checkpoints),
            usage=after,
        )


class _Events:
    """What the mirror says while it works; it writes no line of it."""

    def __init__(self) -> None:
        self.compactions = 0
        self.checkpoints: list[float] = []
        everything = structlog.make_filtering_bound_logger(logging.INFO)
        structlog.configure(processors=[self._heard], wrapper_class=everything)

    def clear(self) -> None:
        self.compactions, self.checkpoints = 0, []

    def _heard(self, _logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
        if event["event"] == FILES_COMPACTED:
            self.compactions += 1
        elif event["event"] == CHECKPOINT_WRITTEN:
            self.checkpoints.append(event["seconds"])
        elif level in {"error", "warning"}:
            say(f"  {event}")
        raise structlog.DropEvent


def main() -> int:
    options = _options()
    seconds = max(options.seconds, 60)
    logs.configure(quiet=True)
    with tempfile.TemporaryDirectory(prefix="mirrorlake-soak-") as folder, session() as spark:
        found, equal = soak(
            Path(folder),
            spark,
            seconds,
            max(10, seconds // 60),
            lambda number, stretch: print(f"{number:3} {stretch}", flush=True),
        )
    tenth = max(len(found) // 10, 1)
    first, last = joined(found[:tenth]), joined(found[-tenth:])
    if options.keep:
        name = f"soak of {seconds} s"
        history.keep([result(first, last, equal=equal, name=name)], 1, options.keep)
    wrong = complaints(first, last)
    wrong += [] if equal else ["the tables do not hold what was landed"]
    for complaint in wrong:
        print(f"WORSE: {complaint}")
    return int(bool(wrong))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__)
    parser.add_argument("--seconds", type=int, default=3600, help="at least 60 (3600)")
    parser.add_argument(
        "--keep", metavar="MACHINE", help="append to bench/history.jsonl, as found on this machine"
    )
    return parser.parse_args()


def joined(stretches: Sequence[Tenth]) -> Tenth:
    """Several stretches as one; what can grow as it was at the end of them."""
    last = stretches[-1]
    return Tenth(
        ages=tuple(age for one in stretches for age in one.ages),
        cpu=sum(one.cpu for one in stretches) / len(stretches),
        files=last.files,
        dead=last.dead,
        log=last.log,
        aside=last.aside,
        compactions=sum(one.compactions for one in stretches),
        checkpoints=tuple(s for one in stretches for s in one.checkpoints),
        usage=last.usage,
    )


if __name__ == "__main__":
    sys.exit(main())
