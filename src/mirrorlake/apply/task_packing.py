"""Task packing: several small batches share a task, because starting a task takes as long as a
batch of a few hundred rows.

The cost of a batch depends on its rows, and for a large table also on the number of files to
search. So only small batches of tables that are not large share a task, and all slots are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.delta.file_list import total_bytes

LANDED = 256 << 10
"""Maximum bytes of landed files of a small batch."""

STORED = 256 << 20
"""Minimum bytes of data files of a large table."""

ALONE = 64 << 10
"""The fixed cost of a batch, as bytes of landed files."""


def packed(batches: Sequence[BatchTask], slots: int) -> list[list[int]]:
    """The batches of each task, as indexes."""
    shared = [index for index, batch in enumerate(batches) if _is_small(batch)]
    tasks: list[list[int]] = [[] for _ in range(min(slots, len(shared)))]
    weights = [0] * len(tasks)
    for index in sorted(shared, key=lambda index: -_weight(batches[index])):
        lightest = weights.index(min(weights))
        tasks[lightest].append(index)
        weights[lightest] += _weight(batches[index])
    return [[index] for index, batch in enumerate(batches) if not _is_small(batch)] + tasks


def _is_small(batch: BatchTask) -> bool:
    if batch.appends:
        return False
    return _weight(batch) <= ALONE + LANDED and total_bytes(batch.files) < STORED


def _weight(batch: BatchTask) -> int:
    return ALONE + sum(file.size for file in batch.landed)
