"""A thousand tables of which twenty are active each second, alone and beside a busy one.

For a minute, twenty tables chosen at random get a file of 50 changes each second. A file's age is
the time from its landing until the commit that holds its rows stands in the log. In the second half
one more table gets files of 500,000 changes, without a pause: what is told of then are the others,
which may wait for at most a round of it. Equal: every table that changed, row for row.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from bench.many_tables import ManyTables, Table
from bench.result import Result
from bench.rounds import Plan, say
from bench.spark import session
from bench.usage import Usage, usage
from mirrorlake.app.mirror import Mirror
from mirrorlake.config import Project

TABLES, ACTIVE = 1_000, 20
ROWS, CHANGES = 1_000, 50
BUSY_ROWS, BUSY_CHANGES = 1_000_000, 500_000
SECONDS = 60
WARMING = 10
"""Seconds before the clock starts; the first batches of a JVM are slow."""

OLDEST = {"many": 2.0, "many+busy": 4.0}
"""Seconds after which 99 % of the files are readable."""

MEMORY = 768
"""MiB of the driver and of what its JVM holds, of which caches are the most."""


def run(plan: Plan) -> list[Result]:
    seconds = plan.sized(SECONDS, 10)
    with session() as spark:
        many = ManyTables(plan.folder / "many", plan.sized(TABLES, ACTIVE), ROWS)
        say(f"  making {len(many.tables)} tables")
        many.prepare(spark)
        busy = Table("busy", np.zeros(BUSY_ROWS, np.int64))
        many.land(busy, np.arange(BUSY_ROWS), 0)
        stop = threading.Event()
        mirror = Mirror(Project.of_root(many.root), spark=spark, stop=stop)
        mirror.apply_once()
        applying = threading.Thread(target=mirror.apply_run, name="apply")
        applying.start()
        random = np.random.default_rng(1)
        try:
            _land(many, random, WARMING, [])
            quiet = _measured(many, random, seconds, [])
            beside = _measured(many, random, seconds, [busy])
        finally:
            time.sleep(10)
            stop.set()
            applying.join()
        mirror.apply_once()
        equal = many.is_equal([t for t in [*many.tables, busy] if t.last > 1])
    return [_result("many", quiet, equal, many), _result("many+busy", beside, equal, many)]


class _Window:
    """What happened in one half."""

    def __init__(self) -> None:
        self.began, self.before = time.time(), usage()
        self.seconds = 0.0
        self.after: Usage = self.before

    def end(self) -> None:
        self.seconds, self.after = time.time() - self.began, usage()


def _measured(
    many: ManyTables, random: np.random.Generator, seconds: int, busy: list[Table]
) -> _Window:
    window = _Window()
    _land(many, random, seconds, busy)
    window.end()
    return window


def _land(many: ManyTables, random: np.random.Generator, seconds: int, busy: list[Table]) -> None:
    for second in _seconds(seconds):
        chosen = random.choice(len(many.tables), ACTIVE, replace=False)
        for index in chosen:
            ids = random.choice(ROWS, CHANGES, replace=False)
            many.land(many.tables[index], ids, int(time.time_ns()))
        for table in busy:
            if second % 2 == 0:
                ids = random.choice(BUSY_ROWS, BUSY_CHANGES, replace=False)
                many.land(table, ids, int(time.time_ns()))


def _seconds(count: int) -> Iterator[int]:
    began = time.monotonic()
    for second in range(count):
        yield second
        time.sleep(max(began + second + 1 - time.monotonic(), 0.0))


def _result(name: str, window: _Window, equal: bool, many: ManyTables) -> Result:
    end = window.began + window.seconds
    ages = [
        age
        for table in many.tables
        for age, landed in zip(many.ages(table), list(table.landed.values())[1:], strict=True)
        if window.began <= landed < end
    ]
    p50, p99 = np.percentile(ages, [50, 99])
    return Result(
        name,
        round(float(p50), 3),
        equal=equal,
        over="; ".join(_beyond(name, float(p99), window.after)),
        more={
            "limits": f"p99 {OLDEST[name]:.0f} s, {MEMORY} MiB of driver and heap",
            "p50_seconds": round(float(p50), 3),
            "p99_seconds": round(float(p99), 3),
            "max_seconds": round(max(ages), 3),
            "files": len(ages),
            "cores_used": round((window.after.cpu - window.before.cpu) / window.seconds, 2),
            "driver_mebibytes": [window.before.driver, window.after.driver],
            "jvm_mebibytes": [window.before.jvm, window.after.jvm],
            "heap_mebibytes": [window.before.heap, window.after.heap],
            "workers_mebibytes": [window.before.workers, window.after.workers],
        },
    )


def _beyond(name: str, p99: float, after: Usage) -> list[str]:
    """The limits that were broken, in words."""
    found, held = [], after.driver + after.heap
    if p99 > OLDEST[name]:
        found.append(f"p99 {p99:.2f} s, not {OLDEST[name]:.0f}")
    if held > MEMORY:
        found.append(f"driver and heap {held} MiB, not {MEMORY}")
    return found
