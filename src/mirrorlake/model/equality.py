"""When two values of a key are the same (LZ-256, LZ-257).

Exact typed values, text by bytes, floating point by bits with every NaN the same, NULL equal to
NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def comparable(column: pa.Array) -> pa.Array:
    """The column with floating point as bits; whatever compares equal in it is the same key."""
    if not pa.types.is_floating(column.type):
        return column
    width = column.type.bit_width // 8
    canonical = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    bits = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[width]
    values = canonical.fill_null(0).to_numpy(zero_copy_only=False).view(f"i{width}")
    return pa.array(values, bits, mask=column.is_null().to_numpy(zero_copy_only=False))


def same(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Whether the values in the same place are the same key: bool. Both are of one type."""
    assert left.type == right.type
    alike = pc.equal(comparable(left), comparable(right)).fill_null(False)
    found: np.ndarray = pc.or_(alike, pc.and_(left.is_null(), right.is_null())).to_numpy(
        zero_copy_only=False
    )
    return found
