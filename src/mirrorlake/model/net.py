"""The net effect of a batch: what is left of many changes of one key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class NetChanges:
    """What a batch does to a table, key by key.

    keys: k rows, the distinct keys of the batch in the table's key columns; without columns for a
        table that has no key.
    reset: bool, k: whether the rows that the key had before the batch go.
    take: None, or int64, k: where all columns are the key, how many of the equal rows go; others
        stay.
    rows: n rows with all columns of the table: what the batch leaves behind.
    kept: int64, n, ascending: which of the rows of the batch each of them was.
    code: int64, n: the key of each row, as a row number of `keys`; -1 without a key.
    first: bool, n: the row that takes the place of what a reset key had; at most one per key, all
        others of it stand beside it (LZ-077).
    missing: None, or bool n x columns: values that come from the row that key `base` had before.
    base: int64, n: that key; -1 for rows that miss nothing.
    truncate: the table was emptied before all of this; then nothing is missing.
    operations: rows read, by marker.
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

    @property
    def is_append(self) -> bool:
        """Nothing of what the table holds is touched."""
        return not self.truncate and not bool(self.reset.any())
