"""Small batches share a task: to start a task takes as long as a batch of a few hundred rows.

What a batch takes follows its rows, except where its table is large: then it may have to look into
many files. So only small batches of tables that are not large share a task, and there are never
fewer tasks than slots as long as there is work for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirrorlake.apply.task.batch import BatchTask
from mirrorlake.delta.file_list import total_bytes

LANDED = 256 << 10
"""Bytes of landed files up to which a batch is small."""

STORED = 256 << 20
"""Bytes of data files from which on a table is large."""

ALONE = 64 << 10
"""What a batch without a row takes, in bytes of landed files that take as long."""


def packed(batches: Sequence[BatchTask], slots: int) -> list[list[int]]:
    """The batches of each task, as indexes: every index once."""
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
