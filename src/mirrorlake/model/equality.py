"""Equality of key values (LZ-256, LZ-257).

Values are equal if they have the same type and value: text by bytes, floating point by bits, except
that all NaN are equal. NULL equals NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def comparable(column: pa.Array) -> pa.Array:
    """The column with floating point as bits, so that ordinary equality is equality of keys."""
    if not pa.types.is_floating(column.type):
        return column
    width = column.type.bit_width // 8
    canonical = pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
    bits = {2: pa.int16(), 4: pa.int32(), 8: pa.int64()}[width]
    values = canonical.fill_null(0).to_numpy(zero_copy_only=False).view(f"i{width}")
    return pa.array(values, bits, mask=column.is_null().to_numpy(zero_copy_only=False))


def same(left: pa.Array, right: pa.Array) -> np.ndarray:
    """Compare two columns of the same type and length value by value. Returns bool."""
    assert left.type == right.type
    alike = pc.equal(comparable(left), comparable(right)).fill_null(False)
    found: np.ndarray = pc.or_(alike, pc.and_(left.is_null(), right.is_null())).to_numpy(
        zero_copy_only=False
    )
    return found
