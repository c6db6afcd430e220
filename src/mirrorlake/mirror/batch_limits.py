"""How large batches grow, and which of them are background jobs, so that quiet tables stay fresh.

A cycle carries small batches together, because a job costs as much for one table as for fifty, and
it lasts as long as the slowest of them. What takes seconds is no part of a cycle. What a batch
costs follows its rows and bytes, whatever the size of its table.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECKPOINT_EVERY = 100
"""Commits, of which a start reads so many at most. A checkpoint costs no more than one of them, as
long as not too many files were deleted in the last days: it tells of each."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How large a batch may grow: one task folds it in memory. large: beyond which other tables do
    not wait for it, some tenths of a second of one core."""

    rows: int = 4_000_000
    size: int = 1 << 30  # bytes, uncompressed
    files: int = 2_000
    large_rows: int = 50_000
    large_size: int = 64 << 20  # bytes, uncompressed

    def is_large(self, rows: int, size: int = 0) -> bool:
        """Whether other tables should not wait for so many rows and bytes."""
        return rows > self.large_rows or size > self.large_size
