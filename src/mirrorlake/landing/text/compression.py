"""Compressed text, detected by its first bytes (LZ-209), and decompressed in blocks.

The size of the result is limited, whatever a small file claims to contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Protocol

import pyarrow as pa

from mirrorlake.landing.text.origin import Origin
from mirrorlake.storage.store import StorageFailed

RATIO = 200
"""Maximum ratio of the size of the text to the size of the file."""
MODEST = 256 << 20
"""Size of text that is allowed for any file, however small, in bytes."""
SMALL_RAW = 1 << 20
"""Raw Snappy has no leading bytes of its own; up to this size it is detected by decompressing."""

_CODECS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
}
_OTHERS = {
    b"PK\x03\x04": "a ZIP archive, such as an Excel file",
    b"\xd0\xcf\x11\xe0": "an old Excel file",
    b"PAR1": "a Parquet file",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"\x04\x22\x4d\x18": "compressed with LZ4",
}
"""Formats that are landed by mistake under the name of a text (LZ-210)."""
_HINT = "Compress it with gzip, zstd or Snappy in its framing format, or not at all."
_SNAPPY_BLOCK = 65_536
_CONTROL = set(range(0x20)) - set(b"\t\n\r")


class ByteReader(Protocol):
    """Bytes in order; fewer than `size` only at the end."""

    def read(self, size: int) -> bytes: ...


def read_all(reader: ByteReader, size: int) -> bytes:
    """Read `size` bytes, fewer only at the end: one call of `read` may return fewer."""
    parts: list[bytes] = []
    while size > 0 and (part := reader.read(size)):
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def opened(handle: BinaryIO, size: int, origin: Origin) -> ByteReader:
    """The decompressed text of a file. Raises BadFile if it cannot be decompressed.

    size: compressed size of the file in bytes.
    """
    codec = codec_of(handle, size, origin)
    handle.seek(0)
    if not codec:
        return _Whole(handle)
    if codec == "snappy":
        return _Bounded(_Blocks(_framed(handle, origin)), size, origin)
    return _Bounded(_arrow(handle, codec), size, origin)


def codec_of(handle: BinaryIO, size: int, origin: Origin) -> str:
    """The compression of a file; empty if there is none. Raises BadFile for an unsupported one."""
    handle.seek(0)
    head = handle.read(16)
    handle.seek(0)
    for begin, codec in _CODECS.items():
        if head.startswith(begin):
            return codec
    for magic, kind in _OTHERS.items():
        # A column may be named PAR1: what follows must be binary too.
        if head.startswith(magic) and _CONTROL & set(head):
            raise origin.bad_file(f"it is {kind}, not delimited text (LZ-209)", hint=_HINT)
    if kind := _unframed(handle, size, head):
        raise origin.bad_file(
            f"it is compressed as {kind}, not in the Snappy framing format", hint=_HINT
        )
    return ""


def _arrow(handle: BinaryIO, codec: str) -> ByteReader:
    stream: ByteReader = pa.CompressedInputStream(pa.PythonFile(handle, mode="r"), codec)
    return stream


class _Whole:
    """An uncompressed file; one call of `read` of a raw file may return fewer bytes."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle

    def read(self, size: int) -> bytes:
        return read_all(self._handle, size)


class _Bounded:
    """A decompressed text of limited size."""

    def __init__(self, inner: ByteReader, size: int, origin: Origin) -> None:
        self._inner, self._origin = inner, origin
        self._limit = max(MODEST, RATIO * size)
        self._given = 0

    def read(self, size: int) -> bytes:
        try:
            text = read_all(self._inner, size)
        except StorageFailed:
            raise
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._origin.bad_file(f"it cannot be decompressed: {error}") from error
        self._given += len(text)
        if self._given > self._limit:
            raise self._origin.bad_file(
                f"it decompresses to more than {self._limit:,} bytes, over {RATIO} times its size",
                hint="Write it as several smaller files, or without compression.",
            )
        return text


class _Blocks:
    """A reader over blocks of any length."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, b""

    def read(self, size: int) -> bytes:
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return b""
            self._rest = part
        given, self._rest = self._rest[:size], self._rest[size:]
        return given


def _framed(handle: BinaryIO, origin: Origin) -> Iterator[bytes]:
    """The blocks of Snappy's framing format (framing_format.txt of google/snappy).

    The codec detects a wrong length; checksums are not compared.
    """
    while header := handle.read(4):
        kind, length = header[0], int.from_bytes(header[1:], "little")
        body = handle.read(length)
        if len(header) < 4 or len(body) < length:
            raise origin.bad_file("its last Snappy block is truncated")
        if kind == 0x00:
            yield _snappy(body[4:], origin)
        elif kind == 0x01:
            yield body[4:]
        elif kind < 0x80:
            raise origin.bad_file(f"it has a Snappy block of unknown type {kind}")


def _snappy(body: bytes, origin: Origin) -> bytes:
    length, begin = _varint(body)
    if begin == 0 or length > _SNAPPY_BLOCK:
        raise origin.bad_file("it has a Snappy block longer than the format allows")
    return bytes(pa.decompress(body, decompressed_size=length, codec="snappy", asbytes=True))


def _unframed(handle: BinaryIO, size: int, head: bytes) -> str:
    """Snappy without its framing, which has no leading bytes: detected by its lengths, then by
    decompressing."""
    if _is_hadoop(head, size):
        return "Snappy blocks of Hadoop"
    length, begin = _varint(head)
    # A text of n bytes is compressed to at least n/22 and at most 32 + n + n/6 bytes.
    if not begin or not length or size > SMALL_RAW:
        return ""
    if not size - 32 - size // 6 <= length <= 22 * size:
        return ""
    body = handle.read(size)
    if _is_text(body):
        return ""
    try:
        pa.decompress(body, decompressed_size=length, codec="snappy", asbytes=True)
    except (pa.ArrowException, OSError, ValueError):
        return ""
    return "raw Snappy"


def _is_text(body: bytes) -> bool:
    """Whether bytes are readable text; some short texts are valid Snappy by chance."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return not _CONTROL & set(body)


def _is_hadoop(head: bytes, size: int) -> bool:
    """Two lengths, most significant byte first, and a raw block that begins with the first of
    them."""
    if len(head) < 12 or head[0]:
        return False
    text, packed = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:8], "big")
    # A text in UTF-16 or UTF-32 also begins with zeros, but has another zero here.
    return 0 < packed <= size - 8 and 0 < _varint(head[8:])[0] <= text


def _varint(body: bytes) -> tuple[int, int]:
    """A number in groups of seven bits, and its size in bytes; 0 bytes if there is none."""
    value = 0
    for index, byte in enumerate(body[:5]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, index + 1
    return 0, 0
