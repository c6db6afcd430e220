"""A minute of `make soak`: small batches without a pause, and what could grow with them.

The long form says what an hour does. This one only shows that nothing has got out of hand: whether
the last twenty seconds are as fast as the first, and memory is what it was.
"""

from __future__ import annotations

from bench.result import Result
from bench.rounds import Plan
from bench.soak import result, soak
from bench.spark import session

SECONDS, STRETCHES = 60, 3


def run(plan: Plan) -> list[Result]:
    with session() as spark:
        seconds = plan.sized(SECONDS, 30)
        found, equal = soak(plan.folder / "soak", spark, seconds, STRETCHES)
    return [result(found[0], found[-1], equal=equal)]
