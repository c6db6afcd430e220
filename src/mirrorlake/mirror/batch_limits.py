"""Limits of batches, and which batches are background jobs, so that other tables stay fresh.

A cycle applies the small batches of all tables in one job, because a job for one table costs as
much as a job for fifty; it takes as long as the slowest batch. Batches that take seconds are
background jobs. The cost of a batch depends on its rows and bytes, not on the size of its table.
"""

from __future__ import annotations

from dataclasses import dataclass

CHECKPOINT_EVERY = 100
"""Number of commits per checkpoint, and so the maximum number that a reader of the log reads. A
checkpoint costs about as much as a commit, unless very many files were removed in the last days,
each of which it lists."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Maximum size of a batch, which one task folds in memory. large_rows, large_size: larger
    batches are background jobs; a batch of this size takes some tenths of a second on one core."""

    rows: int = 4_000_000
    size: int = 1 << 30  # bytes, uncompressed
    files: int = 2_000
    large_rows: int = 50_000
    large_size: int = 64 << 20  # bytes, uncompressed

    def is_large(self, rows: int, size: int = 0) -> bool:
        """Whether a batch of this size is a background job."""
        return rows > self.large_rows or size > self.large_size
