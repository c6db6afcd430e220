"""Folds a backfill chunk: deletes of the existing keys in its range precede its rows.

So the range of the table equals the chunk afterwards, whatever it contained before. Rows that do
not change are not rewritten, and the change feed contains only real differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from mirrorlake.apply.fold import LandedBatch, fold
from mirrorlake.errors import BadFile
from mirrorlake.landing.parquet.reader import Rows, match_columns
from mirrorlake.model.arrow import nullable_schema
from mirrorlake.model.change import ROW_DELETED, Marker
from mirrorlake.model.keys import KeyRange
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


def check_chunk(
    table: str, file: str, keys: KeyRange, rows: pa.Table, compared: Sequence[str]
) -> None:
    """Without ranges of a key a chunk has the rows with some hashes. If the table had a value in
    another form, or not as one of its own columns, the hash would be another one here, and the row
    be taken for one of another chunk. compared: the columns by which existing rows are found.
    Raises BadFile."""
    own = rows.select([name for name in rows.column_names if name in compared])
    if keys.hashes is not None and not keys.hashes.contains(own).all():
        raise BadFile(
            "it has rows that are not of its part of the table",
            table=table,
            file=file,
            hint=f"`mirrorlake reset {table}` loads the table anew.",
        )


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
