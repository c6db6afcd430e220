"""A large text in parts of whole rows, each of which can be read by itself.

The parts of a text, read one after another, are the text: the same rows, and the same first fault
in the same words, with its row and line. Where they begin is known for certain, see `survey`.
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
    """Whole rows of a file that stand together; the first part begins with the header.

    begin, end: bytes of the file; row: data rows before it; line: on which it begins, from 1.
    """

    begin: int
    end: int
    row: int = 0
    line: int = 1


def can_be_cut(text: TextFormat) -> bool:
    """Whether the bytes of a text that is not compressed tell where its rows end."""
    return is_bytewise(text.encoding)


def survey_ranges(size: int, part: int) -> list[tuple[int, int]]:
    """About where the parts of a file begin and end, when each is to have so many bytes."""
    begins = range(0, size, part)
    return [(begin, min(begin + part, size)) for begin in begins]


def look(
    handle: BinaryIO,
    size: int,
    text: TextFormat,
    window: tuple[int, int],
    *,
    stretch: int = STRETCH,
    lock: threading.Lock | None = None,
) -> Survey | None:
    """The survey of one range; None where the file has to be read from its beginning."""
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
    """Where the text of a file begins; None for one that is compressed, or no text at all."""
    try:
        if codec_of(handle, size, Origin("", "")):
            return None
    except BadFile:
        return None
    handle.seek(0)
    return len(mark) if handle.read(len(mark)) == mark else 0


def joined(surveys: Iterable[Survey | None], size: int) -> list[TextPart]:
    """The parts of a file by the surveys of all its places, in their order.

    One part, where a survey is missing; and none begins behind a row that will be refused.
    """
    parts: list[TextPart] = []
    begin = TextPart(0, size)
    way, rows, lines = QuoteState.OUTSIDE, 0, 0
    for survey_ in surveys:
        if survey_ is None:
            return [TextPart(0, size)]
        passage = survey_.passage(way)
        if passage.out is QuoteState.LOST:
            break
        if rows and begin.begin < passage.first < size:
            parts.append(TextPart(begin.begin, passage.first, begin.row, begin.line))
            # Of the rows so far one is the header, and the one that ends here is not counted yet.
            begin = TextPart(passage.first, size, rows, lines + passage.lines + 1)
        way, rows, lines = passage.out, rows + passage.rows, lines + survey_.lines
    return [*parts, begin]


def cut(
    handle: BinaryIO,
    size: int,
    text: TextFormat,
    part: int,
    pool: Executor,
    lock: threading.Lock,
) -> list[TextPart]:
    """The parts of an opened file, of about `part` bytes; the threads of the pool look at it."""
    if size < 2 * part or not can_be_cut(text):
        return [TextPart(0, size)]

    def looked(window: tuple[int, int]) -> Survey | None:
        return look(handle, size, text, window, lock=lock)

    return joined(pool.map(looked, survey_ranges(size, part)), size)
