"""The contract of a runner, which runs tasks in other processes and exchanges data between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")

StageResult = tuple[Any, Sequence[Any]]
"""The report of a task of a chain, and its blocks for the tasks of the next stage."""


class TasksDied(Exception):
    """Tasks died with their process at every attempt. The message contains the reason."""


class Runner(Protocol):
    """Runs work on items; work, items and results are pickled.

    Results are in the order of the items. A task may run repeatedly, several times at once, late,
    or on a new machine: so work only writes new files, and only those in its result are used. Work
    should not raise; an exception ends the call. Thread-safe.

    Raises TasksDied if tasks died with their process. Other errors that end a call, such as a
    cancellation or a lost cluster, are raised unchanged.
    """

    @property
    def slots(self) -> int:
        """The number of tasks that can run at the same time."""
        ...

    def threads(self, tasks: int) -> int:
        """The number of threads that each of `tasks` tasks may use."""
        ...

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[R]:
        """Run work on each item. packing: the indexes of the items of each task; by default one
        task per item."""
        ...

    def chain(
        self,
        first: Callable[[T], StageResult],
        items: Sequence[T],
        later: Sequence[Callable[[int, Sequence[Any]], StageResult]],
        tasks: int,
    ) -> list[list[Any]]:
        """Run stages of tasks that send blocks to the tasks of the next stage.

        The first stage has one task per item, each later one `tasks` tasks. A task returns its
        report, and one block for each task of the next stage, in their order. A later task gets its
        number and the blocks for it, in the order of the tasks that sent them. Returns the reports
        of each stage, in the order of its tasks.
        """
        ...

    def cancel(self) -> None:
        """Cancel running calls if possible; their callers get an error. Thread-safe."""
        ...
