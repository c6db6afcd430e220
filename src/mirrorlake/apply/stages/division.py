"""Divides the resulting rows of a batch among the tasks that write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyroaring import BitMap

from mirrorlake.apply.stages.shares import InputShare, balanced
from mirrorlake.apply.stages.tasks import Folded, KeysRead, Stretch, Taken, bitmap, numbers

WRITE_COST = 3
"""The cost of writing a row with its image, relative to reading it."""


class GivenUp(Exception):
    """The batch has to be applied in one task; the argument is the reason, for the log."""


def keys_with_one_row(folded: Sequence[Folded], taken: Sequence[Taken]) -> list[np.ndarray]:
    """For each partition, the numbers of its keys that had one row in the table, ascending."""
    once = []
    for index in range(len(folded)):
        found = [of[index] for result in taken for of in (result.once, result.several)]
        bitmaps = [BitMap.deserialize(encoded) for encoded in found]
        if len(BitMap.union(*bitmaps)) != sum(map(len, bitmaps)):
            raise GivenUp("a key with rows in files of several tasks")
        once.append(numbers(_union([result.once[index] for result in taken])))
    return once


def resulting_rows(
    folded: Sequence[Folded], once: Sequence[np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The row numbers of each run's resulting rows, and of those of them that replace exactly one
    row of the table; ascending. once: for each partition, the keys that had one row."""
    left = [[fold.left[run][0] for fold in folded] for run in range(len(folded[0].left))]
    updated: list[list[bytes]] = [[] for _ in left]
    for fold, single in zip(folded, once, strict=True):
        start = 0
        for run, (_rows, replacing) in enumerate(fold.left):
            number = numbers(replacing)
            end = start + len(number)
            section = slice(*np.searchsorted(single, [start, end]).tolist())
            updated[run].append(bitmap(number[single[section] - start]))
            start = end
    return [
        (numbers(_union(rows)), numbers(_union(replacing)))
        for rows, replacing in zip(left, updated, strict=True)
    ]


def _union(encoded: Sequence[bytes]) -> bytes:
    return BitMap.union(*map(BitMap.deserialize, encoded)).serialize()


def stretches(
    runs: Sequence[Sequence[InputShare]],
    read: Sequence[KeysRead],
    left: Sequence[tuple[np.ndarray, np.ndarray]],
    count: int,
) -> list[tuple[Stretch, ...]]:
    """Group all that was read by tasks of about equal cost to read and write: later rows of a batch
    are more often resulting rows. left: as of `resulting_rows`."""
    found, weights = [], []
    for run, (shares_, keys, numbers_) in enumerate(zip(runs, read, left, strict=True)):
        begin = 0
        for share, end in zip(shares_, keys.ends, strict=True):
            rows, updated = (
                number[slice(*np.searchsorted(number, [begin, end]).tolist())] - begin
                for number in numbers_
            )
            found.append(Stretch(run, begin, end, share, bitmap(rows), bitmap(updated)))
            weights.append(end - begin + WRITE_COST * len(rows))
            begin = end
    groups = balanced(found, weights, count)
    return [tuple(sorted(group, key=_in_order)) for group in groups]


def _in_order(stretch: Stretch) -> tuple[int, int, int]:
    return stretch.run, stretch.begin, stretch.end
