"""A minute of `make soak`: small batches without a pause, and what could grow with them.

The long form says what an hour does. This one only shows that nothing has got out of hand: whether
the last twenty seconds are as fast as the first, and memory is what it was.
"""

from __future__ import annotations

from bench.result import Result
from bench.rounds import Plan
from bench.soak import complaints, soak
from bench.spark import session

SECONDS, STRETCHES = 60, 3


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        seconds = plan.sized(SECONDS, 30)
        found, equal = soak(plan.folder / "soak", spark, seconds, STRETCHES)
    first, last = found[0], found[-1]
    return [
        Result(
            "soak",
            round(last.p50, 3),
            equal=equal,
            over="; ".join(complaints(found)),
            more={
                "first_p50_seconds": round(first.p50, 3),
                "last_p50_seconds": round(last.p50, 3),
                "last_p99_seconds": round(last.p99, 3),
                "cpu_seconds_per_file": [round(first.cpu, 3), round(last.cpu, 3)],
                "files": last.files,
                "dead": round(last.dead, 2),
                "driver_mebibytes": [first.usage.driver, last.usage.driver],
                "heap_mebibytes": [first.usage.heap, last.usage.heap],
            },
        )
    ]
