"""The members of `_metadata.json` that describe delimited text: reading and writing.

Section 9 of the specification; their meaning is in `format`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mirrorlake.landing.lenient_json import Path
from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    DECIMAL,
    ESCAPES,
    QUOTES,
    RESERVED,
    ROW_SEPARATORS,
    TYPE_NAMES,
    DeclaredColumn,
    TextFormat,
)
from mirrorlake.model.types import MAX_PRECISION

PROPERTIES = "FileFormatTypeProperties"
PROPERTY_MEMBERS = (
    "FirstRowAsHeader",
    "RowSeparator",
    "ColumnSeparator",
    "QuoteCharacter",
    "EscapeCharacter",
    "NullValue",
    "Encoding",
)
MEMBERS = ("SchemaDefinition", "FileFormat", "FileExtension", PROPERTIES, *PROPERTY_MEMBERS)
"""All members that are read at the top level; the last seven by LZ-191."""

CSV, DELIMITED, PARQUET = "CSV", "DelimitedText", "Parquet"
_FORMATS = {name.lower(): name for name in (CSV, DELIMITED, PARQUET)}
_NO_TEXTS = frozenset({"undefined", "idna", "punycode"})
"""Codecs that are not for texts: one always fails, and two are for host names and take hours."""
_EXTENSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.]*")


class WrongMember(ValueError):
    """A member has an invalid value. path: of the member, in its own spelling."""

    def __init__(self, path: Path, value: Any, expected: str) -> None:
        self.path, self.value, self.expected = path, value, expected
        super().__init__(path, value, expected)

    @property
    def member(self) -> str:
        """The path of the member in words, such as `SchemaDefinition.Columns[0].DataType`."""
        parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.path]
        return "".join(parts).removeprefix(".")

    def __str__(self) -> str:
        return f"{self.member} is {_shown(self.value)}, expected {self.expected}"


class Members:
    """The members of an object by name, in any letter case (LZ-050)."""

    def __init__(self, record: Mapping[str, Any], path: Path = ()) -> None:
        self._found = {name.lower(): (name, value) for name, value in record.items()}
        self._path = path

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def get(self, name: str) -> Any:
        """The value; None if the member is missing or null."""
        return self._found.get(name.lower(), (name, None))[1]

    def path(self, name: str) -> Path:
        """The path of a member in the spelling of the file."""
        return (*self._path, self._found.get(name.lower(), (name, None))[0])

    def wrong(self, name: str, expected: str) -> WrongMember:
        return WrongMember(self.path(name), self.get(name), expected)

    def others(self, known: Sequence[str]) -> list[str]:
        """The names of members that are none of the known ones, in the order of the file."""
        expected = {name.lower() for name in known}
        return [name for key, (name, _value) in self._found.items() if key not in expected]

    def text(self, name: str) -> str | None:
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string")
        return value

    def boolean(self, name: str) -> bool | None:
        """True or false, also written as a string (LZ-335)."""
        value = self.get(name)
        if isinstance(value, str) and value.lower() in {"true", "false"}:
            return value.lower() == "true"
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def number(self, name: str, low: int, high: int) -> int | None:
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}")
        return value

    def inner(self, name: str) -> Members:
        """An object; empty if the member is missing."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Members(value or {}, self.path(name))


def decode(top: Members) -> TextFormat | None:
    """The format that the members describe; None if they do not mention text. Raises
    WrongMember."""
    if not any(name in top for name in MEMBERS):
        return None
    kind = top.text("FileFormat")
    if kind is not None and kind.lower() not in _FORMATS:
        raise top.wrong("FileFormat", f"{CSV} or {DELIMITED} (LZ-169)")
    extension = _extension(top)
    if kind is not None and kind.lower() == DELIMITED.lower() and extension is None:
        raise top.wrong("FileExtension", f"one, because FileFormat is {DELIMITED} (LZ-170)")
    inner = top.inner(PROPERTIES)

    def index(name: str) -> Members:  # the inner value takes precedence (LZ-191)
        return inner if name in inner else top

    if index("FirstRowAsHeader").boolean("FirstRowAsHeader") is False:
        raise index("FirstRowAsHeader").wrong("FirstRowAsHeader", "true (LZ-161)")
    defaults = TextFormat()

    def one_of(name: str, known: Sequence[str], default: str) -> str:
        value = index(name).text(name)
        if value is not None and value not in known:
            raise index(name).wrong(name, " or ".join(_shown(text) for text in known))
        return default if value is None else value

    return TextFormat(
        columns=_columns(top),
        extension=extension or defaults.extension,
        row_separator=one_of("RowSeparator", ROW_SEPARATORS, defaults.row_separator),
        column_separator=one_of("ColumnSeparator", COLUMN_SEPARATORS, defaults.column_separator),
        quote=one_of("QuoteCharacter", QUOTES, defaults.quote),
        escape=one_of("EscapeCharacter", ESCAPES, defaults.escape),
        null=index("NullValue").text("NullValue"),
        encoding=_encoding(index("Encoding")) or defaults.encoding,
    )


