"""The contract of a runner: it runs tasks, wherever that is, and exchanges bytes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class TasksDied(Exception):
    """Tasks died with their process, as often as they were tried. Its text says why, in words."""


class Runner(Protocol):
    """Runs work on items; work, items and results are pickled.

    Results come in the order of the items. A task may run again, twice at the same time, late, or
    on a machine that joined a moment ago: work writes only new files, of which those that it names
    in its result count. Work raises nothing; what it raises all the same ends the call. A call may
    be made from several threads.

    Raises TasksDied when tasks died with their process; what else ends a call (it was cancelled,
    the cluster is gone) is raised as it comes.
    """

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        ...

    def threads(self, tasks: int) -> int:
        """How many threads each of so many tasks may use."""
        ...

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[R]:
        """Run work on each item. packing: the items of each task, as indexes; by default a task for
        each item."""
        ...

    def broadcast(self, work: Callable[[T, S], R], items: Sequence[T], shared: S) -> list[R]:
        """Run work on each item and on what all of them share, which is sent once to a machine."""
        ...

    def shuffle(
        self,
        split: Callable[[T], tuple[S, Sequence[bytes]]],
        items: Sequence[T],
        merge: Callable[[int, Sequence[bytes]], R],
        partitions: int,
    ) -> tuple[list[S], list[R]]:
        """Split each item into a block for each partition; then merge the blocks of each partition,
        which come in the order of the items.

        Returns what `split` says of each item, and what `merge` made of each partition.
        """
        ...

    def cancel(self) -> None:
        """Let what is under way end early, if that can be; its callers get an error. From any
        thread."""
        ...
