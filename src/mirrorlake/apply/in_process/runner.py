"""Tasks one after another in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")


class InProcessRunner:
    """A `Runner`. slots: how many tasks it says run at once, for who divides work by it.

    As to other processes, work, items and results go there and back as bytes.
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
                found[index] = _sent(_sent(work)(_sent(items[index])))
        return [found[index] for index in range(len(items))]

    def broadcast(self, work: Callable[[T, S], R], items: Sequence[T], shared: S) -> list[R]:
        return [_sent(_sent(work)(_sent(item), _sent(shared))) for item in items]

    def shuffle(
        self,
        split: Callable[[T], tuple[S, Sequence[bytes]]],
        items: Sequence[T],
        merge: Callable[[int, Sequence[bytes]], R],
        partitions: int,
    ) -> tuple[list[S], list[R]]:
        split_items = self.run(split, items)
        blocks = [[blocks[n] for _said, blocks in split_items] for n in range(partitions)]
        merged = [_sent(_sent(merge)(n, _sent(some))) for n, some in enumerate(blocks)]
        return [said for said, _blocks in split_items], merged

    def cancel(self) -> None:
        """What runs here runs to its end."""


def _sent(value: T) -> T:
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  (our own, a moment ago)
    return copy