def encode(text: TextFormat) -> dict[str, Any]:
    """The members that describe a format, all of them, in the spelling of LZ-171."""
    record: dict[str, Any] = {}
    if text.columns:
        record["SchemaDefinition"] = {"Columns": [_entry(column) for column in text.columns]}
    # Values separated by commas are CSV; any other text must be called delimited text (LZ-169).
    is_csv = text.extension == "csv" and text.column_separator == ","
    record["FileFormat"] = CSV if is_csv else DELIMITED
    record["FileExtension"] = text.extension
    properties: dict[str, Any] = {
        "FirstRowAsHeader": text.header,
        "RowSeparator": text.row_separator,
        "ColumnSeparator": text.column_separator,
        "QuoteCharacter": text.quote,
        "EscapeCharacter": text.escape,
        "Encoding": text.encoding,
    }
    if text.null is not None:
        properties["NullValue"] = text.null
    return record | {PROPERTIES: properties}


def _entry(column: DeclaredColumn) -> dict[str, Any]:
    entry: dict[str, Any] = {"Name": column.name, "DataType": column.type}
    if column.nullable is not None:
        entry["IsNullable"] = column.nullable
    if column.type == DECIMAL:
        entry |= {"Precision": column.precision, "Scale": column.scale or 0}
    return entry


def _extension(top: Members) -> str | None:
    """Without the leading dot and in lower case (LZ-189)."""
    found = top.text("FileExtension")
    if found is None:
        return None
    plain = found.removeprefix(".")
    if not _EXTENSION.fullmatch(plain):
        raise top.wrong("FileExtension", "letters and digits, such as csv or tsv (LZ-170)")
    return plain.lower()


def _encoding(members: Members) -> str | None:
    """A name for which Python has a text codec (LZ-167)."""
    name = members.text("Encoding")
    if name is None:
        return None
    if not is_text_codec(name):
        raise members.wrong(
            "Encoding", "a character encoding, such as UTF-8, utf-16 or windows-1252 (LZ-167)"
        )
    return name


def is_text_codec(name: str) -> bool:
    """Whether Python has a codec of this name, and it is one of characters."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError, UnicodeError):
        return False
    # Python also has codecs from bytes to bytes.
    return found.name not in _NO_TEXTS and bool(getattr(found, "_is_text_encoding", True))


def _columns(top: Members) -> tuple[DeclaredColumn, ...] | None:
    """The declared schema; None if no column is declared (LZ-192)."""
    definition = top.inner("SchemaDefinition")
    entries = definition.get("Columns")
    if entries is None:
        return None
    if not isinstance(entries, list):
        raise definition.wrong("Columns", "an array of objects with Name and DataType (LZ-172)")
    path = definition.path("Columns")
    columns = tuple(_column(entry, (*path, index)) for index, entry in enumerate(entries))
    seen: dict[str, str] = {}
    for index, column in enumerate(columns):
        if alike := seen.get(column.name.casefold()):
            raise WrongMember(
                (*path, index, "Name"), column.name, f"a name other than {alike} (LZ-156)"
            )
        seen[column.name.casefold()] = column.name
    if columns and RESERVED.issuperset(seen):
        raise definition.wrong("Columns", "at least one column that is not a marker (LZ-197)")
    return columns or None


def _column(entry: Any, path: Path) -> DeclaredColumn:
    if not isinstance(entry, dict):
        raise WrongMember(path, entry, "an object with Name and DataType (LZ-172)")
    members = Members(entry, path)
    name = members.text("Name")
    if not name:
        raise members.wrong("Name", "the name of a column (LZ-172)")
    kind = members.text("DataType")
    if kind is None or kind.lower() not in TYPE_NAMES:
        raise members.wrong(
            "DataType", f"for column {name} one of {', '.join(TYPE_NAMES.values())} (LZ-188)"
        )
    precision = members.number("Precision", 1, MAX_PRECISION)
    scale = members.number("Scale", 0, precision or MAX_PRECISION)
    is_decimal = TYPE_NAMES[kind.lower()] == DECIMAL
    if is_decimal and precision is None:
        raise members.wrong("Precision", f"one for the {DECIMAL} column {name} (LZ-187)")
    return DeclaredColumn(
        name=name,
        type=TYPE_NAMES[kind.lower()],
        nullable=members.boolean("IsNullable"),
        precision=precision if is_decimal else None,
        scale=(scale or 0) if is_decimal else None,
    )


def _shown(value: Any) -> str:
    """A short form of a value as JSON; a missing value is nothing."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        text = repr(value) if len(value) <= 80 else f"{value[:80]!r}…"
        return text if value else "empty"
    return f"{value!r}"[:80]
