"""What a cycle waits for, and what goes on beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirrorlake.mirror.batch_limits import BatchLimits, is_large, is_long
from mirrorlake.mirror.steps import ApplyFiles, Estimate
from mirrorlake.model.change import Marker
from mirrorlake.model.table import TableId

LIMITS = BatchLimits(large_rows=100, large_size=1_000)
STEP = ApplyFiles(TableId("s", "t"), "Tables/s/t", "t", (), 1, 1, ("id",), Marker.UPSERT)


@pytest.mark.parametrize(
    ("rows", "size", "large"),
    [(0, 0, False), (100, 1_000, False), (101, 0, True), (1, 1_001, True)],
)
def test_a_batch_is_large_by_its_rows_or_by_its_bytes(rows: int, size: int, large: bool) -> None:
    assert is_large(replace(STEP, estimate=Estimate(rows, size)), LIMITS) is large


@pytest.mark.parametrize(("rows", "long"), [(0, False), (100, False), (101, True)])
def test_a_compaction_is_long_by_the_rows_that_it_writes(rows: int, long: bool) -> None:
    assert is_long(rows, LIMITS) is long
