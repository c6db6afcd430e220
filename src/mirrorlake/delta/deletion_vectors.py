"""Deletion vectors: the deleted rows of a data file.

Delta Lake protocol, "Deletion Vector Format": a file contains the version byte 1 and then, for each
vector, its size (big-endian), the bitmap (a 64-bit roaring array: magic, number of 32-bit bitmaps,
key and bitmap of each, little-endian) and a CRC-32 of the bitmap (big-endian).
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
from pyroaring import BitMap

_MAGIC = 1681511377
_VERSION = b"\x01"
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85, _TO_Z85 = str.maketrans(_Z85, _B85), str.maketrans(_B85, _Z85)


class BrokenVector(ValueError):
    """A deletion vector does not match its descriptor."""


def read(table: Path, descriptor: Mapping[str, Any]) -> np.ndarray:
    """The deleted row numbers, int64, ascending. Raises BrokenVector."""
    size = descriptor["sizeInBytes"]
    if descriptor["storageType"] == "i":
        raw = _z85_decoded(descriptor["pathOrInlineDv"])[:size]
    else:
        path = path_of(table, descriptor)
        with path.open("rb") as file:
            file.seek(descriptor.get("offset") or 1)
            framed = file.read(size + 8)
        raw = framed[4:-4]
        if framed != _framed(raw) or len(raw) != size:
            raise BrokenVector(f"the deletion vector in {path} is damaged")
    rows = decode(raw)
    if len(rows) != descriptor["cardinality"]:
        raise BrokenVector(f"it has {len(rows)} rows, but the log says {descriptor['cardinality']}")
    return rows


def path_of(table: Path, descriptor: Mapping[str, Any]) -> Path:
    """The file of a vector that is stored by UUID or by path."""
    text = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == "p":
        return Path(unquote(urlparse(text).path))
    prefix, name = text[:-20], uuid.UUID(bytes=_z85_decoded(text[-20:]))
    return table / prefix / f"deletion_vector_{name}.bin"


def decode(raw: bytes) -> np.ndarray:
    """The row numbers in a bitmap, int64, ascending. Raises BrokenVector."""
    magic, count = struct.unpack_from("<iq", raw)
    if magic != _MAGIC:
        raise BrokenVector(f"unknown bitmap format {magic}")
    if count == 0:
        return np.zeros(0, np.int64)
    (high,) = struct.unpack_from("<I", raw, 12)
    if count > 1 or high:
        raise BrokenVector("row numbers beyond 2^32, which no data file has")
    bitmap = BitMap.deserialize(raw[16:])
    return np.frombuffer(bitmap.to_array(), np.uint32).astype(np.int64)


def encode(rows: np.ndarray) -> bytes:
    """The bitmap of row numbers (int64, below 2^32, the maximum number of rows of a data file)."""
    bitmap = BitMap(rows.astype(np.uint32))
    return struct.pack("<iqI", _MAGIC, 1, 0) + bitmap.serialize()


class VectorFile:
    """A new file of deletion vectors: `add` returns the descriptor of each, and `content` the bytes
    to write after all were added."""

    def __init__(self) -> None:
        self._id = uuid.uuid4()
        self._parts = [_VERSION]
        self._size = 1

    @property
    def name(self) -> str:
        return f"deletion_vector_{self._id}.bin"

    def add(self, rows: np.ndarray) -> dict[str, Any]:
        raw = encode(rows)
        descriptor = {
            "storageType": "u",
            "pathOrInlineDv": _z85_encoded(self._id.bytes),
            "offset": self._size,
            "sizeInBytes": len(raw),
            "cardinality": len(rows),
        }
        framed = _framed(raw)
        self._parts.append(framed)
        self._size += len(framed)
        return descriptor

    def content(self) -> bytes:
        return b"".join(self._parts)


def _framed(raw: bytes) -> bytes:
    return struct.pack("!I", len(raw)) + raw + struct.pack("!I", zlib.crc32(raw))


def _z85_encoded(raw: bytes) -> str:
    return base64.b85encode(raw).decode().translate(_TO_Z85)


def _z85_decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))
