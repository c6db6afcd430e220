"""Omits rows from net changes that would replace equal rows of the table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from mirrorlake.model.arrow import contiguous, taken
from mirrorlake.model.change import METADATA_COLUMNS
from mirrorlake.model.keys import same
from mirrorlake.model.net_changes import NetChanges


def without_equal(
    net: NetChanges, rows: pa.Table, code: np.ndarray, found: pa.Table
) -> tuple[NetChanges, np.ndarray]:
    """The net changes without rows that equal the only existing row of their key in the columns
    that are compared, not counting metadata columns.

    rows: those of `net`, with every value; found: the existing rows of the keys; code: the key of
    each. Also returns, as bool, which of the existing rows are replaced.
    """
    keys = len(net.reset)
    holder = np.full(keys, -1)
    holder[code] = np.arange(len(code))
    single = np.bincount(code, minlength=keys) == 1
    index = np.flatnonzero(net.first & single[net.code])
    left = taken(rows, index)
    right = taken(found, holder[net.code[index]]).cast(left.schema)
    equal = np.ones(len(index), bool)
    compared = left.column_names if net.compared is None else net.compared
    for name in left.column_names:
        if name in compared and name not in METADATA_COLUMNS:
            equal &= same(contiguous(left[name]), contiguous(right[name]))
    spared = index[equal]
    kept = np.ones(rows.num_rows, bool)
    kept[spared] = False
    touched = np.ones(keys, bool)
    touched[net.code[spared]] = False
    less = replace(
        net,
        rows=rows.filter(pa.array(kept)),
        source_row=net.source_row[kept],
        code=net.code[kept],
        first=net.first[kept],
        missing=None,
        base=net.base[kept],
    )
    return less, touched[code]
