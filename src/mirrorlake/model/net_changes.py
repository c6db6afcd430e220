"""The net effect of a batch: one change per key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The net change of each key of a batch. k: number of keys; n: number of resulting rows.

    keys: k rows, the distinct keys of the batch in the key columns of the table; no columns for a
        table without a key.
    reset: bool, k: whether the existing rows of the key are removed.
    take: int64, k, if all columns are the key: how many of the equal existing rows are removed;
        otherwise None.
    rows: n rows with all columns of the table, to be written.
    source_row: int64, n, ascending: the row number of each of them in the batch.
    code: int64, n: the key of each row, as a row number of `keys`; -1 without a key.
    first: bool, n: whether the row replaces the existing rows of a reset key; at most one per key.
        Other rows of the key are additional rows (LZ-077).
    missing: None, or bool n x columns: values to be taken from the existing row of key `base`.
    base: int64, n: that key; -1 for rows without missing values.
    truncate: the table is emptied first; then no value is missing.
    operations: number of rows read, by marker.
    deleted: bool, k, with soft deletes: the keys whose rows end as deleted; otherwise None. The
        existing rows of every key are then looked up, reset or not, because a new row replaces
        deleted ones.
    marks: with soft deletes, k rows, or one for a truncation: the columns and values that a deleted
        row gets.
    compared: the columns in which a row has to differ from the one that it replaces, where equal
        ones stay; None for all.
    """

    keys: pa.Table
    reset: np.ndarray
    rows: pa.Table
    source_row: np.ndarray
    code: np.ndarray
    first: np.ndarray
    missing: np.ndarray | None
    base: np.ndarray
    truncate: bool = False
    operations: Mapping[int, int] = field(default_factory=dict)
    take: np.ndarray | None = None
    deleted: np.ndarray | None = None
    marks: pa.Table | None = None
    compared: tuple[str, ...] | None = None

    @property
    def is_append(self) -> bool:
        """Whether no existing row of the table changes."""
        return self.deleted is None and not self.truncate and not bool(self.reset.any())
