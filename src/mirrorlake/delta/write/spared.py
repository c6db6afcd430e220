"""Rows of a table that net changes would replace by rows that are equal to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from mirrorlake.model.arrow import contiguous, taken
from mirrorlake.model.equality import same
from mirrorlake.model.net import NetChanges


def without_equal(
    net: NetChanges, rows: pa.Table, code: np.ndarray, found: pa.Table
) -> tuple[NetChanges, np.ndarray]:
    """The net changes without rows that the table has already, each once and with equal values.

    rows: those of `net`, with every value; code: the key of each of the rows `found` in the table.
    Returns also, bool: which of these still matter.
    """
    keys = len(net.reset)
    holder = np.full(keys, -1)
    holder[code] = np.arange(len(code))
    single = np.bincount(code, minlength=keys) == 1
    index = np.flatnonzero(net.first & single[net.code])
    left = taken(rows, index)
    right = taken(found, holder[net.code[index]]).cast(left.schema)
    equal = np.ones(len(index), bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        equal &= same(contiguous(one), contiguous(other))
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
