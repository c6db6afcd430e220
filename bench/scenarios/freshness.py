"""Freshness: how old a change is when it becomes readable in Delta, while a database works.

`mirrorlake run` as a person would start it, with nothing configured, while ten tables are changed
at 1,000 and then at 10,000 rows a second. Each new row carries the time at which its transaction
sent it; PostgreSQL flushes each commit (`fsync` is on). A process outside of the mirror looks for
new commits and reads them. The first seconds, in which the compilers of the JVM warm up, do not
count. Equal: every row, value and change feed against PostgreSQL at the end.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import commands, history, ledger
from bench import server as servers
from bench.ages import AgeReader, Ages
from bench.processes import Cost, Watch
from bench.result import Result
from bench.rounds import Plan, say
from bench.server import Server
from mirrorlake.demo.verify import verify

ROWS = 100_000
SECONDS = 180.0
WARMING_SECONDS = 20.0
GROWTH = 1.5
"""The last third may be older than the first by this factor: noise, not growth."""
CPU, MEMORY = "cpu_seconds_per_million_changes", "peak_mebibytes"
OF_CPU, OF_MEMORY = "of_the_first_cpu", "of_the_first_memory"
OF_FIRST = 0.5
"""What the first measurement of CPU and memory may have left. Capture stays above it: of 175 MiB it
had then, Python, numpy, Arrow with Parquet and its kernels, and psycopg take 90 when imported."""
AIMED_AT = ("capture", "driver and jvm")
"""Whose memory: the rest is Spark's workers, of which the machine decides how many there are."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A load, and how old its changes may be. None: no limit."""

    name: str
    rate: int
    p50: float | None
    p99: float | None
    max: float | None

    @property
    def limits(self) -> str:
        ages = {"p50": self.p50, "p99": self.p99, "max": self.max}
        said = [f"{name} {most:g} s" for name, most in ages.items() if most]
        return ", ".join([*said, f"growth {GROWTH:g}", f"{OF_FIRST:g} of the first CPU and memory"])


WORKLOADS = (
    Workload("freshness", 1_000, p50=1.0, p99=2.0, max=4.0),
    Workload("fresh-10k", 10_000, p50=None, p99=3.0, max=None),
)


def run(plan: Plan) -> list[Result]:
    return [_run(plan, workload) for workload in WORKLOADS]


def _run(plan: Plan, workload: Workload) -> Result:
    seconds = max(SECONDS * plan.scale, 10.0)
    rows = plan.sized(ROWS, ledger.LEAST_ROWS)
    folder = plan.folder / workload.name
    folder.mkdir()
    with servers.started(is_durable=True) as (server, sql):
        ledger.fill(sql, rows)
        project = commands.project(server, folder, "freshness", "public.ledger_*")
        commands.once(project)
        tables = {name: folder / "lake/Tables" / Path(*name.split(".")) for name in ledger.TABLES}
        before = commands.versions(tables)
        ledger.touch(sql)
        with commands.running(project) as process:
            commands.ready(process, tables, before)
            seen, cost, changed, rate = _worked(process, server, tables, workload, rows, seconds)
        commands.once(project)
        scratch = folder / "scratch"
        scratch.mkdir()
        verdicts = verify(server.url, tables, scratch, lambda _name: None)
    costs = _costs(workload, round(cost.cpu_seconds / changed * 1e6), cost.peak)
    return Result(
        workload.name,
        round(seen.p50, 3),
        equal=all(verdict.verified for verdict in verdicts),
        over="; ".join([*_too_old(workload, seen, rate), *_too_much(costs)]),
        more={
            "p50_seconds": round(seen.p50, 3),
            "p99_seconds": round(seen.p99, 3),
            "max_seconds": round(seen.max, 3),
            "growth": round(seen.growth, 2),
            "changes_per_second": round(rate),
            "limits": workload.limits,
            **costs,
        },
    )


def _costs(workload: Workload, seconds: int, peak: dict[str, int]) -> dict[str, object]:
    """CPU and memory, and what part of the first measurement that is."""
    costs: dict[str, object] = {CPU: seconds, MEMORY: peak}
    if before := history.first(workload.name):
        first = before[MEMORY]
        parts = {role: peak[role] / size for role, size in first.items() if role in peak}
        # Of PySpark the driver is a Python and a JVM.
        both = [sum(some[role] for role in ("driver", "jvm")) for some in (peak, first)]
        parts["driver and jvm"] = both[0] / both[1]
        costs[OF_CPU] = round(seconds / before[CPU], 2)
        costs[OF_MEMORY] = {role: round(part, 2) for role, part in parts.items()}
    return costs


def _worked(
    process: subprocess.Popen[bytes],
    server: Server,
    tables: dict[str, Path],
    workload: Workload,
    rows: int,
    seconds: float,
) -> tuple[Ages, Cost, int, float]:
    """The tables at work: ages, cost, rows changed meanwhile, and those in a second."""
    work = ledger.Work(server.url, rows, workload.rate, WARMING_SECONDS + seconds)
    work.start()
    time.sleep(WARMING_SECONDS)
    watch, find_rows = Watch(process.pid), AgeReader(list(tables.values()))
    before = watch.cpu_seconds()
    changed, took = work.result()
    commands.settled(process, tables)
    seen = find_rows.result()
    cost = watch.result()
    cost.cpu[-1] = -before
    say(f"  {workload.rate:,} changes a second: p50 {seen.p50:.2f} s, p99 {seen.p99:.2f} s")
    return seen, cost, round(changed * seconds / took), changed / took


def _too_much(costs: Mapping[str, Any]) -> list[str]:
    """What costs more of the first measurement than it should, in words."""
    memory = costs.get(OF_MEMORY, {})
    parts = {"CPU": costs.get(OF_CPU, 0.0)}
    parts |= {f"memory of {role}": memory.get(role, 0.0) for role in AIMED_AT}
    return [
        f"{name} {part:.2f} of the first measurement, not {OF_FIRST}"
        for name, part in parts.items()
        if part > OF_FIRST
    ]


def _too_old(workload: Workload, seen: Ages, rate: float) -> list[str]:
    """What limits of age were broken, in words."""
    found = [
        ("p50", seen.p50, workload.p50),
        ("p99", seen.p99, workload.p99),
        ("max", seen.max, workload.max),
    ]
    over = [
        f"{name} {is_:.2f} s, not below {most} s"
        for name, is_, most in found
        if most and is_ >= most
    ]
    if seen.growth > GROWTH:
        over.append(f"grew by {seen.growth:.2f}")
    if rate < workload.rate * 0.9:
        over.append(f"the database made {rate:,.0f} changes a second only")
    return over
