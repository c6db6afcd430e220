"""Folds a backfill chunk: deletes of the existing keys in its range precede its rows.

So the range of the table equals the chunk afterwards, whatever it contained before. Rows that do
not change are not rewritten, and the change feed contains only real differences.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.change import ROW_DELETED, Marker
from mirrorlake.model.net_changes import NetChanges


def fold_chunk(batch: LandedBatch, present: pa.Table) -> NetChanges:
    """The net changes of a batch that is one file, the chunk. present: the existing keys in its
    range. Rows are compared in the columns of the chunk: equal ones keep what they have in those
    that the source does not have any more."""
    ((_name, chunk),) = batch.files
    net = fold(replace(batch, files=[_existing_deletes(batch, present), *batch.files]))
    names = chunk.data.column_names
    there = {*match_columns(names, list(chunk.names)), ROW_DELETED}
    return replace(net, compared=tuple(name for name in names if name in there))


def _existing_deletes(batch: LandedBatch, present: pa.Table) -> tuple[str, Rows]:
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
