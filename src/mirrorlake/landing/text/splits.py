"""Splits a large text into parts of whole rows that can be read separately.

Reading the parts one after another gives the same rows as reading the whole text, and the same
first error with the same row, line and message. The start of a part is exact, see `survey`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import BinaryIO

from mirrorlake.errors import BadFile
from mirrorlake.landing.text.compression import codec_of
from mirrorlake.landing.text.encodings import is_bytewise, mark_of
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.landing.text.origin import Origin
from mirrorlake.landing.text.survey import STRETCH, QuoteState, Survey, survey
from mirrorlake.landing.text.tokens import Dialect


@dataclass(frozen=True, slots=True)
class TextPart:
    """Whole consecutive rows of a file; the first part begins with the header.

    begin, end: offsets in the file; row: number of data rows before it; line: on which it begins,
    from 1.
    """

    begin: int
    end: int
    row: int = 0
    line: int = 1


def can_be_cut(text: TextFormat) -> bool:
    """Whether the ends of rows can be found in the bytes of an uncompressed text."""
    return is_bytewise(text.encoding)


def survey_ranges(size: int, part: int) -> list[tuple[int, int]]:
    """Approximate ranges of the parts of a file, for a given size of a part."""
    begins = range(0, size, part)
    return [(begin, min(begin + part, size)) for begin in begins]


def survey_range(
    handle: BinaryIO,
    size: int,
    text: TextFormat,
    window: tuple[int, int],
    *,
    stretch: int = STRETCH,
    lock: threading.Lock | None = None,
) -> Survey | None:
    """The survey of the range `window`; None if the file has to be read from its beginning."""
    lock = lock or threading.Lock()
    with lock:
        start = _start(handle, size, mark_of(text.encoding))
    if start is None:
        return None
    begin, end = window
    return survey(
        handle, size, Dialect.of(text), begin, end, start=start, stretch=stretch, lock=lock
    )


def _start(handle: BinaryIO, size: int, mark: bytes) -> int | None:
    """The offset where the text of a file begins; None if it is compressed or not text."""
    try:
        if codec_of(handle, size, Origin("", "")):
            return None
    except BadFile:
        return None
    handle.seek(0)
    return len(mark) if handle.read(len(mark)) == mark else 0


def joined(surveys: Iterable[Survey | None], size: int) -> list[TextPart]:
    """The parts of a file, given the surveys of all its ranges in order.

    One part, if a survey is missing; no part begins after a row that will be rejected.
    """
    parts: list[TextPart] = []
    begin = TextPart(0, size)
    state, rows, lines = QuoteState.OUTSIDE, 0, 0
    for survey_ in surveys:
        if survey_ is None:
            return [TextPart(0, size)]
        passage = survey_.passage(state)
        if passage.out is QuoteState.LOST:
            break
        if rows and begin.begin < passage.first < size:
            parts.append(TextPart(begin.begin, passage.first, begin.row, begin.line))
            # One of the rows so far is the header, and the one that ends here is not counted yet.
            begin = TextPart(passage.first, size, rows, lines + passage.lines + 1)
        state, rows, lines = passage.out, rows + passage.rows, lines + survey_.lines
    return [*parts, begin]


def cut(
    handle: BinaryIO,
    size: int,
    text: TextFormat,
    part: int,
    pool: Executor,
    lock: threading.Lock,
) -> list[TextPart]:
    """The parts of an opened file, of about `part` bytes; the threads of the pool survey it."""
    if size < 2 * part or not can_be_cut(text):
        return [TextPart(0, size)]

    def surveyed(window: tuple[int, int]) -> Survey | None:
        return survey_range(handle, size, text, window, lock=lock)

    return joined(pool.map(surveyed, survey_ranges(size, part)), size)
