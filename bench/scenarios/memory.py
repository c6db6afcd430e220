"""Memory: the peak of the capture process for 10 million rows in one transaction.

Capture is a process of its own, as in `mirrorlake run`, and tells its own peak (`VmHWM`), which
includes the interpreter and all libraries. Equal: every landed row and value against the rows in
PostgreSQL.
"""

from __future__ import annotations

import multiprocessing
import re
from multiprocessing.connection import Connection
from pathlib import Path

from bench import equality, payments
from bench import server as servers
from bench.peers import copy_file
from bench.result import Result
from bench.rounds import Plan, say, timed
from mirrorlake.app.mirror import Mirror
from mirrorlake.cli import logs
from mirrorlake.config import Project

ROWS = 10_000_000
LIMIT_MEBIBYTES = 1024


def run(plan: Plan) -> list[Result]:
    rows, root = plan.sized(ROWS), plan.folder / "root"
    with servers.started() as (server, sql):
        sql.execute(payments.SCHEMA)
        project = servers.project(server, root, "memory", payments.TABLE)
        Mirror(project).capture_once()
        say(f"  writing {rows:,} rows in one transaction")
        sql.execute(payments.insert(1, rows))
        say("  capturing them")
        seconds, peak = _captured(project)
        say("  comparing")
        copied = plan.folder / "copied.csv"
        copy_file.copy(server.url, copied)
    schema, table = payments.TABLE.split(".")
    landed = root / "Files/LandingZone" / f"{schema}.schema" / table / "*.parquet"
    there = equality.fingerprint(equality.csv(copied))
    over = f"{peak} MiB, not below {LIMIT_MEBIBYTES} MiB" if peak >= LIMIT_MEBIBYTES else ""
    return [
        Result(
            "memory",
            seconds,
            equal=there == equality.fingerprint(equality.parquet(landed)),
            over=over,
            more={"ours_mebibytes": peak, "limit_mebibytes": LIMIT_MEBIBYTES, "rows": rows},
        )
    ]


def _captured(project: Project) -> tuple[float, int]:
    """Capture in a process of its own. Returns its seconds and its peak in MiB."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_capture, args=(project, theirs), daemon=True)
    process.start()
    theirs.close()
    seconds, peak = ours.recv()
    process.join()
    return float(seconds), int(peak)


def _capture(project: Project, results: Connection) -> None:
    logs.configure(quiet=True)
    with timed() as watch:
        Mirror(project).capture_once()
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    results.send((watch.seconds, int(found[1]) >> 10))
