"""A backfill of 5 million rows while ten other tables are changed at 1,000 rows a second.

How fast it is, against the initial load of the same table into an empty mirror, from PostgreSQL to
Delta; nothing else is done during that. Both are repeated as many times as there are rounds: the
load with a Spark that runs already, the backfill by one `mirrorlake run` as a person would start
it. It ends when the table has the commit of the last chunk. No row differs, so that nothing of the
table changes. How old the changes of the ten tables are when they become readable in Delta
meanwhile is measured as in `freshness`. Equal: every row of all tables, and their change feeds,
against PostgreSQL at the end.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench import commands, ledger, payments
from bench import server as servers
from bench.ages import AgeReader, Ages, newest
from bench.result import Result
from bench.rounds import Plan, medians, say, timed
from bench.server import Server
from bench.spark import session
from mirrorlake.app.mirror import Mirror
from mirrorlake.capture.backfill.jobs import BackfillJob, BackfillJobState
from mirrorlake.demo.verify import verify

ROWS, LEDGER_ROWS = 5_000_000, 100_000
RATE = 1_000
P99_SECONDS = 3.0
SPEED = 0.5
"""Of the load, which the backfill has at least."""
WARMING_SECONDS, PATIENCE_SECONDS = 20.0, 3_600.0
LOOK_SECONDS = 0.05
LOADED = "initial load"


def run(plan: Plan) -> list[Result]:
    rows = plan.sized(ROWS, payments.LEAST_ROWS)
    with servers.started(is_durable=True) as (server, sql):
        payments.fill(sql, rows)
        load = _load(plan, server)
        ledger.fill(sql, plan.sized(LEDGER_ROWS, ledger.LEAST_ROWS))
        found = _backfill(plan, server, sql)
        tables = _tables(plan.folder / "backfill")
        scratch = plan.folder / "scratch"
        scratch.mkdir()
        verdicts = verify(server.url, tables, scratch, lambda _name: None)
    seen = found.ages
    over = f"p99 {seen.p99:.2f} s, not below {P99_SECONDS:g} s" if seen.p99 >= P99_SECONDS else ""
    if found.rate < RATE * 0.9:
        over = f"the database made {found.rate:,.0f} changes a second only"
    say(
        f"  {rows:,} rows: load {load:.1f} s, backfill {found.seconds:.1f} s; "
        f"p50 {seen.p50:.2f} s, p99 {seen.p99:.2f} s"
    )
    return [
        Result(
            "backfill",
            found.seconds,
            LOADED,
            load,
            target=SPEED,
            equal=all(verdict.verified for verdict in verdicts),
            over=over,
            more={
                "rows": rows,
                "chunks": found.job.chunks,
                "p50_seconds": round(seen.p50, 3),
                "p99_seconds": round(seen.p99, 3),
                "max_seconds": round(seen.max, 3),
                "changes_per_second": round(found.rate),
            },
        )
    ]


def _load(plan: Plan, server: Server) -> float:
    """Seconds of the initial load of the table alone."""
    with session() as spark:

        def loaded(number: int) -> float:
            root = plan.folder / f"load-{number}"
            project = servers.project(server, root, f"load_{number}", payments.TABLE)
            with Mirror(project, spark=spark) as mirror:
                with timed() as watch:
                    mirror.capture_once()
                    mirror.apply_once()
                mirror.detach()
            shutil.rmtree(root)
            return watch.seconds

        return medians(plan, {"ours": loaded})["ours"]


@dataclass(frozen=True, slots=True)
class _Backfilled:
    """seconds: from the request until the last chunk is committed."""

    job: BackfillJob
    seconds: float
    ages: Ages
    rate: float


def _backfill(plan: Plan, server: Server, sql: psycopg.Connection) -> _Backfilled:
    folder = plan.folder / "backfill"
    folder.mkdir()
    file = commands.project(server, folder, "backfill", "public.ledger_*", payments.TABLE)
    commands.once(file)
    changing = {name: path for name, path in _tables(folder).items() if name in ledger.TABLES}
    table, jobs = _tables(folder)[payments.TABLE], list[BackfillJob]()

    def backfilled(_number: int) -> float:
        with timed() as watch:
            jobs.append(_done(Mirror.open(file), table))
        return watch.seconds

    before = commands.versions(changing)
    ledger.touch(sql)
    present = plan.sized(LEDGER_ROWS, ledger.LEAST_ROWS)
    with commands.running(file) as process:
        commands.ready(process, changing, before)
        work = ledger.Work(server.url, present, RATE, PATIENCE_SECONDS)
        work.start()
        time.sleep(WARMING_SECONDS)
        find_ages = AgeReader(list(changing.values()))
        seconds = medians(plan, {"ours": backfilled})["ours"]
        work.end()
        changed, took = work.result()
        commands.settled(process, changing)
        ages = find_ages.result()
    commands.once(file)
    return _Backfilled(jobs[-1], seconds, ages, changed / took)


def _done(mirror: Mirror, table: Path) -> BackfillJob:
    """Ask for the backfill, and wait for the commit of its last chunk."""
    before = newest(table)
    mirror.backfill(payments.TABLE)
    while True:
        (job,) = mirror.backfills()
        if job.state is BackfillJobState.COMPLETED:
            break
        if job.state not in {BackfillJobState.PENDING, BackfillJobState.ACTIVE}:
            raise RuntimeError(f"the backfill is {job.state}")
        time.sleep(LOOK_SECONDS)
    last = {"id": job.request.id, "chunk": job.chunks}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while all(_chunk(table, version) != last for version in range(before, newest(table) + 1)):
        if time.monotonic() > deadline:
            raise RuntimeError("the last chunk is not applied")
        time.sleep(LOOK_SECONDS)
    return job


def _chunk(table: Path, version: int) -> object:
    """The backfill and the chunk that a commit of a table is of."""
    commit = table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    (info,) = (action["commitInfo"] for action in actions if "commitInfo" in action)
    return json.loads(info.get("userMetadata") or "{}").get("backfill")


def _tables(folder: Path) -> dict[str, Path]:
    names = [*ledger.TABLES, payments.TABLE]
    return {name: folder / "lake/Tables" / Path(*name.split(".")) for name in names}
