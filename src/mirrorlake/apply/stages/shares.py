"""What each task of a stage reads: shares of landed files, and groups of about the same size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from mirrorlake.apply.task.landed_rows import LandedPath
from mirrorlake.landing.parquet.bounded import Share

FINE = 4
"""Shares of landed rows per task: so that they can be distributed evenly once it is known how many
of them are left."""

LEAST_SHARE = 4 << 20
"""Bytes of a landed file, about a row group, below which shares do not become finer: to open one
takes as long as to read some."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InputShare:
    """A landed file or a share of it. number: of the file in the batch."""

    number: int
    landed: LandedPath
    share: Share


def shares(landed: Sequence[LandedPath], count: int) -> list[tuple[InputShare, ...]]:
    """Landed files and shares of files, in their order, in at most `count` runs of about the same
    size. Only Parquet is shared out."""
    target = max(1, -(-sum(file.size for file in landed) // count))
    runs: list[list[InputShare]] = [[]]
    taken = 0.0
    for number, file in enumerate(landed):
        even, fine = round(file.size / target), round(FINE * file.size / target)
        parts = 1 if file.text else max(1, even, min(fine, file.size // LEAST_SHARE))
        for index in range(parts):
            size = file.size / parts
            if taken + size / 2 > target * len(runs) and runs[-1] and len(runs) < count:
                runs.append([])
            runs[-1].append(InputShare(number, file, Share(index, parts)))
            taken += size
    return [tuple(run) for run in runs]


def balanced(items: Sequence[T], weights: Sequence[int], count: int) -> list[tuple[T, ...]]:
    """Items in at most `count` groups, none empty: the heaviest first, each to the lightest."""
    groups: list[list[T]] = [[] for _ in range(min(count, len(items)))]
    weight = [0] * len(groups)
    for index in sorted(range(len(items)), key=lambda index: -weights[index]):
        lightest = weight.index(min(weight))
        groups[lightest].append(items[index])
        weight[lightest] += weights[index] + 1
    return [tuple(group) for group in groups]
