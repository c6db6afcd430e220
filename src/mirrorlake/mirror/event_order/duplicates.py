"""Detects duplicate events of tables without a key (ST-234)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.mirror.event_order.records import ORDER, SECTION_NAMES
from mirrorlake.model import keys as codes

_SAME = ["backfill", "log", *SECTION_NAMES, "source_ms", "deletion", "content"]


def first_of_each(rows: pa.Table) -> np.ndarray:
    """The row numbers of the events that do not duplicate an earlier one; int64, ascending.

    rows: ORDER. Events with a uuid are duplicates if their uuids are equal (ST-225), others if
    position, source time and content are.
    """
    assert set(ORDER.names) <= set(rows.column_names)
    named = pc.or_(
        pc.not_equal(rows.column("read_batch"), ""), pc.not_equal(rows.column("counter"), 0)
    )
    by_uuid = [pc.if_else(named, rows.column(name), None) for name in ("read_batch", "counter")]
    by_place = [pc.if_else(named, None, rows.column(name)) for name in _SAME]
    both = [*by_uuid, *by_place]
    return codes.encode(pa.table(both, names=[str(index) for index in range(len(both))])).first
