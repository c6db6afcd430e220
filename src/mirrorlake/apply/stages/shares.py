"""Divides landed files into shares, and items into groups of about equal weight, for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.landing.parquet.bounded import Share

SHARES_PER_TASK = 4
"""Shares of landed files per task, so that they can be distributed evenly when the number of
resulting rows of each is known."""

MIN_SHARE_BYTES = 4 << 20
"""Minimum bytes per share, about a row group, because opening a share has a fixed cost."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputShare:
    """A landed file or a share of it. number: of the file in the batch."""

    number: int
    landed: LandedPath
    share: Share


def shares(landed: Sequence[LandedPath], count: int) -> list[tuple[InputShare, ...]]:
    """Divide landed files, in their order, into at most `count` runs of shares of about equal size.
    Only Parquet files are divided."""
    target = max(1, -(-sum(file.size for file in landed) // count))
    runs: list[list[InputShare]] = [[]]
    taken = 0.0
    for number, file in enumerate(landed):
        even, fine = round(file.size / target), round(SHARES_PER_TASK * file.size / target)
        parts = 1 if file.text else max(1, even, min(fine, file.size // MIN_SHARE_BYTES))
        for index in range(parts):
            size = file.size / parts
            if taken + size / 2 > target * len(runs) and runs[-1] and len(runs) < count:
                runs.append([])
            runs[-1].append(InputShare(number, file, Share(index, parts)))
            taken += size
    return [tuple(run) for run in runs]


def balanced(items: Sequence[T], weights: Sequence[int], count: int) -> list[tuple[T, ...]]:
    """Divide items into at most `count` nonempty groups of about equal weight."""
    groups: list[list[T]] = [[] for _ in range(min(count, len(items)))]
    weight = [0] * len(groups)
    for index in sorted(range(len(items)), key=lambda index: -weights[index]):
        lightest = weight.index(min(weight))
        groups[lightest].append(items[index])
        weight[lightest] += weights[index] + 1
    return [tuple(group) for group in groups]
