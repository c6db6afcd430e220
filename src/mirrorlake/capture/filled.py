"""Values that a source did not send, from the rows as they are now."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mirrorlake.sources.base import Source
from mirrorlake.sources.table import SourceTable


def filled(
    source: Source, table: SourceTable, rows: pa.RecordBatch, missing: np.ndarray
) -> tuple[pa.RecordBatch, np.ndarray]:
    """The rows with every value, and which of them are gone, so that theirs are NULL.

    missing: bool, rows x columns, true where a value was not sent; there is one.
    """
    partial = np.flatnonzero(missing.any(axis=1))
    keys = list(table.key)
    incomplete = pa.Table.from_batches([rows]).select(keys).take(pa.array(partial))
    found = source.reread(table, incomplete.group_by(keys).aggregate([]))
    location = pa.array(np.arange(found.num_rows))
    # Arrow's join keeps no order: the row of the batch travels along.
    joined = incomplete.append_column("_row", pa.array(partial)).join(
        found.select(keys).append_column("_found", location), keys, join_type="left outer"
    )
    lookup = np.full(rows.num_rows, -1)
    lookup[joined["_row"].to_numpy()] = joined["_found"].fill_null(-1).to_numpy()
    columns = [
        _merged(rows.column(i), missing[:, i], found.column(i), lookup)
        for i in range(rows.num_columns)
    ]
    gone = missing.any(axis=1) & (lookup < 0)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names), gone


def _merged(column: pa.Array, missing: np.ndarray, found: pa.Array, lookup: np.ndarray) -> pa.Array:
    if not missing.any():
        return column
    rows = len(column)
    both = pa.concat_arrays([column, *getattr(found, "chunks", [found])])
    absent = missing & (lookup < 0)
    index = np.where(missing, rows + lookup, np.arange(rows))
    return both.take(pa.array(np.where(absent, 0, index), mask=absent))
