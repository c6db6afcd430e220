"""Text in any encoding, as UTF-8 (LZ-167). Python's codecs decode it, a block at a time."""

from __future__ import annotations

import codecs
from functools import cache

from mirrorlake.landing.text.compression import ByteReader

UTF8_MARK = b"\xef\xbb\xbf"
PLAIN = frozenset({"utf-8", "utf-8-sig", "ascii"})
"""Encodings whose text is UTF-8 already."""
_MARK = "\ufeff"
_WITH_MARKS = {"utf-16": 2, "utf-32": 4}


def mark_of(encoding: str) -> bytes:
    """The byte order mark that may precede the text and is not part of it; b"" if there is none."""
    return UTF8_MARK if codecs.lookup(encoding).name in PLAIN else b""


@cache
def is_bytewise(encoding: str) -> bool:
    """Whether a byte that looks like an ASCII character always is one.

    This holds for UTF-8, and for encodings with one byte per character; wide characters, shifts and
    escapes may contain such bytes within other characters.
    """
    name = codecs.lookup(encoding).name
    return name in PLAIN or all(_is_alone(name, byte) for byte in range(256))


def _is_alone(name: str, byte: int) -> bool:
    try:
        text = codecs.getincrementaldecoder(name)().decode(bytes([byte]))
    except UnicodeDecodeError:
        return byte > 0x7F
    except UnicodeError:
        return False
    return text == chr(byte) if byte <= 0x7F else len(text) == 1 and not text.isascii()


class Undecodable(Exception):
    """A byte that is not valid in the encoding. before: the text up to it; byte: its offset,
    from 0."""

    def __init__(self, before: bytes, byte: int, reason: str) -> None:
        self.before, self.byte, self.reason = before, byte, reason
        super().__init__(before, byte, reason)


class Utf8:
    """The text of a reader as valid UTF-8, without a byte order mark.

    begin: number of bytes of the text before those of the reader.
    """

    def __init__(self, reader: ByteReader, encoding: str, begin: int = 0) -> None:
        self._reader = reader
        self._given = begin  # bytes read before the pending ones
        self._pending = b""
        self._begun = begin > 0
        self._name = codecs.lookup(encoding).name
        self._decoder: codecs.IncrementalDecoder | None = None

    def read(self, size: int) -> tuple[bytes, bool]:
        """About `size` bytes of text, and whether it is the end. Raises Undecodable."""
        block = self._reader.read(size)
        is_end = len(block) < size
        if self._name in PLAIN:
            return self._plain(block, is_end), is_end
        return self._decoded(block, is_end), is_end

    def _plain(self, block: bytes, is_end: bool) -> bytes:
        """UTF-8 only needs to be checked."""
        block, self._pending = self._pending + block, b""
        if block.isascii():
            self._given += len(block)
            self._begun = self._begun or bool(block)
            return block
        if not self._begun and block.startswith(UTF8_MARK):
            block, self._given = block[len(UTF8_MARK) :], len(UTF8_MARK)
        self._begun = True
        try:
            block.decode("ascii" if self._name == "ascii" else "utf-8")
        except UnicodeDecodeError as error:
            cut = error.end == len(block) and error.reason == "unexpected end of data"
            if is_end or not cut:
                byte = self._given + error.start
                raise Undecodable(block[: error.start], byte, error.reason) from None
            block, self._pending = block[: error.start], block[error.start :]
        self._given += len(block)
        return block

    def _decoded(self, block: bytes, is_end: bool) -> bytes:
        if self._decoder is None:
            name = _with_order(self._name, block)
            self._decoder = codecs.getincrementaldecoder(name)()
        state = self._decoder.getstate()
        held = len(state[0])
        try:
            text = self._decoder.decode(block, is_end)
            encoded = self._unmarked(text).encode()
        except UnicodeDecodeError as error:
            # Offsets include the bytes of the previous block that the decoder has buffered.
            before = self._before(block[: max(error.start - held, 0)], state)
            byte = self._given - held + error.start
            raise Undecodable(before, byte, error.reason) from None
        except UnicodeError as error:
            raise Undecodable(b"", self._given, str(error)) from None
        self._given += len(block)
        return encoded

    def _before(self, block: bytes, state: tuple[bytes, int]) -> bytes:
        assert self._decoder is not None
        try:
            self._decoder.setstate(state)
            return self._unmarked(self._decoder.decode(block)).encode()
        except UnicodeError:
            return b""

    def _unmarked(self, text: str) -> str:
        begun, self._begun = self._begun, self._begun or bool(text)
        return text if begun else text.removeprefix(_MARK)


def _with_order(name: str, head: bytes) -> str:
    """An encoding with its byte order, given by the byte order mark or else by the first character;
    the default is little-endian.

    The first character is one of the header, and practically always ASCII.
    """
    width = _WITH_MARKS.get(name)
    if width is None:
        return name
    if head.startswith((b"\x00\x00\xfe\xff", b"\xfe\xff")[width == 2]):
        return f"{name}-be"
    return f"{name}-be" if len(head) >= width and not head[0] and head[width - 1] else f"{name}-le"
