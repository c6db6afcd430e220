"""The mask of unchanged values in a landed file: the columns of a row that the source did not send.

Bit i of byte i/8, least significant first, is data column i of the file; the mask of a row without
such columns is NULL.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def packed(unchanged: np.ndarray) -> pa.Array | None:
    """Pack a bool matrix of rows x columns into masks; None if no value is true."""
    if not unchanged.any():
        return None
    bits = np.packbits(unchanged, axis=1, bitorder="little")
    width = bits.shape[1]
    values = pa.Array.from_buffers(
        pa.binary(width), len(bits), [None, pa.py_buffer(np.ascontiguousarray(bits))]
    ).cast(pa.binary())
    empty = ~unchanged.any(axis=1)
    return values.take(pa.array(np.arange(len(values)), mask=empty)) if empty.any() else values


def unpacked(unchanged: pa.Array, columns: int) -> np.ndarray:
    """The bool matrix of rows x columns of packed masks."""
    matrix = np.zeros((len(unchanged), columns), bool)
    present = unchanged.drop_null()
    if len(present):
        width = -(-columns // 8)
        offsets = np.frombuffer(present.buffers()[1], np.int32)[
            present.offset : present.offset + len(present) + 1
        ]
        data = np.frombuffer(present.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        bits = np.unpackbits(data.reshape(len(present), width), axis=1, bitorder="little")
        matrix[unchanged.is_valid().to_numpy(zero_copy_only=False)] = bits[:, :columns].astype(bool)
    return matrix
