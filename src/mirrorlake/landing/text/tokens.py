"""The fields of a text: rows, columns and quotes as offsets of their bytes.

Rows end at a line feed (or at a carriage return, if declared), fields at a separator, unless these
are within quotes. A field is quoted if its first byte is the quote; inside it, a doubled quote is
one quote, and the escape character makes a quote or itself literal (LZ-201). A quote anywhere else
is an ordinary character. Nothing is processed byte by byte: everything is arithmetic on the offsets
of few bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mirrorlake.landing.text.format import TextFormat

Offsets = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

CARRIAGE_RETURN = 0x0D


@dataclass(frozen=True, slots=True)
class Dialect:
    """The bytes with a special meaning. escape: None if it is disabled, or is the quote itself."""

    separator: int
    row_end: int
    returns: bool  # a carriage return before the end of a row belongs to it (LZ-200)
    quote: int | None
    escape: int | None

    @classmethod
    def of(cls, text: TextFormat) -> Dialect:
        escape = text.escape if text.quote and text.escape != text.quote else ""
        return cls(
            separator=ord(text.column_separator),
            row_end=ord(text.row_separator[-1]),
            returns=text.row_separator == "\r\n",
            quote=ord(text.quote) if text.quote else None,
            escape=ord(escape) if escape else None,
        )


@dataclass(frozen=True, slots=True)
class Tokens:
    """The fields of the whole rows of a block.

    starts, ends: of the content, without quotes; quoted, escaped: whether the field is quoted, and
    whether its content has doubled quotes or escapes; ends_row: whether it is the last of its row;
    marks: offset of the separator or row end after the field; used: number of bytes of the block
    that whole rows take; stray: the first field with text after its closing quote, -1 for none;
    unclosed: whether the text ends within quotes, in the row after these.
    """

    starts: Offsets
    ends: Offsets
    quoted: Flags
    escaped: Flags
    ends_row: Flags
    marks: Offsets
    used: int
    stray: int = -1
    unclosed: bool = False

    def split(self, count: int) -> tuple[Tokens, Tokens]:
        """The first fields, up to the end of a row, and the others as those of a later block."""
        used = min(int(self.marks[count - 1]) + 1, self.used)
        head = Tokens(
            self.starts[:count],
            self.ends[:count],
            self.quoted[:count],
            self.escaped[:count],
            self.ends_row[:count],
            self.marks[:count],
            used,
            self.stray if self.stray < count else -1,
        )
        rest = Tokens(
            self.starts[count:] - used,
            self.ends[count:] - used,
            self.quoted[count:],
            self.escaped[count:],
            self.ends_row[count:],
            self.marks[count:] - used,
            self.used - used,
            self.stray - count if self.stray >= count else -1,
        )
        return head, rest


@dataclass(frozen=True, slots=True)
class Quoted:
    """Quoted fields: the offsets of their quotes; a missing last closing quote is placed after
    the end."""

    opens: Offsets
    closes: Offsets
    escaped: Flags


def tokenize(block: bytes, dialect: Dialect, *, is_end: bool) -> Tokens:
    """The fields of a block that begins with a row. is_end: whether the text ends with the block.

    Memory: about 3 bytes per byte, and 40 per field.
    """
    data = np.frombuffer(block, np.uint8)
    is_mark = (data == dialect.separator) | (data == dialect.row_end)
    marks = np.flatnonzero(is_mark)
    found = quoted_fields(data, dialect)
    field = np.zeros(0, np.int64)
    if found is not None:
        marks, field = _outside(is_mark, marks, found)
    ends_row = data[marks] == dialect.row_end
    last = int(marks[ends_row][-1]) + 1 if ends_row.any() else 0
    unclosed = found is not None and int(found.closes[-1]) == len(data)
    if is_end and last < len(data) and not unclosed:
        # The line end of the last row is optional (LZ-200).
        marks, ends_row = np.append(marks, len(data)), np.append(ends_row, True)
        last = len(data)
    count = int(np.count_nonzero(ends_row)) and int(np.flatnonzero(ends_row)[-1]) + 1
    return _fields(data, dialect, marks[:count], ends_row[:count], found, field, last, unclosed)


def _fields(
    data: Bytes,
    dialect: Dialect,
    marks: Offsets,
    ends_row: Flags,
    found: Quoted | None,
    field: Offsets,
    used: int,
    unclosed: bool,
) -> Tokens:
    starts = np.empty(len(marks), np.int64)
    starts[:1] = 0
    starts[1:] = marks[:-1] + 1
    ends = marks.copy()
    if dialect.returns and len(marks):
        before = data[np.maximum(marks - 1, 0)] == CARRIAGE_RETURN
        ends -= before & ends_row & (marks > starts) & (marks < len(data))
    quoted, escaped = np.zeros(len(marks), bool), np.zeros(len(marks), bool)
    stray = -1
    if found is not None:
        n = int(np.searchsorted(field, len(marks)))
        field, opens, closes = field[:n], found.opens[:n], found.closes[:n]
        # What is between the closing quote and the end of the field does not belong to it.
        wrong = ends[field] != closes + 1
        stray = int(field[np.argmax(wrong)]) if wrong.any() else -1
        starts[field], ends[field] = opens + 1, closes
        quoted[field], escaped[field] = True, found.escaped[:n]
    return Tokens(starts, ends, quoted, escaped, ends_row, marks, used, stray, unclosed)


def _outside(is_mark: Flags, marks: Offsets, found: Quoted) -> tuple[Offsets, Offsets]:
    """The marks outside quotes, and for each quoted field its index among the fields."""
    before, until = _ranks(is_mark, marks, found.opens, found.closes)
    enclosing = np.flatnonzero(until > before)
    if not len(enclosing):
        return marks, before
    change = np.zeros(len(marks) + 1, np.int64)
    change[before[enclosing]] += 1
    np.subtract.at(change, until[enclosing], 1)
    kept = np.cumsum(change[:-1]) == 0
    dropped = np.concatenate(([0], np.cumsum(~kept)))
    return marks[kept], before - dropped[before]


def _ranks(
    is_mark: Flags, marks: Offsets, opens: Offsets, closes: Offsets
) -> tuple[Offsets, Offsets]:
    """The number of marks before each opening and closing quote.

    For many quotes, counting along the block is cheaper; for few, searching.
    """
    if len(opens) < len(is_mark) // 64:
        return np.searchsorted(marks, opens), np.searchsorted(marks, closes)
    counted = np.cumsum(is_mark, dtype=np.int32)  # of a quote itself: those before it
    last = np.minimum(closes, len(is_mark) - 1)
    return counted[opens].astype(np.int64), counted[last].astype(np.int64)


def quoted_fields(data: Bytes, dialect: Dialect) -> Quoted | None:
    """The quoted fields of a block; None if there are none."""
    if dialect.quote is None:
        return None
    every = np.flatnonzero(data == dialect.quote)
    if not len(every):
        return None
    escapes = np.zeros(0, np.int64)
    offsets = every
    if dialect.escape is not None:
        escapes = np.flatnonzero(data == dialect.escape)
        offsets = every[~_is_escaped(every, escapes)]
    pairs = _alternating(data, dialect, offsets)
    opening, closing = pairs or _chained(offsets, _at_start(data, dialect, offsets))
    if not len(opening):
        return None
    opens, closes = offsets[opening], np.append(offsets, len(data))[closing]
    within = closing - opening > 1
    if len(escapes):
        within |= np.searchsorted(escapes, closes) > np.searchsorted(escapes, opens)
    return Quoted(opens, closes, within)


def _is_escaped(quotes: Offsets, escapes: Offsets) -> Flags:
    """Which quotes follow an odd number of escape characters."""
    if not len(escapes):
        return np.zeros(len(quotes), bool)
    begins = np.concatenate(([True], np.diff(escapes) > 1))
    begin = np.maximum.accumulate(np.where(begins, escapes, 0))
    last = np.searchsorted(escapes, quotes) - 1  # the last escape before each quote
    near = (last >= 0) & (escapes[last] == quotes - 1)
    escaped: Flags = near & ((quotes - begin[last]) % 2 == 1)
    return escaped


def _at_start(data: Bytes, dialect: Dialect, offsets: Offsets) -> Flags:
    """Which quotes are the first byte of a possible field."""
    before = data[np.maximum(offsets - 1, 0)]
    starts: Flags = (before == dialect.separator) | (before == dialect.row_end) | (offsets == 0)
    return starts


def _alternating(data: Bytes, dialect: Dialect, offsets: Offsets) -> tuple[Offsets, Offsets] | None:
    """Which quotes open and which close a field, if they alternate; None otherwise.

    They alternate if no unquoted field contains a quote: then each quote with an even index is at
    the start of a field, or directly after one that would have closed (a doubled quote). If the
    last closing quote is missing, its index is the number of quotes.
    """
    first, second = offsets[0::2], offsets[1::2]
    doubled = np.zeros(len(first), bool)
    doubled[1:] = first[1:] == second[: len(first) - 1] + 1
    if not (_at_start(data, dialect, first) | doubled).all():
        return None
    closing = np.ones(len(first), bool)
    closing[:-1] = ~doubled[1:]
    return 2 * np.flatnonzero(~doubled), 2 * np.flatnonzero(closing) + 1


def _chained(offsets: Offsets, at_start: Flags) -> tuple[Offsets, Offsets]:
    """Which quotes open and which close a field, in general.

    Adjacent quotes form a run. A run that begins at the start of a field opens it; if its length is
    even, it also closes the field, otherwise the next run of odd length does. Which runs are
    reached from the first one is found by doubling the jump distance in each round.
    """
    begins = np.concatenate(([True], np.diff(offsets) > 1))
    first = np.flatnonzero(begins)
    length = np.diff(np.append(first, len(offsets)))
    odd = np.flatnonzero(length % 2 == 1)
    candidate = np.flatnonzero(at_start[first])
    count = len(candidate)
    if not count:
        return candidate, candidate
    # The run that closes; one after the last if none does.
    following = np.append(odd, len(first))[np.searchsorted(odd, candidate, "right")]
    closing = np.where(length[candidate] % 2 == 0, candidate, following)
    step = np.searchsorted(candidate, closing, "right")
    reached = _reached(np.append(step, count))
    last = np.append(first + length - 1, len(offsets))
    return first[candidate[reached]], last[closing[reached]]


def _reached(step: Offsets) -> Offsets:
    """The indexes reached by following `step` from the first one; the last index is the end."""
    reached = np.zeros(len(step), bool)
    reached[0] = True
    end = len(step) - 1
    while step[0] < end:
        reached[step[np.flatnonzero(reached)]] = True
        step = step[step]
    return np.flatnonzero(reached[:end])
