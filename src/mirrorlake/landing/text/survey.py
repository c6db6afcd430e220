"""Surveys a range of text: how it changes the state of a reader, without reading its fields.

Line ends may be inside quotes, so the start of a row in the middle of a text cannot be recognized
locally. But a reader can enter a stretch of text in two states only, inside or outside quotes. For
both states, one pass over the offsets of few bytes determines how many rows end in the stretch,
where the first of them ends, and in which state the reader leaves. Stretches can be surveyed in any
order and by any process; the surveys are joined in the order of the stretches.

A stretch begins where the byte before it is unambiguous: after a byte that is not a quote, not an
escape, and not a carriage return that may belong to the end of a row.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import BinaryIO

import numpy as np

from mirrorlake.landing.text.compression import read_all
from mirrorlake.landing.text.tokens import (
    CARRIAGE_RETURN,
    Bytes,
    Dialect,
    Quoted,
    quoted_fields,
)

STRETCH = 256 << 10
"""Size of a stretch, in bytes."""
EDGE = 64 << 10
"""Number of bytes after an offset within which a stretch must begin; otherwise the text is not
surveyed."""


class QuoteState(IntEnum):
    """The state in which a reader enters or leaves a stretch."""

    OUTSIDE = 0
    QUOTED = 1
    LOST = 2  # text after a closing quote: reading these rows is an error


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage through a stretch.

    rows: number of rows that end in it; first: offset in the file after the first of them, -1 for
    none; lines: line ends up to there; out: the state in which the reader leaves.
    """

    rows: int
    first: int
    lines: int
    out: QuoteState


@dataclass(frozen=True, slots=True)
class Survey:
    """Both passages through a stretch. lines: its line ends, including those within quotes."""

    outside: Passage
    quoted: Passage
    lines: int

    def passage(self, state: QuoteState) -> Passage:
        return self.quoted if state is QuoteState.QUOTED else self.outside


class Window:
    """The bytes of a file from one offset to another, as `compression.Reader`.

    Windows on the same file handle share a lock, and may then be read by several threads.
    """

    def __init__(
        self, handle: BinaryIO, begin: int, end: int, lock: threading.Lock | None = None
    ) -> None:
        self._handle, self._at, self._end = handle, begin, end
        self._lock = lock or threading.Lock()

    def read(self, size: int) -> bytes:
        with self._lock:
            self._handle.seek(self._at)
            found = read_all(self._handle, min(size, self._end - self._at))
            self._at += len(found)
        return found


def survey(
    handle: BinaryIO,
    size: int,
    dialect: Dialect,
    begin: int,
    end: int,
    *,
    start: int = 0,
    stretch: int = STRETCH,
    lock: threading.Lock | None = None,
) -> Survey | None:
    """The survey of the bytes from about `begin` to about `end`; None if it is not possible.

    size: of the file; start: offset where its text begins, after a byte order mark. The survey that
    begins at `end` begins exactly where this one ends. Memory: a few times STRETCH.
    """
    lock = lock or threading.Lock()
    edges = []
    for offset in (*range(begin, end, stretch), end):
        edge = start
        if offset > start:
            resolved = _resolved(Window(handle, offset - 1, size, lock), offset, size, dialect)
            if resolved is None:
                return None
            edge = resolved
        edges.append(edge)
    traces = {way: _StateTrace(way) for way in (QuoteState.OUTSIDE, QuoteState.QUOTED)}
    if dialect.quote is None:
        traces[QuoteState.QUOTED].out = QuoteState.LOST
    lines = 0
    for first, last in _stretches(edges):
        # Byte 0 is the one before the stretch; the start of the whole text is like the start of a
        # row.
        text = bytearray() if first > start else bytearray([dialect.row_end])
        text += Window(handle, max(first - 1, start), last, lock).read(last - first + 1)
        found: dict[QuoteState, Passage] = {}
        for way in traces.values():
            if way.out is not QuoteState.LOST:
                if way.out not in found:
                    found[way.out] = _passage(text, dialect, way.out)
                way.follow(found[way.out], first - 1, lines)
        lines += text.count(dialect.row_end, 1)
    return Survey(traces[QuoteState.OUTSIDE].passage(), traces[QuoteState.QUOTED].passage(), lines)


def _stretches(edges: list[int]) -> Iterator[tuple[int, int]]:
    return ((first, last) for first, last in itertools.pairwise(edges) if first < last)


@dataclass(slots=True)
class _StateTrace:
    """One passage through all stretches so far."""

    out: QuoteState
    rows: int = 0
    first: int = -1
    lines: int = 0

    def follow(self, passage: Passage, base: int, lines: int) -> None:
        """base: offset in the file of the stretch's byte 0; lines: line ends before the stretch."""
        if self.first < 0 <= passage.first:
            self.first, self.lines = base + passage.first, lines + passage.lines
        self.rows += passage.rows
        self.out = passage.out

    def passage(self) -> Passage:
        return Passage(self.rows, self.first, self.lines, self.out)


def _resolved(window: Window, offset: int, size: int, dialect: Dialect) -> int | None:
    """The first offset from here after an unambiguous byte; None if there is none within EDGE.

    window: from the byte before the offset to the end of the file.
    """
    doubtful = {dialect.quote, dialect.escape}
    if dialect.returns:
        doubtful.add(CARRIAGE_RETURN)
    head = window.read(16)
    for more in (0, EDGE):
        head += window.read(more)
        for ahead, byte in enumerate(head):
            if byte not in doubtful:
                return offset + ahead
    return size if offset + len(head) > size else None


def _passage(text: bytearray, dialect: Dialect, state: QuoteState) -> Passage:
    """A passage through a stretch; byte 0 is the one before it. `first` counts from byte 0."""
    before = text[0]
    if state is QuoteState.QUOTED:
        assert dialect.quote is not None
        text[0] = dialect.quote  # as if a field had begun here
    data = np.frombuffer(text, np.uint8)
    has_quotes = dialect.quote is not None and dialect.quote in text
    found = quoted_fields(data, dialect) if has_quotes else None
    try:
        if found is None:
            first = text.find(dialect.row_end, 1) + 1
            return Passage(
                text.count(dialect.row_end, 1), first or -1, 1 if first else 0, QuoteState.OUTSIDE
            )
        return _through(data, dialect, found)
    finally:
        del data
        text[0] = before


def _through(data: Bytes, dialect: Dialect, found: Quoted) -> Passage:
    ends = np.flatnonzero(data[1:] == dialect.row_end) + 1
    before, until = np.searchsorted(ends, found.opens), np.searchsorted(ends, found.closes)
    # The row ends outside quotes are those from `begins` to `stops` between two quoted fields.
    begins, stops = np.append(0, until), np.append(before, len(ends))
    free = stops - begins
    first = int(begins[np.argmax(free > 0)]) if free.any() else -1
    out = QuoteState.OUTSIDE
    if _is_lost(data, dialect, found):
        out = QuoteState.LOST
    elif found.closes[-1] == len(data):
        out = QuoteState.QUOTED
    return Passage(int(free.sum()), int(ends[first]) + 1 if first >= 0 else -1, first + 1, out)


def _is_lost(data: Bytes, dialect: Dialect, found: Quoted) -> bool:
    """Whether text follows a closing quote that does not end a field."""
    behind = found.closes + 1
    behind = behind[behind < len(data)]
    follows = data[behind]
    fits = (follows == dialect.separator) | (follows == dialect.row_end)
    if dialect.returns:
        second = np.minimum(behind + 1, len(data) - 1)
        fits |= (follows == CARRIAGE_RETURN) & (data[second] == dialect.row_end)
    return not fits.all()
