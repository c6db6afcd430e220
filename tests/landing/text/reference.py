"""A reader of delimited text, one character at a time, so plain that it is right.

What the tokenizer does with positions is held against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.landing.text.format import TextFormat


@dataclass(frozen=True)
class Field:
    content: str
    quoted: bool = False


class Wrong(Exception):
    """row: from 0, the header first."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def rows(text: str, form: TextFormat) -> list[list[Field]]:
    """All rows, the header first. Raises Wrong for the first row that is none."""
    found: list[list[Field]] = []
    at = 0
    while at < len(text):
        row: list[Field] = []
        more = True
        while more:
            field, at, more = _field(text, at, form, len(found))
            row.append(field)
        if found and len(row) != len(found[0]):
            raise Wrong(len(found))
        found.append(row)
    return found


def _end_of_row(text: str, at: int, form: TextFormat) -> int:
    """How many characters end a row here; 0 for none."""
    if form.row_separator == "\r\n":
        if text.startswith("\r\n", at):
            return 2
        return 1 if text.startswith("\n", at) else 0
    return 1 if text.startswith(form.row_separator, at) else 0


def _field(text: str, at: int, form: TextFormat, row: int) -> tuple[Field, int, bool]:
    """A field, where the next one begins, and whether that is in the same row."""
    content, quoted = "", False
    if form.quote and text.startswith(form.quote, at):
        quoted = True
        content, at = _quoted(text, at + 1, form, row)
    while True:
        if at == len(text):
            return Field(content, quoted), at, False
        if text[at] == form.column_separator:
            return Field(content, quoted), at + 1, True
        if length := _end_of_row(text, at, form):
            return Field(content, quoted), at + length, False
        if quoted:
            raise Wrong(row)
        content += text[at]
        at += 1


def _quoted(text: str, at: int, form: TextFormat, row: int) -> tuple[str, int]:
    content = ""
    while at < len(text):
        following = text[at + 1 : at + 2]
        if (form.escape and text[at] == form.escape and following in {form.escape, form.quote}) or (
            text[at] == form.quote and following == form.quote
        ):
            content, at = content + following, at + 2
        elif text[at] == form.quote:
            return content, at + 1
        else:
            content, at = content + text[at], at + 1
    raise Wrong(row)
