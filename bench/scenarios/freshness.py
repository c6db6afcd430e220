"""Freshness: how old a change is when it becomes readable in Delta, while a database works.

It is the demo's own run: capture and apply side by side, seven tables, 2,000 changed rows a second
of every kind, a marker row every 0.2 seconds that carries the time just before its commit, and a
reader outside of the mirror that looks for it. Equal: every row, value and change feed against
PostgreSQL at the end.
"""

from __future__ import annotations

import statistics

from bench.result import Result
from bench.rounds import Plan, say
from mirrorlake.app.demo.demo import Demo, DemoSettings
from mirrorlake.cli import logs

ROWS = 1_000_000
SECONDS = 30.0
RATE = 2_000


def run(plan: Plan) -> list[Result]:
    settings = DemoSettings(plan.sized(ROWS, 10_000), max(SECONDS * plan.scale, 10.0), RATE)
    runs = []
    for number in range(1, plan.rounds + 1):
        folder, quiet = plan.folder / str(number), logs.configure(quiet=True)
        demo = Demo(folder, settings, _Silent(), quiet)
        runs.append(demo.run())
        say(f"  round {number} of {plan.rounds}: p50 {runs[-1].freshness.p50} s")
    fresh = [run.freshness for run in runs]
    middle = _median([one.p50 for one in fresh])
    return [
        Result(
            "freshness",
            middle,
            equal=all(run.verified for run in runs),
            more={
                "p50_seconds": middle,
                "p99_seconds": _median([one.p99 for one in fresh]),
                "max_seconds": _median([one.max for one in fresh]),
                "changes_per_second": round(statistics.median(r.changes_per_second for r in runs)),
            },
        )
    ]


def _median(found: list[float | None]) -> float | None:
    known = [one for one in found if one is not None]
    return round(statistics.median(known), 3) if known else None


class _Silent:
    """Where the demo says what it does: nowhere."""

    def begin(self, what: str, total: float | None = None) -> None: ...
    def advance(self, done: float) -> None: ...
    def end(self, outcome: str) -> None: ...
