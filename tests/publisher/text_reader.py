"""Delimited text by section 9 of the specification, one character at a time: slow and plain.

It shares no code with what writes the text.
"""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

Field = tuple[str, bool]
"""The text of a field, and whether it was quoted."""


@dataclass
class Form:
    """What `_metadata.json` says of the text of a table."""

    row: str
    column: str
    quote: str
    escape: str
    null: str | None
    encoding: str
    types: dict[str, str]

    @classmethod
    def of(cls, metadata: dict[str, Any]) -> Form:
        properties = metadata["FileFormatTypeProperties"]
        assert properties["FirstRowAsHeader"] is True
        return cls(
            row=properties["RowSeparator"],
            column=properties["ColumnSeparator"],
            quote=properties["QuoteCharacter"],
            escape=properties["EscapeCharacter"],
            null=properties.get("NullValue"),
            encoding=properties["Encoding"],
            types={c["Name"]: c["DataType"] for c in metadata["SchemaDefinition"]["Columns"]},
        )


def rows_of(content: bytes, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a file, typed as declared; the marker as text."""
    form = Form.of(metadata)
    header, *lines = _records(unpacked(content).decode(form.encoding), form)
    names = [text for text, _quoted in header]
    assert all(len(line) == len(names) for line in lines)
    return [
        {name: _value(field, form, name) for name, field in zip(names, line, strict=True)}
        for line in lines
    ]


def unpacked(content: bytes) -> bytes:
    """Told by the leading bytes (LZ-209)."""
    if content.startswith(b"\x1f\x8b"):
        return gzip.decompress(content)
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        packed = pa.CompressedInputStream(pa.BufferReader(content), "zstd")
        unpacked: bytes = packed.read()
        return unpacked
    return content


def _records(text: str, form: Form) -> list[list[Field]]:
    assert text.endswith(form.row)
    records: list[list[Field]] = []
    record: list[Field] = []
    at = 0
    while at < len(text):
        field, at = _field(text, at, form)
        record.append(field)
        if text.startswith(form.row, at):
            records.append(record)
            record, at = [], at + len(form.row)
        else:
            assert text.startswith(form.column, at)
            at += len(form.column)
    assert not record
    return records


def _field(text: str, at: int, form: Form) -> tuple[Field, int]:
    if not form.quote or not text.startswith(form.quote, at):
        start = at
        while not (text.startswith(form.row, at) or text.startswith(form.column, at)):
            at += 1
        return (text[start:at], False), at
    value, at = "", at + 1
    while True:
        following = text[at + 1 : at + 2]
        if form.escape and text[at] == form.escape and following in {form.quote, form.escape}:
            value, at = value + following, at + 2
        elif text[at] == form.quote and following == form.quote:
            value, at = value + form.quote, at + 2
        elif text[at] == form.quote:
            return (value, True), at + 1
        else:
            value, at = value + text[at], at + 1


def _value(field: Field, form: Form, name: str) -> Any:
    text, quoted = field
    kind = form.types.get(name, "Marker")
    if form.null:
        if text == form.null:
            return None
        if not text:
            return "" if kind == "String" else None
    elif not text:
        return "" if quoted and kind == "String" else None
    return _READ[kind](text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:]) if text.startswith("0x") else base64.b64decode(text)


_READ: dict[str, Any] = {
    "Marker": str,
    "String": str,
    "Boolean": {"true": True, "false": False}.__getitem__,
    "Int16": int,
    "Int32": int,
    "Int64": int,
    "Single": float,
    "Double": float,
    "IDate": date.fromisoformat,
    "DateTime": lambda text: datetime.fromisoformat(text).replace(tzinfo=UTC),
    "ByteArray": _bytes,
}
