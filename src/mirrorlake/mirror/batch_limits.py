"""Which batches every table waits for, and which go beside: so that a quiet table stays fresh.

A cycle carries small batches together, because a job costs as much for one table as for fifty, and
it lasts as long as the slowest of them. What takes seconds is no part of a cycle. What a batch
costs follows its rows and bytes, whatever the size of its table.
"""

from __future__ import annotations

from mirrorlake.mirror.batch import BatchLimits
from mirrorlake.mirror.steps import ApplyFiles

CHECKPOINT_EVERY = 100
"""Commits, of which a start reads so many at most. A checkpoint costs no more than one of them, as
long as not too many files were deleted in the last days: it tells of each."""


def is_large(step: ApplyFiles, limits: BatchLimits) -> bool:
    """Whether other tables should not wait for this batch."""
    return limits.is_large(step.rows, step.size)


def is_long(rows: int, limits: BatchLimits) -> bool:
    """Whether other tables should not wait until so many rows are rearranged."""
    return rows > limits.large_rows
