"""Runs tasks one after another in this process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from mirrorlake.apply.runner import StageResult

T = TypeVar("T")
R = TypeVar("R")


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

    def chain(
        self,
        first: Callable[[T], StageResult],
        items: Sequence[T],
        later: Sequence[Callable[[int, Sequence[Any]], StageResult]],
        tasks: int,
    ) -> list[list[Any]]:
        done = self.run(first, items)
        reports = [[report for report, _blocks in done]]
        for work in later:
            blocks = [(n, [sent[n] for _report, sent in done]) for n in range(tasks)]
            done = self.run(partial(_numbered, work), blocks)
            reports.append([report for report, _blocks in done])
        return reports

    def cancel(self) -> None:
        """Does nothing: tasks in this process cannot be cancelled."""


def _numbered(
    work: Callable[[int, Sequence[Any]], StageResult], given: tuple[int, Sequence[Any]]
) -> StageResult:
    return work(*given)


def _pickled(value: T) -> T:
    copy: T = pickle.loads(pickle.dumps(value))  # noqa: S301  (pickled here)
    return copy
