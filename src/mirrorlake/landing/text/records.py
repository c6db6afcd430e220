"""A delimited text as rows: blocks of whole rows, one after another, in bounded memory."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadFile
from mirrorlake.landing.text.compression import opened
from mirrorlake.landing.text.encodings import Undecodable, Utf8
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.origin import Origin
from mirrorlake.landing.text.splits import TextPart
from mirrorlake.landing.text.survey import Window
from mirrorlake.landing.text.tokens import CARRIAGE_RETURN, Dialect, Flags, Tokens, tokenize

BLOCK = 2 << 20
"""Size of a block, in bytes."""
HEAD = 64 << 10
"""Size of the first block, which contains the header, in bytes."""
ROW_LIMIT = 20 << 20
"""Maximum size of a row, in bytes: more is a missing closing quote, or not text at all.

The worst text of this size, which consists of quotes, takes less than 1 GiB of memory.
"""


@dataclass(frozen=True)
class Block:
    """Whole rows of a text, each of `width` fields.

    first: number of data rows before it; line: on which it begins, from 1.
    """

    text: bytes
    tokens: Tokens
    dialect: Dialect
    width: int
    first: int
    line: int

    @property
    def rows(self) -> int:
        return len(self.tokens.marks) // self.width

    def head(self, rows: int) -> Block:
        """Its first rows, at least one."""
        tokens, _rest = self.tokens.split(rows * self.width)
        return replace(self, tokens=tokens)

    def column(self, index: int) -> pa.Array:
        """The content of a column as texts without quotes and escapes, none of them NULL."""
        fields = np.arange(2 * index, 2 * len(self.tokens.marks), 2 * self.width, dtype=np.int32)
        values = self._cuts.take(pa.array(fields))
        escaped = self.tokens.escaped[index :: self.width]
        if not escaped.any():
            return values
        mask = pa.array(escaped)
        return pc.replace_with_mask(values, mask, self._unescaped(values.filter(mask)))

    def quoted(self, index: int) -> Flags:
        """Which fields of a column are in quotes."""
        return self.tokens.quoted[index :: self.width]

    def line_of(self, row: int) -> int:
        """The line, from 1, on which a row of this block begins, counted from 0."""
        begin = int(self.tokens.marks[row * self.width - 1]) + 1 if row else 0
        return self.line + lines(self.text, begin, self.dialect)

    @cached_property
    def _cuts(self) -> pa.Array:
        """The text split at the ends of all fields: every other element is a field."""
        offsets = np.empty(2 * len(self.tokens.marks), np.int32)
        offsets[0::2], offsets[1::2] = self.tokens.starts, self.tokens.ends
        slices = max(len(offsets) - 1, 0)
        return pa.StringArray.from_buffers(slices, pa.py_buffer(offsets), pa.py_buffer(self.text))

    def _unescaped(self, values: pa.Array) -> pa.Array:
        """The content of quoted fields without characters that only make others literal
        (LZ-201)."""
        quote, escape = self.dialect.quote, self.dialect.escape
        assert quote is not None  # only quoted fields have escapes
        if escape is None:
            return pc.replace_substring(values, pattern=chr(quote) * 2, replacement=chr(quote))
        q, e = re.escape(chr(quote)), re.escape(chr(escape))
        return pc.replace_substring_regex(
            values, pattern=f"{e}([{e}{q}])|{q}({q})", replacement=r"\1\2"
        )


class TextRecords:
    """The header of a text and its rows. Raises BadFile for a text that is not of this format.

    part: the rows to read, None for all; lock: protects a handle that other threads read at the
    same time; block: size of a block in bytes. The first error does not depend on these.
    """

    def __init__(
        self,
        handle: BinaryIO,
        size: int,
        text: TextFormat,
        origin: Origin,
        block: int = BLOCK,
        *,
        part: TextPart | None = None,
        lock: threading.Lock | None = None,
    ) -> None:
        self._origin, self._block = origin, block
        self._dialect, self._strict = Dialect.of(text), text.strict
        self.is_whole = False  # whether the whole text has been read
        self._encoding = text.encoding
        self._rows, self._line = -1, 1  # number of data rows so far, without the header
        lock = lock or threading.Lock()
        if part is None:
            self._text = Utf8(opened(handle, size, origin), text.encoding)
        else:
            end = part.end if part.begin == 0 else size
            self._text = Utf8(Window(handle, 0, end, lock), text.encoding)
        self._texts = self._read()
        self.header, self._begun = self._head()
        if part is not None and part.begin:
            window = Window(handle, part.begin, part.end, lock)
            self._text = Utf8(window, text.encoding, part.begin)
            self._rows, self._line = part.row, part.line
            self._texts, self._begun = self._read(), iter(())

    def blocks(self) -> Iterator[Block]:
        """The rows after the header, once. Raises BadFile after the last valid row."""
        yield from self._begun
        for text, tokens in self._texts:
            yield from self._good(text, tokens)

    def _head(self) -> tuple[list[str], Iterator[Block]]:
        for text, tokens in self._texts:
            width = int(np.argmax(tokens.ends_row)) + 1
            head, rest = tokens.split(width)
            if wrong := self._wrong(text, head, width):
                raise self._fault(wrong[1], 0)
            names = Block(text, head, self._dialect, 1, 0, self._line).column(0).to_pylist()
            self._rows, self._width = 0, width
            self._line += lines(text, head.used, self._dialect)
            return names, self._good(text[head.used :], rest)
        raise self._origin.bad_file(
            "No data rows available: the file has no header and no text (LZ-159)"
        )

    def _good(self, text: bytes, tokens: Tokens) -> Iterator[Block]:
        """The rows before the first invalid one; counts them."""
        wrong = self._wrong(text, tokens, self._width)
        if wrong and wrong[0]:
            tokens, _rest = tokens.split(wrong[0] * self._width)
        if len(tokens.marks) and (not wrong or wrong[0]):
            block = Block(text, tokens, self._dialect, self._width, self._rows, self._line)
            self._rows += block.rows
            self._line += lines(text, tokens.used, self._dialect)
            yield block
        if wrong:
            raise self._fault(wrong[1], self._rows + 1)

    def _read(self) -> Iterator[tuple[bytes, Tokens]]:
        """Blocks with their fields, those with at least one whole row."""
        rest, size = b"", min(HEAD, self._block)
        while True:
            fault: Undecodable | None = None
            try:
                grown = min(len(rest), max(ROW_LIMIT - len(rest), 0))
                more, is_end = self._text.read(max(size, grown))
            except Undecodable as error:
                more, is_end, fault = error.before, False, error
            text = rest + more if rest else more
            tokens = tokenize(text, self._dialect, is_end=is_end)
            self.is_whole = is_end
            if len(tokens.marks):
                yield text, tokens
            rest, size = text[tokens.used :], self._block
            if len(rest) > ROW_LIMIT:
                raise self._fault(_too_long(), self._rows + 1)
            if fault:
                raise self._undecodable(fault)
            if tokens.unclosed and is_end:
                raise self._fault("it ends inside a quoted field", self._rows + 1)
            if is_end:
                return

    def _wrong(self, text: bytes, tokens: Tokens, width: int) -> tuple[int, str] | None:
        """The first invalid row, from 0, of rows with `width` fields, and its error."""
        found: list[tuple[int, str]] = []
        if len(text) > ROW_LIMIT and (long := _long_row(tokens)) is not None:
            found.append((long, _too_long()))
        if tokens.stray >= 0:
            row = int(np.count_nonzero(tokens.ends_row[: tokens.stray]))
            found.append((row, "it has text after a closing quote (LZ-201)"))
        if (wrong := _wrong_width(tokens, width)) is not None:
            row, fields = wrong
            found.append((row, f"it has {fields} fields, but the header has {width} (LZ-199)"))
        if self._strict and (row := _loose_end(text, tokens, self._dialect)) >= 0:
            found.append((row, "it does not end with RowSeparator (LZ-200)"))
        # Of several errors in one row, the first of these is reported.
        return min(found, key=lambda error: error[0], default=None)

    def _fault(self, what: str, row: int) -> BadFile:
        """The error of the row that begins on the current line."""
        return self._origin.bad_file(f"{what}, on line {self._line}", row=row)

    def _undecodable(self, fault: Undecodable) -> BadFile:
        hint = f"Write the file in {self._encoding}, or set Encoding in _metadata.json."
        return self._origin.bad_file(
            f"byte {fault.byte} of its text is not {self._encoding} ({fault.reason}), in the row "
            f"of line {self._line}",
            row=self._rows + 1,
            hint=hint,
        )


def lines(text: bytes, end: int, dialect: Dialect) -> int:
    """Number of lines that end in the first bytes of a text, including those within quotes."""
    return text.count(bytes([dialect.row_end]), 0, end)


def _too_long() -> str:
    return f"a row is longer than {ROW_LIMIT:,} bytes"


def _long_row(tokens: Tokens) -> int | None:
    """The first row, from 0, that exceeds the maximum size."""
    long = np.diff(tokens.marks[tokens.ends_row], prepend=-1) - 1 > ROW_LIMIT
    return int(np.argmax(long)) if long.any() else None


def _wrong_width(tokens: Tokens, width: int) -> tuple[int, int] | None:
    """The first row with another number of fields, from 0, and that number."""
    ends = tokens.ends_row
    rows = len(ends) // width
    if len(ends) == rows * width and ends[width - 1 :: width].sum() == rows == ends.sum():
        return None
    counts = np.diff(np.flatnonzero(ends), prepend=-1)
    row = int(np.argmax(counts != width))
    return row, int(counts[row])


def _loose_end(text: bytes, tokens: Tokens, dialect: Dialect) -> int:
    """The first row, from 0, that does not end as declared; -1 if there is none."""
    ends = tokens.marks[tokens.ends_row]
    loose = ends == len(text)
    if dialect.returns:
        loose |= np.frombuffer(text, np.uint8)[np.maximum(ends - 1, 0)] != CARRIAGE_RETURN
    return int(np.argmax(loose)) if loose.any() else -1
