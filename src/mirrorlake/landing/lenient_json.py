"""JSON as in official samples: strict first, then with four tolerances (LZ-052).

Tolerated are a comma before a closing bracket, a bare word as a value, a single backslash inside a
string (`"\\"` as the whole string, or one that does not begin an escape), and a UTF-8 byte order
mark. Everything else that is not JSON is rejected with its position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 500
"""Maximum nesting; a deeper file does not describe a table."""

MAX_NOTES = 100
"""Maximum number of notes per file."""

_CLAUSE = "LZ-052"
_MARK = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'(?:[^"\\\x00-\x1f]|\\"|\\\\|\\)*')
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9A-Fa-f]{4})?')
_ENDS = re.compile(r"[ \t\n\r]*[,}\]]")
_CONSTANTS = {"true": True, "false": False, "null": None}

Path = tuple[str | int, ...]
"""The path of a value: names of members and indexes of arrays."""


class NotJson(ValueError):
    """Not JSON, even with tolerances. line, column: of the error, from 1; message: what is
    wrong."""

    def __init__(self, line: int, column: int, message: str) -> None:
        self.line, self.column, self.message = line, column, message
        super().__init__(line, column, message)

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


@dataclass(frozen=True, slots=True)
class Note:
    """A tolerance that was applied; line and column are counted from 1."""

    line: int
    column: int
    what: str
    clause: str = _CLAUSE

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.what}"


@dataclass(frozen=True, slots=True)
class Parsed:
    """A value, and the tolerances that were needed to read it."""

    value: Any
    notes: tuple[Note, ...] = ()


def parse(content: bytes) -> Parsed:
    """Read JSON leniently. Raises NotJson, and nothing else."""
    text, notes = _decoded(content)
    try:
        return Parsed(json.loads(text, parse_constant=_refuse), notes)
    except (ValueError, RecursionError):
        reader = _Reader(text)
        return Parsed(reader.document(), (*notes, *reader.notes))


def locate(content: bytes, path: Path) -> tuple[int, int] | None:
    """Line and column, from 1, of a value; None if there is no such value.

    Of several members with the same name the last one counts, as in `parse`.
    """
    return locator(content)(path)


def locator(content: bytes) -> Callable[[Path], tuple[int, int] | None]:
    """`locate` for many values of a text that is read once."""
    try:
        text, _notes = _decoded(content)
        reader = _Reader(text)
        reader.document()
    except NotJson:
        return lambda _path: None
    offsets = reader.offsets
    return lambda path: _line_and_column(text, offsets[path]) if path in offsets else None


def _decoded(content: bytes) -> tuple[str, tuple[Note, ...]]:
    marked = content.startswith(_MARK)
    body = content[len(_MARK) :] if marked else content
    notes = (Note(1, 1, "a byte order mark"),) if marked else ()
    try:
        return body.decode(), notes
    except UnicodeDecodeError as error:
        line, column = _line_and_column(body[: error.start].decode(), None)
        byte = error.start + (len(_MARK) if marked else 0)
        raise NotJson(line, column, f"byte {byte} is not UTF-8") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _line_and_column(text: str, at: int | None) -> tuple[int, int]:
    """Line and column, from 1, of an offset; None for the end."""
    end = len(text) if at is None else at
    return text.count("\n", 0, end) + 1, end - text.rfind("\n", 0, end)


@dataclass(slots=True)
class _Open:
    """A container that is not closed yet."""

    container: dict[str, Any] | list[Any]
    path: Path
    comma: int | None = None  # the offset of the last token, if it was a comma

    @property
    def closing(self) -> str:
        return "}" if isinstance(self.container, dict) else "]"


class _Reader:
    """Reads the text once, with its own stack, so that deep nesting cannot overflow the stack."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self._open: list[_Open] = []
        self.notes: list[Note] = []
        self.offsets: dict[Path, int] = {}

    def document(self) -> Any:
        """The value of the whole text. Raises NotJson."""
        value = self._value(())
        while self._open:
            self._step(self._open[-1])
        if self._next():
            self._fail("text after the end of the document")
        return value

    def _step(self, inner: _Open) -> None:
        """One comma, one closing bracket, or one element of the innermost container."""
        found = self._next()
        if found == inner.closing:
            if inner.comma is not None:
                self._note("a comma before the closing bracket", inner.comma)
            self._at += 1
            self._open.pop()
        elif inner.container and inner.comma is None:
            self._expect(",")
            inner.comma = self._at - 1
        elif isinstance(inner.container, dict):
            if found != '"':
                self._fail(f"expected a member name in double quotes, or {inner.closing}")
            name = self._string()
            self._expect(":")
            inner.comma = None
            # The name is stored before its value: a container is entered only after that.
            inner.container[name] = None
            inner.container[name] = self._value((*inner.path, name))
        else:
            inner.comma = None
            offset = len(inner.container)
            inner.container.append(None)
            inner.container[offset] = self._value((*inner.path, offset))

    def _value(self, path: Path) -> Any:
        """A scalar, or an open container that is still empty."""
        found = self._next()
        self.offsets[path] = self._at
        if found == '"':
            return self._string()
        if found and found in "{[":
            return self._enter({} if found == "{" else [], path)
        if (number := _NUMBER.match(self._text, self._at)) and number[0]:
            return self._number(number)
        if word := _WORD.match(self._text, self._at):
            return self._word(word[0])
        return self._fail("expected a value" if found else "the document ends within a value")

    def _enter(self, container: dict[str, Any] | list[Any], path: Path) -> Any:
        if len(self._open) >= MAX_DEPTH:
            self._fail(f"nested deeper than {MAX_DEPTH} levels")
        self._at += 1
        self._open.append(_Open(container, path))
        return container

    def _number(self, match: re.Match[str]) -> int | float:
        try:
            value = float(match[0]) if match[1] or match[2] else int(match[0])
        except ValueError:
            self._fail(f"a number of {len(match[0])} digits")
        self._at = match.end()
        return value

    def _word(self, word: str) -> Any:
        if word not in _CONSTANTS:
            self._note(f"{word} is not in quotes")
        self._at += len(word)
        return _CONSTANTS.get(word, word)

    def _string(self) -> str:
        self._at += 1
        if self._is_lone_backslash():
            self._note("a single backslash")
            self._at += 2
            return "\\"
        begin, match = self._at, _STRING.match(self._text, self._at)
        assert match is not None  # it also matches the empty text
        self._at = match.end()
        if not self._text.startswith('"', self._at):
            is_end = self._at == len(self._text)
            self._fail("a string without an end" if is_end else "a control character in a string")
        self._at += 1

        def doubled(backslash: re.Match[str]) -> str:
            if backslash[1]:
                return backslash[0]
            self._note("a single backslash", begin + backslash.start())
            return r"\\"

        return str(json.loads(f'"{_BACKSLASH.sub(doubled, match[0])}"'))

    def _is_lone_backslash(self) -> bool:
        """Whether the string is a single unescaped backslash: what follows must end the value."""
        return self._text.startswith('\\"', self._at) and bool(
            _ENDS.match(self._text, self._at + 2)
        )

    def _next(self) -> str:
        """The next character that is not white space, without consuming it; empty at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None  # it also matches the empty text
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def _expect(self, expected: str) -> None:
        if self._next() != expected:
            self._fail(f"expected {expected!r}")
        self._at += 1

    def _note(self, what: str, at: int | None = None) -> None:
        if len(self.notes) < MAX_NOTES:  # finding each position reads the text once
            self.notes.append(
                Note(*_line_and_column(self._text, self._at if at is None else at), what)
            )

    def _fail(self, message: str) -> NoReturn:
        raise NotJson(*_line_and_column(self._text, self._at), message)
