"""Omits the rows of a backfill chunk that the table has already, before the batch is folded.

Nearly all of them are equal, and stand in the table in the order of the chunk. Comparing both
column by column takes a fraction of a fold and a lookup by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from mirrorlake.landing.parquet.reader import Rows
from mirrorlake.model import keys as codes
from mirrorlake.model.arrow import contiguous, taken
from mirrorlake.model.change import METADATA_COLUMNS, Marker
from mirrorlake.model.equality import same


def without_equal_rows(
    landed: Rows, existing: pa.Table, key: Sequence[str]
) -> tuple[Rows, pa.Table]:
    """The rows of a chunk without those that equal the only existing row of their key, not counting
    metadata columns; and the existing rows without those.

    existing: all rows of the table in the range of the chunk. Later changes of a spared row apply
    to the existing row as they would to the one of the chunk.
    """
    count = _head(landed, key)
    head = landed.data.slice(0, count)
    if _has_equal_keys(head, existing, key):
        row = other = np.arange(count)
        left, right = head, existing.cast(head.schema)
    else:
        row, other = _pairs(head.select(list(key)), existing.select(list(key)))
        left, right = taken(head, row), taken(existing, other).cast(head.schema)
    equal = np.ones(len(row), bool)
    for name in head.column_names:
        if name not in METADATA_COLUMNS:
            equal &= same(contiguous(left[name]), contiguous(right[name]))
    return _without(landed, row[equal]), existing.filter(_all_but(existing.num_rows, other[equal]))


def _head(landed: Rows, key: Sequence[str]) -> int:
    """The number of rows at the beginning that are each the first, whole row of its key."""
    marker = landed.marker.to_numpy(zero_copy_only=False)
    other = marker != Marker.UPSERT
    if landed.unchanged is not None:
        other |= landed.unchanged.is_valid().to_numpy(zero_copy_only=False)
    count = int(np.argmax(other)) if other.any() else len(other)
    return codes.ascending(landed.data.slice(0, count), key)


def _has_equal_keys(head: pa.Table, existing: pa.Table, key: Sequence[str]) -> bool:
    """Whether both have the same keys in the same order."""
    return head.num_rows == existing.num_rows and all(
        same(contiguous(head[name]), contiguous(existing[name].cast(head[name].type))).all()
        for name in key
    )


def _pairs(keys: pa.Table, existing: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The rows of distinct keys, and the only existing row of each."""
    both = pa.concat_tables([keys, existing.cast(keys.schema)])
    code = codes.encode(both).code[keys.num_rows :]
    found = np.flatnonzero(code < keys.num_rows)
    row = code[found]
    single = np.bincount(row, minlength=keys.num_rows)[row] == 1
    return row[single], found[single]


def _without(landed: Rows, rows: np.ndarray) -> Rows:
    kept = _all_but(landed.data.num_rows, rows)
    return replace(
        landed,
        data=landed.data.filter(kept),
        marker=landed.marker.filter(kept),
        unchanged=None if landed.unchanged is None else landed.unchanged.filter(kept),
    )


def _all_but(count: int, rows: np.ndarray) -> pa.Array:
    kept = np.ones(count, bool)
    kept[rows] = False
    return pa.array(kept)
