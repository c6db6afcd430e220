"""The contract of a runner, which runs tasks in other processes and exchanges data between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


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

    def broadcast(self, work: Callable[[T, S], R], items: Sequence[T], shared: S) -> list[R]:
        """Run work on each item and a shared value, which is sent once per machine."""
        ...

    def shuffle(
        self,
        split: Callable[[T], tuple[S, Sequence[bytes]]],
        items: Sequence[T],
        merge: Callable[[int, Sequence[bytes]], R],
        partitions: int,
    ) -> tuple[list[S], list[R]]:
        """Split each item into one block per partition; then merge the blocks of each partition, in
        the order of the items.

        Returns the first result of `split` for each item, and the result of `merge` for each
        partition.
        """
        ...

    def cancel(self) -> None:
        """Cancel running calls if possible; their callers get an error. Thread-safe."""
        ...
