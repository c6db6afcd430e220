"""A chunk of a backfill as rows to fold: what the table has in its range goes, and its rows come.

So the table becomes in the range what the file says, in whatever state it was. Who carries the net
changes out spares rows that are so already, and the feed tells what differed, and nothing else.
"""

from __future__ import annotations

import pyarrow as pa

from mirrorlake.apply.fold import LandedBatch
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.change import Marker


def gone_before(batch: LandedBatch, present: pa.Table) -> tuple[str, Rows]:
    """The deletions of the keys that the table has in the range, as a file before those of the
    batch. present: these keys."""
    columns = [
        present[field.name].cast(field.type)
        if field.name in batch.key
        else pa.nulls(present.num_rows, field.type)
        for field in nullable_schema(batch.schema)
    ]
    return "", Rows(
        data=pa.table(columns, schema=nullable_schema(batch.schema)),
        marker=pa.repeat(pa.scalar(int(Marker.DELETE), pa.int8()), present.num_rows),
        unchanged=None,
        names=tuple(batch.schema.names),
    )
