"""Work that goes in waves: each wave of all of it is one job, so that no work waits for another's
turn and a job is paid for once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from mirrorlake.spark.task import Spec, TaskResult

T = TypeVar("T")
Waves = Generator[Sequence[Spec], list[TaskResult], T]
"""Yields the specifications of a wave, is sent their results in their order, returns what it made
of all of them."""


def together(
    works: Sequence[Waves[T]], run: Callable[[Sequence[Spec]], list[TaskResult]]
) -> list[T]:
    """Run all works, wave by wave. Returns what each of them made."""
    made: dict[int, T] = {}
    try:
        wanted = {place: _next(made, works, place, None) for place in range(len(works))}
        while waiting := {place: specs for place, specs in wanted.items() if specs is not None}:
            results = iter(run([spec for specs in waiting.values() for spec in specs]))
            wanted = {
                place: _next(made, works, place, [next(results) for _ in specs])
                for place, specs in waiting.items()
            }
    finally:
        for work in works:
            work.close()
    return [made[place] for place in range(len(works))]


def _next(
    made: dict[int, T], works: Sequence[Waves[T]], place: int, results: list[TaskResult] | None
) -> Sequence[Spec] | None:
    """The next wave of a work; None, and what it made, when it has ended."""
    work = works[place]
    try:
        return next(work) if results is None else work.send(results)
    except StopIteration as end:
        made[place] = end.value
        return None
