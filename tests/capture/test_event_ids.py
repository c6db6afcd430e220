"""The ids that we write say to a consumer in which order the events of a batch stand."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.capture.events.build import ids
from mirrorlake.mirror.event_order import RULES, records

BATCH = "5f3c1c5a9d0e4a6b"


@pytest.mark.clause("ST-367", "ST-212")
@pytest.mark.parametrize("first", [0, 250, (1 << 24) - 3])
def test_events_at_one_place_of_the_log_have_the_order_in_which_they_were_written(
    first: int,
) -> None:
    count = 600
    written = ids(BATCH, first, count)
    assert written.to_pylist() == sorted(set(written.to_pylist()))
    assert all(str(uuid.UUID(one)) == one for one in written.to_pylist())
    head = {
        "uuid": written,
        "lsn": pa.array(["0/1"] * count),
        "source_timestamp": pa.array([1] * count, pa.int64()),
        "read_timestamp": pa.array([1] * count, pa.int64()),
    }
    none = np.zeros(count, bool)
    content = np.zeros(count, np.uint64)
    found = records(
        RULES["postgresql"], pa.table(head), backfill=none, deletion=none, content=content
    )
    told = [(one["read_batch"], one["counter"]) for one in found.rows.to_pylist()]
    assert told == sorted(set(told))
    assert told[-1][1] == (first + count - 1) % 256
