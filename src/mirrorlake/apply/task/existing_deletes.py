"""Folds a backfill chunk: deletes of the existing keys in its range precede its rows.

So the range of the table equals the chunk afterwards, whatever it contained before. Rows that do
not change are not rewritten, and the change feed contains only real differences.
"""

from __future__ import annotations

import pyarrow as pa

from mirrorlake.apply.fold import LandedBatch
from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.change import Marker


def existing_deletes(batch: LandedBatch, present: pa.Table) -> tuple[str, Rows]:
    """The deletes of the existing keys in the range, as a file to be folded before those of the
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
