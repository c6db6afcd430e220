"""Deals keys out to tasks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mirrorlake.delta.lookup.key_join import connected
from mirrorlake.model.arrow import contiguous
from mirrorlake.model.equality import comparable


def partitioned(keys: pa.Table, parts: int) -> np.ndarray:
    """Deal keys out to parts, uint16 per row, so that equal keys meet wherever this is done.

    Only the same release of DuckDB deals alike.
    """
    columns = {f"k{i}": comparable(contiguous(column)) for i, column in enumerate(keys.columns)}
    query = f"select (hash({', '.join(columns)}) % {parts})::usmallint as part from keys"  # noqa: S608
    with connected(1) as connection:
        connection.register("keys", pa.table(columns))
        part: np.ndarray = connection.execute(query).fetchnumpy()["part"]
    return part
