"""The statistics of a data file for the log, from the footer of the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.parquet as pq

from mirrorlake.delta.write.data_files import (
    columns_with_statistics,
    has_order,
    highest,
    lowest,
)


def footer_statistics(footer: pq.FileMetaData, keys: Sequence[str]) -> dict[str, Any]:
    """As `data_files.statistics`, without the columns that have none in the footer."""
    schema = footer.schema.to_arrow_schema()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    stats: dict[str, Any] = {
        "numRecords": footer.num_rows,
        "minValues": {},
        "maxValues": {},
        "nullCount": {},
        "tightBounds": True,
    }
    for name in columns_with_statistics(schema, keys):
        index = schema.names.index(name)
        found = [group.column(index).statistics for group in groups]
        if not all(one is not None and one.has_null_count for one in found):
            continue
        stats["nullCount"][name] = sum(one.null_count for one in found)
        valued = [
            one for one, group in zip(found, groups, strict=True) if one.null_count < group.num_rows
        ]
        if valued and has_order(schema.field(index).type) and all(o.has_min_max for o in valued):
            try:
                low, high = min(one.min for one in valued), max(one.max for one in valued)
            except (OverflowError, ValueError):  # outside the range of Python's `date`
                continue
            stats["minValues"][name], stats["maxValues"][name] = lowest(low), highest(high)
    return stats
