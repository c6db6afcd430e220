"""Binary values as text: base64, or hexadecimal after `0x` (LZ-186), one column at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_NONE, _PAD = 255, 254
_Bytes = npt.NDArray[np.uint8]
_Offsets = npt.NDArray[np.int64]


def _table(alphabet: str, start: int = 0) -> _Bytes:
    table = np.full(256, _NONE, np.uint8)
    table[np.frombuffer(alphabet.encode(), np.uint8)] = np.arange(start, start + len(alphabet))
    return table


_BASE64 = _table("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_BASE64[ord("=")] = _PAD
_HEX = np.minimum(_table("0123456789abcdef"), _table("0123456789ABCDEF"))


def octets(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The bytes of texts; NULL stays NULL. Raises ValueError for a text in neither form."""
    is_hex = pc.fill_null(pc.starts_with(values, pattern="0x"), False)
    if not pc.any(is_hex).as_py():
        return _column(values, *_from_base64(*_content(values))).cast(target)
    plain = pc.if_else(is_hex, None, values)
    marked = pc.if_else(is_hex, values, None)
    digits = pc.replace_substring_regex(marked, pattern="^0x", replacement="")
    base64 = _column(plain, *_from_base64(*_content(plain)))
    return pc.coalesce(_column(digits, *_from_hex(*_content(digits))), base64).cast(target)


def _content(values: pa.Array) -> tuple[_Bytes, _Offsets]:
    """The content of all texts concatenated, and the offsets where each one begins and the last
    ends."""
    filled = pc.fill_null(values.cast(pa.binary()), b"")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[
        filled.offset : filled.offset + len(filled) + 1
    ].astype(np.int64)
    body = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    return body[offsets[0] : offsets[-1]], offsets - offsets[0]


def _column(values: pa.Array, body: _Bytes, offsets: _Offsets) -> pa.Array:
    """Decoded bytes as a column that is NULL where `values` is."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(body)]
    decoded = pa.Array.from_buffers(pa.binary(), len(values), buffers)
    return pc.if_else(values.is_valid(), decoded, None)


def _from_hex(text: _Bytes, offsets: _Offsets) -> tuple[_Bytes, _Offsets]:
    digits = _HEX[text]
    if (np.diff(offsets) % 2).any() or (digits == _NONE).any():
        raise ValueError
    body: _Bytes = digits[0::2] << np.uint8(4) | digits[1::2]
    return body, offsets // 2


def _from_base64(text: _Bytes, offsets: _Offsets) -> tuple[_Bytes, _Offsets]:
    """Every text consists of groups of four characters; only the last may end with one or two
    pads."""
    sixes = _BASE64[text]
    if (np.diff(offsets) % 4).any() or (sixes == _NONE).any():
        raise ValueError
    pads = np.flatnonzero(sixes == _PAD)
    group = pads // 4
    ends = offsets[1:] // 4 - 1
    # A pad is the last character of its text, or the one before a pad that is the last.
    last = pads % 4 == 3
    before = (pads % 4 == 2) & np.isin(pads + 1, pads)
    if not (last | before).all() or not np.isin(group, ends).all():
        raise ValueError
    sixes = np.where(sixes == _PAD, np.uint8(0), sixes).reshape(-1, 4)
    body = np.empty((len(sixes), 3), np.uint8)
    body[:, 0] = sixes[:, 0] << 2 | sixes[:, 1] >> 4
    body[:, 1] = sixes[:, 1] << 4 | sixes[:, 2] >> 2
    body[:, 2] = sixes[:, 2] << 6 | sixes[:, 3]
    kept = np.ones(body.size, bool)
    kept[group * 3 + pads % 4 - 1] = False
    dropped = np.concatenate(([0], np.cumsum(~kept)))
    begins = offsets // 4 * 3
    return body.reshape(-1)[kept], begins - dropped[begins]
