"""Rounds: all sides in turn, so that a slow minute of the machine falls on all of them.

Before each side, all that others have written is flushed: a side that makes its files durable would
wait for the files of those that do not. And the files of its copy of a table are in the page cache
(`cached`): some machines take the memory of files that were not read for some seconds, so that a
side would read from the disk after a slow one, and from memory after a fast one.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

WARM = 0
"""The first round warms caches and compilers, and does not count."""

_BLOCK = 1 << 20

Side = Callable[[int], float]
"""Does the work of one round and returns its seconds, without preparation and cleaning up."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run: rounds that count, a factor on all sizes, and a folder for scratch."""

    rounds: int
    scale: float
    folder: Path

    def sized(self, full: int, least: int = 1) -> int:
        return max(round(full * self.scale), least)

    @property
    def all_rounds(self) -> range:
        """The warming one included."""
        return range(self.rounds + 1)


class Stopwatch:
    seconds = 0.0


@contextmanager
def timed() -> Iterator[Stopwatch]:
    watch, began = Stopwatch(), time.perf_counter()
    yield watch
    watch.seconds = time.perf_counter() - began


def medians(plan: Plan, sides: Mapping[str, Side]) -> dict[str, float]:
    """Run all sides in turn, in another order each round. Returns the median of each."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in plan.all_rounds:
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            os.sync()
            seconds = sides[name](number)
            said = "warming" if number == WARM else f"round {number} of {plan.rounds}"
            say(f"  {said}: {name} {seconds:.2f} s")
            if number != WARM:
                found[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def cached(path: str | Path) -> None:
    """Read a file, so that it is in the page cache."""
    with Path(path).open("rb", buffering=0) as file:
        while file.read(_BLOCK):
            pass


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
