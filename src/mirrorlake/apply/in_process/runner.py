"""Runs tasks one after another in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class InProcessRunner:
    """A `Runner`. slots: the number of slots to report, by which callers divide work.

    Work, items and results are pickled, as for other processes.
    """

    def __init__(self, slots: int = 1) -> None:
        self._slots = slots

    @property
    def slots(self) -> int:
        return self._slots

    def threads(self, tasks: int) -> int:  # noqa: ARG002  (of the contract)
        return 1

    def run(
        self,
        work: Callable[[T], R],
        items: Sequence[T],
        packing: Sequence[Sequence[int]] | None = None,
    ) -> list[R]:
        found: dict[int, R] = {}
        for indexes in packing or [[index] for index in range(len(items))]:
            for index in indexes:
                found[index] = _pickled(_pickled(work)(_pickled(items[index])))
        return [found[index] for index in range(len(items))]

    def broadcast(self, work: Callable[[T, S], R], items: Sequence[T], shared: S) -> list[R]:
        return [_pickled(_pickled(work)(_pickled(item), _pickled(shared))) for item in items]

    def shuffle(
        self,
        split: Callable[[T], tuple[S, Sequence[bytes]]],
        items: Sequence[T],
        merge: Callable[[int, Sequence[bytes]], R],
        partitions: int,
    ) -> tuple[list[S], list[R]]:
        split_items = self.run(split, items)
        blocks = [[blocks[n] for _first, blocks in split_items] for n in range(partitions)]
        merged = [_pickled(_pickled(merge)(n, _pickled(group))) for n, group in enumerate(blocks)]
        return [first for first, _blocks in split_items], merged

    def cancel(self) -> None:
        """Does nothing: tasks in this process cannot be cancelled."""


def _pickled(value: T) -> T:
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  (pickled here)
    return copy
