"""The contract of `apply/runner.py` as a suite that every runner passes.

A subclass supplies the fixture `runner`. Work is by functions of this module: where tasks cannot
import it, it has to be sent by value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirrorlake.apply.runner import Runner

FEW = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def doubled(number: int) -> int:
    return 2 * number


def spread(tasks: int, number: int) -> tuple[int, list[int | None]]:
    """Reports the number, and sends it to each task by whose number it is divisible."""
    return number, [number if number % (n + 1) == 0 else None for n in range(tasks)]


def passed(tasks: int, task: int, blocks: Sequence[int | None]) -> tuple[Any, list[Any]]:
    """Reports its number and blocks, and sends them to each task."""
    return (task, blocks), [(task, blocks)] * tasks


def received(task: int, blocks: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    return (task, blocks), ()


LARGE = 3 << 20
"""Bytes of a block."""


def large(number: int) -> tuple[None, list[bytes]]:
    return None, [bytes([number]) * LARGE]


def measured(_task: int, blocks: Sequence[bytes]) -> tuple[list[tuple[int, int]], Sequence[Any]]:
    return [(block[0], len(block)) for block in blocks], ()


def fails(_number: int) -> None:
    raise ValueError("wrong")


def changed(held: list[int]) -> int:
    held.append(0)
    return len(held)


class RunnerContract:
    """Every runner passes these."""

    @FEW
    @given(numbers=st.lists(st.integers(-9, 9), max_size=6), data=st.data())
    def test_results_are_in_the_order_of_the_items_however_they_are_packed(
        self, runner: Runner, numbers: list[int], data: st.DataObject
    ) -> None:
        expected = [2 * number for number in numbers]
        assert runner.run(doubled, numbers) == expected
        order = data.draw(st.permutations(range(len(numbers))))
        cut = data.draw(st.integers(0, len(numbers)))
        packing = [some for some in (order[:cut], order[cut:]) if some]
        assert runner.run(doubled, numbers, packing) == expected

    def test_there_are_slots_and_threads(self, runner: Runner) -> None:
        assert runner.slots >= 1
        assert all(runner.threads(tasks) >= 1 for tasks in (1, 2, 1_000))

    @FEW
    @given(numbers=st.lists(st.integers(1, 30), min_size=1, max_size=6), tasks=st.integers(1, 4))
    def test_blocks_reach_their_task_in_the_order_of_those_that_sent_them(
        self, runner: Runner, numbers: list[int], tasks: int
    ) -> None:
        later = [partial(passed, tasks), received]
        first, second, third = runner.chain(partial(spread, tasks), numbers, later, tasks)
        assert first == numbers
        assert second == [
            (n, [number if number % (n + 1) == 0 else None for number in numbers])
            for n in range(tasks)
        ]
        assert third == [(n, second) for n in range(tasks)]

    def test_large_blocks_are_whole(self, runner: Runner) -> None:
        _none, found = runner.chain(large, [1, 2], [measured], 1)
        assert found == [[(1, LARGE), (2, LARGE)]]

    def test_what_work_raises_ends_the_call(self, runner: Runner) -> None:
        with pytest.raises(Exception, match="wrong"):
            runner.run(fails, [1])

    def test_items_are_copies(self, runner: Runner) -> None:
        """A task has no way to what the caller holds."""
        item = [1]
        assert runner.run(changed, [item]) == [2]
        assert item == [1]
