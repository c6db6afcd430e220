"""Reads many integers at once that have one to ten bytes of seven bits each, as in Avro and Thrift.

https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

from __future__ import annotations

import numpy as np

PADDING = 16
"""Bytes that have to follow the data, of value 0, so that a number may be read beyond its end."""

_WORD, _BITS = 8, 7
_MORE = np.uint64(0x8080808080808080)
"""The bits of the bytes of a word that say that another byte follows."""
_ONES = np.uint64(0x0101010101010101)
_JOINS = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
"""How digits of 7, 14 and 28 bits become half as many of twice the size: the bits that stay, those
that move to lower ones, and by how much."""


class TooLong(ValueError):
    """A number has more than 64 bits."""


class Varints:
    """Reads numbers of one buffer, which ends with PADDING."""

    def __init__(self, padded: np.ndarray) -> None:
        self._data = padded
        # A word may start at any byte.
        self._words = np.ndarray(len(padded) - _WORD + 1, "<u8", padded, strides=(1,))

    def read(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that start at these bytes, as int64, and the end of each, which may be in the
        padding. Raises TooLong."""
        byte = self._data[at]
        end = at + 1
        longer = np.flatnonzero(byte >= 0x80)
        if not len(longer):  # as those of most columns
            short = byte.view(np.int8)
            return ((short >> np.int8(1)) ^ -(short & np.int8(1))).astype(np.int64), end
        value = (byte & np.uint8(0x7F)).astype(np.uint64)
        # The next eight bytes are read at once.
        digits, count, is_whole = _digits(self._words[end[longer]])
        value[longer] |= digits << np.uint64(_BITS)
        end[longer] += count
        longest = longer[~is_whole]
        last = self._data[end[longest]]
        if (last > 1).any():
            raise TooLong("a number has more than 64 bits")
        value[longest] |= last.astype(np.uint64) << np.uint64(_BITS * (_WORD + 1))
        end[longest] += 1
        half = (value >> np.uint64(1)).view(np.int64)
        return half ^ -(value & np.uint64(1)).view(np.int64), end


def _digits(words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The number that the first bytes of each word have, how many bytes these are, and whether the
    last of them is its last."""
    ends = ~words & _MORE
    below = (ends & -ends) - np.uint64(1)  # all bits below the last one of the last byte
    found = words & below
    for stay, move, by in _JOINS:
        found = found & stay | (found & move) >> by
    count = (below & _ONES) * _ONES >> np.uint64(8 * (_WORD - 1))
    return found, count.astype(np.int64), ends != 0
