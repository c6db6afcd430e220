"""What a cycle waits for, and what goes on beside it."""

from __future__ import annotations

import pytest

from mirrorlake.mirror.batch_limits import BatchLimits

LIMITS = BatchLimits(large_rows=100, large_size=1_000)


@pytest.mark.parametrize(
    ("rows", "size", "large"),
    [(0, 0, False), (100, 1_000, False), (101, 0, True), (1, 1_001, True)],
)
def test_a_batch_is_large_by_its_rows_or_by_its_bytes(rows: int, size: int, large: bool) -> None:
    assert LIMITS.is_large(rows, size) is large


@pytest.mark.parametrize(("rows", "large"), [(0, False), (100, False), (101, True)])
def test_a_compaction_is_large_by_the_rows_that_it_writes(rows: int, large: bool) -> None:
    assert LIMITS.is_large(rows) is large
