"""Reads lines of JSON, one event each, without rounding numbers to binary floats (ST-025, ST-028).

An error affects only its own line. A line that exceeds the maximum size of an event is skipped
without being kept in memory.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from mirrorlake.events.decode.avro_file import MAGIC
from mirrorlake.events.decode.errors import UnreadableEvents
from mirrorlake.events.envelope import MOST_EVENT, PAYLOAD, SOURCE_METADATA

_PART = 1 << 20
GZIP = b"\x1f\x8b"

MOST_VALUES = 1_000_000
"""Maximum number of values in one event: parsed, each takes up to 300 bytes."""

_SEPARATORS = b",[{"
_IS_SEPARATOR = np.isin(np.arange(256), list(_SEPARATORS))
_SURROGATE = re.compile("[\ud800-\udfff]")
_TWICE = "an object has a name twice"


class Digits(str):
    """A number as written in the text."""

    __slots__ = ()


class RepeatedNames(tuple[tuple[str, Any], ...]):
    """The members of an object that has a name twice, as values of PostgreSQL's `json` may.

    No dict, so that it is never taken for a record whose members have one value each.
    """

    __slots__ = ()


NESTED: tuple[type, ...] = (dict, list, RepeatedNames)
"""The types of values that contain others."""


@dataclass(frozen=True, slots=True)
class JsonLine:
    """An event, or the error of the line."""

    event: dict[str, Any]
    error: str = ""


def json_lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The lines of a file, gzipped or not, and their sizes; of a line that is too long only that.
    Blank lines are skipped. Raises UnreadableEvents."""
    try:
        for line, size in _lines(_opened(file)):
            if size > MOST_EVENT:
                yield b"", size
            elif not line.isspace():
                yield line, size
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UnreadableEvents(f"the file cannot be unpacked: {str(error)[:200]}") from None


def text_of(value: Any) -> str | None:
    """A value as text: numbers with their digits as written, nested values as JSON."""
    if value is None or isinstance(value, str):
        return value
    return json_text(value)


def json_text(value: Any) -> str:
    """A value as JSON without blanks, its numbers with their digits as written."""
    match value:
        case Digits():
            return str(value)
        case dict():
            return _object_text(value.items())
        case RepeatedNames():
            return _object_text(value)
        case list():
            return f"[{','.join(map(json_text, value))}]"
        case _:
            return escaped(json.dumps(value, ensure_ascii=False))


def escaped(text: str) -> str:
    """JSON with its unpaired surrogates as escapes: UTF-8 cannot encode them, and `\\ud800` is a
    string of PostgreSQL's `json`."""
    if text.isascii():
        return text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _object_text(members: Iterable[tuple[str, Any]]) -> str:
    return f"{{{','.join(f'{json.dumps(name)}:{json_text(one)}' for name, one in members)}}}"


def _opened(file: BinaryIO) -> BinaryIO:
    start = file.read(len(GZIP))
    whole: Any = io.BufferedReader(_After(start, file), _PART)
    if start != GZIP:
        return whole  # type: ignore[no-any-return]
    unpacked = gzip.GzipFile(fileobj=whole)
    if unpacked.peek(len(MAGIC)).startswith(MAGIC):
        raise UnreadableEvents(
            "it is an Avro file inside gzip, which is no form of event files: Avro files compress "
            "their own blocks"
        )
    return unpacked  # type: ignore[return-value]


class _After(io.RawIOBase):
    """A file from which the first bytes have already been read."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        super().__init__()
        self._start, self._file = start, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._start:
            found, self._start = self._start[: len(buffer)], self._start[len(buffer) :]
        else:
            found = self._file.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Each line and its size; a line that is too long is empty."""
    while line := file.readline(MOST_EVENT + 2):
        size = len(line)
        if size <= MOST_EVENT + 1 or line.endswith(b"\n"):
            yield line, size - (2 if line.endswith(b"\r\n") else line.endswith(b"\n"))
            continue
        line = b""
        while part := file.readline(_PART):
            size += len(part)
            if part.endswith(b"\n"):
                break
        yield b"", size


def parsed(line: bytes, size: int) -> JsonLine:
    """The event of a line of `json_lines`."""
    if size > MOST_EVENT:
        return JsonLine({}, f"the event has {size} bytes, more than {MOST_EVENT}")
    if size > MOST_VALUES and _values(line) > MOST_VALUES:
        return JsonLine({}, f"the event has more than {MOST_VALUES} values")
    try:
        found = DECODER.decode(line.decode("utf-8-sig"))
    except (RecursionError, ValueError) as error:
        return JsonLine({}, _reason(error))
    if _has_name_twice(found):
        return JsonLine({}, f"the line is not JSON: {_TWICE}")
    return JsonLine(found) if isinstance(found, dict) else JsonLine({}, "the line is not an object")


def _has_name_twice(event: Any) -> bool:
    """Whether the envelope, its metadata or its payload has: which of the two fields or columns is
    meant, nothing says. What is inside a value is the value's own."""
    if not isinstance(event, dict):
        return isinstance(event, RepeatedNames)
    return any(isinstance(event.get(name), RepeatedNames) for name in (SOURCE_METADATA, PAYLOAD))


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "the line is not UTF-8"
    if isinstance(error, RecursionError):
        return "the line is nested too deep"
    return f"the line is not JSON: {str(error)[:200]}"


def _values(line: bytes) -> int:
    """At least how many values a line has: by what separates them, outside of texts if need be."""
    found = sum(map(line.count, _SEPARATORS))
    if found <= MOST_VALUES:
        return found
    plain = np.frombuffer(line.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    found = quotes = 0
    for start in range(0, len(plain), _PART):
        part = plain[start : start + _PART]
        before = np.cumsum(part == ord('"')) + quotes
        found += int(np.count_nonzero(_IS_SEPARATOR[part] & (before % 2 == 0)))
        quotes = int(before[-1])
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | RepeatedNames:
    found = dict(pairs)
    return found if len(found) == len(pairs) else RepeatedNames(pairs)


DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=Digits, parse_int=Digits, parse_constant=Digits
)
