"""Avro object container files: header, codecs and blocks, in bounded memory.

The declared size of a block is never allocated in advance, and the decompressed size is bounded for
every codec (ST-024).
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa

from mirrorlake.events.decode.avro_types import AvroType, parse_schema
from mirrorlake.events.decode.errors import UnreadableEvents

Unpack = Callable[[bytes], bytes | None]

MAGIC = b"Obj\x01"
_SYNC = 16
_AHEAD = 1 << 20
MOST_HEADER = 4 << 20
"""Maximum bytes of a header, or of a schema file: 200 for each type that a schema may have. Parsed,
they may take fifty times as many."""

MOST_BLOCK = 128 << 20
"""Maximum bytes of one block that are read, compressed or not: an event may have 100 MB (ST-177),
and a block ends after the event that fills it."""

MOST_EVENTS = 1_000_000
"""Maximum number of events of one block, which is read as a whole."""

_MOST_PASSED = 2 << 30
"""Maximum bytes of a block that is passed over."""


@dataclass(slots=True)
class AvroBlock:
    """A decompressed block with its number of events. is_cut: `data` has only the first MOST_BLOCK
    bytes, or none; an event of it is larger than an event may be."""

    count: int
    data: bytes
    is_cut: bool = False

    def taken(self) -> bytes:
        """The data, which the block has no longer."""
        data, self.data = self.data, b""
        return data


class AvroFile:
    """A file, read once from start to end."""

    def __init__(self, file: BinaryIO) -> None:
        """Read the header. Raises UnreadableEvents."""
        self._file = _Reader(file)
        if self._file.exactly(len(MAGIC), "the header") != MAGIC:
            raise UnreadableEvents("the file does not begin as an Avro object container file does")
        header = self._header()
        self._sync = self._file.exactly(_SYNC, "the header")
        codec = header.get("avro.codec", b"null")
        if codec not in _CODECS:
            raise UnreadableEvents(f"the codec {codec[:50]!r} is not known")
        self._unpack = _CODECS[codec]
        if "avro.schema" not in header:
            raise UnreadableEvents("the header has no schema")
        self.schema: AvroType = parse_schema(header["avro.schema"])

    def blocks(self) -> Iterator[AvroBlock]:
        """All blocks; the file has to end after one. Raises UnreadableEvents."""
        number = 0
        while not self._file.at_end():
            number += 1
            where = f"block {number}"
            count, size = self._file.varint(where), self._file.varint(where)
            if not (0 <= size <= _MOST_PASSED and 0 <= count <= MOST_EVENTS):
                raise UnreadableEvents(f"{where} says that it has {count} events in {size} bytes")
            packed = self._file.exactly(min(size, MOST_BLOCK), where)
            self._file.skip(size - len(packed), where)
            if self._file.exactly(_SYNC, where) != self._sync:
                raise UnreadableEvents(f"{where} does not end with the sync marker of the file")
            data, is_cut = packed, size > MOST_BLOCK
            if self._unpack is not None:
                # Of a packed block that is cut nothing is read.
                unpacked = None if is_cut else _unpacked(self._unpack, packed, where)
                is_cut = unpacked is None or len(unpacked) > MOST_BLOCK
                data = b"" if unpacked is None else unpacked[:MOST_BLOCK]
                del unpacked
            del packed
            # Each event has at least one byte: it has a uuid.
            if not is_cut and (count > len(data) or (data and not count)):
                raise UnreadableEvents(f"{where} cannot have {count} events in {len(data)} bytes")
            block = AvroBlock(count, data, is_cut)
            del data  # so that whoever takes it can free it
            yield block

    def _header(self) -> Mapping[str, bytes]:
        found: dict[str, bytes] = {}
        size = 0
        while count := self._file.varint("the header"):
            if count < 0:
                self._file.varint("the header")
            for _entry in range(abs(count)):
                parts = []
                for _part in ("key", "value"):
                    length = self._file.varint("the header")
                    size += max(length, 0) + 1
                    if length < 0 or size > MOST_HEADER:
                        raise UnreadableEvents(f"the header is larger than {MOST_HEADER} bytes")
                    parts.append(self._file.exactly(length, "the header"))
                found[parts[0].decode("utf-8", "replace")] = parts[1]
        return found


class _Reader:
    """Reads a file that may end too early."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._ahead, self._at = file, b"", 0

    def exactly(self, size: int, where: str) -> bytes:
        if self._at + size > len(self._ahead):
            # Read in parts: a declared size that the file does not have costs no memory.
            parts = [self._ahead[self._at :]]
            missing = size - len(parts[0])
            while missing > 0:
                part = self._file.read(max(min(missing, _AHEAD * 16), _AHEAD))
                if not part:
                    raise UnreadableEvents(f"the file ends within {where}")
                parts.append(part)
                missing -= len(part)
            whole = b"".join(parts)
            # Not a copy of a large block beside it.
            self._ahead, self._at = whole[size:], 0
            return whole[:size]
        found = self._ahead[self._at : self._at + size]
        self._at += size
        return found

    def skip(self, size: int, where: str) -> None:
        """Pass over bytes without keeping them."""
        while size > 0:
            size -= len(self.exactly(min(size, _AHEAD), where))

    def varint(self, where: str) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self.exactly(1, where)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and not value >> 64:
                return (value >> 1) ^ -(value & 1)
        raise UnreadableEvents(f"{where} has a number of more than 64 bits")

    def at_end(self) -> bool:
        if self._at == len(self._ahead):
            self._ahead, self._at = self._file.read(_AHEAD), 0
        return not self._ahead


def _unpacked(unpack: Unpack, packed: bytes, where: str) -> bytes | None:
    """A block. Of a larger one than MOST_BLOCK more than its first MOST_BLOCK bytes, or None."""
    try:
        data = unpack(packed)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, pa.ArrowException) as error:
        raise UnreadableEvents(f"{where} cannot be unpacked: {str(error)[:200]}") from None
    return data


def _deflate(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    data = unpacker.decompress(packed, MOST_BLOCK + 1)
    if not unpacker.eof and len(data) <= MOST_BLOCK:
        raise ValueError("it ends too early")
    return data


def _snappy(packed: bytes) -> bytes | None:
    """The size comes first; after the data comes a checksum of the decompressed bytes."""
    size = shift = 0
    for byte in packed[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > MOST_BLOCK:
        return None
    body, checksum = packed[:-4], packed[-4:]
    data: bytes = pa.Codec("snappy").decompress(body, size, asbytes=True)
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError("its checksum is another")
    return data


def _zstandard(packed: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
        return bytes(stream.read(MOST_BLOCK + 1))


def _bzip2(packed: bytes) -> bytes:
    return bz2.BZ2Decompressor().decompress(packed, MOST_BLOCK + 1)


def _xz(packed: bytes) -> bytes:
    return lzma.LZMADecompressor().decompress(packed, MOST_BLOCK + 1)


_CODECS: Mapping[bytes, Unpack | None] = {
    b"null": None,
    b"deflate": _deflate,
    b"snappy": _snappy,
    b"zstandard": _zstandard,
    b"bzip2": _bzip2,
    b"xz": _xz,
}
