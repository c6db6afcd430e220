"""The text form of arrays in the plainest words: written and read one character at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def write_array(value: list[Any] | str | None, delimiter: str = ",") -> str:
    """What array_out writes for nested lists of texts and None."""
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return "{" + delimiter.join(write_array(each, delimiter) for each in value) + "}"
    special = set('{}"\\ \t\n\r\v\f') | {delimiter}
    if value == "" or value.upper() == "NULL" or special & set(value):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return value


def read_array(text: str) -> list[Any]:
    """Nested lists of texts and None from what array_out wrote; lower bounds are left out."""
    characters = iter(text[text.index("=") + 1 :] if text.startswith("[") else text)
    assert next(characters) == "{"
    value = _list(characters)
    assert next(characters, None) is None
    return value


def _list(characters: Iterator[str]) -> list[Any]:
    """The elements up to the closing brace; the opening one has been read."""
    found: list[Any] = []
    bare = ""
    for character in characters:
        if character == "{":
            found.append(_list(characters))
        elif character == '"':
            found.append(_quoted(characters))
        elif character in ",}":
            if bare:
                found.append(None if bare == "NULL" else bare)
            bare = ""
            if character == "}":
                break
        else:
            bare += character
    return found


def _quoted(characters: Iterator[str]) -> str:
    text = ""
    for character in characters:
        if character == '"':
            break
        text += next(characters) if character == "\\" else character
    return text
