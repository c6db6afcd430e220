"""Delimited text in any format of section 9, one column at a time.

The writer of pyarrow doubles quotes, ends rows with one of two line endings and supports only
UTF-8. The escapes, NULL texts and encodings of the landing zone are made here with its compute
functions.
"""

from __future__ import annotations

import base64
import codecs
import io
from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import BadValue, UsageError
from mirrorlake.landing.text.format import TextFormat
from mirrorlake.model.arrow import contiguous


class TextEncoder:
    """Writes one file: a header, then a line for each row. Every line ends with the separator.

    Text is always quoted, so that an empty text differs from NULL (LZ-203); other values are not.
    Raises BadValue for a value that this format cannot represent.
    """

    def __init__(
        self, sink: BinaryIO, names: Sequence[str], form: TextFormat, codec: str, *, table: str
    ) -> None:
        self._form, self._table, self._rows = form, table, 0
        self._names = list(names)
        self._encode = codecs.getincrementalencoder(form.encoding)()
        plain = codec not in {"gzip", "zstd"}
        self._sink = sink if plain else pa.CompressedOutputStream(pa.PythonFile(sink, "w"), codec)
        self._plain = plain
        self._sink.write(self._encode.encode(_header(names, form)))

    def write(self, rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        fields = [
            self._texts(contiguous(column), name)
            for name, column in zip(self._names, rows.columns, strict=True)
        ]
        lines = pc.binary_join_element_wise(*fields, self._form.column_separator)
        row_list = pa.ListArray.from_arrays([0, len(lines)], lines)
        body = pc.binary_join(row_list, self._form.row_separator)[0].as_py()
        try:
            self._sink.write(self._encode.encode(body + self._form.row_separator))
        except UnicodeEncodeError as error:
            raise self._unknown_character(lines, error) from error
        self._rows += rows.num_rows

    def close(self) -> None:
        self._sink.write(self._encode.encode("", final=True))
        if not self._plain:
            self._sink.close()

    def _unknown_character(self, lines: pa.Array, error: UnicodeEncodeError) -> BadValue:
        character = error.object[error.start]
        row = pc.index(pc.match_substring(lines, character), True).as_py()
        return BadValue(
            f"a character cannot be encoded in {self._form.encoding}",
            table=self._table,
            row=self._rows + row + 1,
            value=character,
            hint="Publish the table with encoding UTF-8.",
        )

    def _texts(self, values: pa.Array, name: str) -> pa.Array:
        kind = values.type
        if pa.types.is_string(kind):
            texts = self._quoted(values, name)
        elif pa.types.is_binary(kind):
            texts = pa.array([None if v is None else _base64(v) for v in values.to_pylist()])
            texts = texts.cast(pa.string())
        elif pa.types.is_floating(kind):
            texts = _numbers(values)
        elif pa.types.is_timestamp(kind):
            texts = values.cast(pa.timestamp("us")).cast(pa.string())  # without a zone it is UTC
        else:
            texts = values.cast(pa.string())
        if self._form.null:
            self._refuse(pc.equal(texts, self._form.null), name, "means NULL in this table")
        return pc.fill_null(texts, self._form.null or "")

    def _quoted(self, values: pa.Array, name: str) -> pa.Array:
        form = self._form
        if self._form.null:
            self._refuse(pc.equal(values, form.null), name, "means NULL in this table")
        if not form.quote:
            for part in {form.column_separator, "\r", "\n"}:
                held = pc.match_substring(values, part)
                self._refuse(held, name, "contains a separator, but quoting is switched off")
            if form.null is None:
                self._refuse(pc.equal(values, ""), name, "is empty, which means NULL here")
            return values
        if form.escape and form.escape != form.quote:
            values = pc.replace_substring(values, form.escape, form.escape * 2)
        escape = form.escape or form.quote
        values = pc.replace_substring(values, form.quote, escape + form.quote)
        return pc.binary_join_element_wise(form.quote, values, form.quote, "")

    def _refuse(self, bad: pa.Array, name: str, why: str) -> None:
        index = pc.index(pc.fill_null(bad, False), True).as_py()
        if index >= 0:
            raise BadValue(
                f"a text {why}",
                table=self._table,
                row=self._rows + index + 1,
                column=name,
                hint="Choose another text format for this table, or publish Parquet.",
            )


def header_of(names: Sequence[str], form: TextFormat) -> bytes:
    """The first line of a file, as bytes."""
    encoder = codecs.getincrementalencoder(form.encoding)()
    return encoder.encode(_header(names, form))


def check_form(form: TextFormat, *, table: str) -> None:
    """Check that a format can be written and read (LZ-161 to LZ-167). Raises UsageError."""
    allowed = (
        ("row_separator", form.row_separator, ("\r\n", "\n", "\r")),
        ("column_separator", form.column_separator, (",", ";", "|", "\t")),
        ("quote", form.quote, ('"', "'", "")),
        ("escape", form.escape, ("\\", "/", '"', "")),
        ("header", form.header, (True,)),
    )
    for name, value, values in allowed:
        if value not in values:
            raise _wrong(table, f"{name} is {value!r}", f"Use one of {values!r}.")
    extension = form.extension
    if not (extension.isascii() and extension.isalnum()) or extension.lower() == "parquet":
        raise _wrong(table, f"extension is {extension!r}", "Use letters and digits, such as csv.")
    if form.null and set(form.null) & {form.column_separator, form.quote, "\r", "\n"}:
        raise _wrong(
            table, "the text for NULL contains a separator or a quote", "Choose another text."
        )
    try:
        codecs.getincrementalencoder(form.encoding)
        io.TextIOWrapper(io.BytesIO(), encoding=form.encoding)
    except LookupError:
        raise _wrong(table, f"encoding {form.encoding!r} is not known", "Use UTF-8.") from None


def _wrong(table: str, what: str, hint: str) -> UsageError:
    return UsageError(what, where=f"text of table {table}", hint=hint)


def _header(names: Sequence[str], form: TextFormat) -> str:
    """The names, quoted if they could be misread."""
    cells = []
    for name in names:
        special = {form.column_separator, form.quote, form.escape, "\r", "\n"} - {""}
        if form.quote and any(part in name for part in special):
            escaped = name
            if form.escape and form.escape != form.quote:
                escaped = escaped.replace(form.escape, form.escape * 2)
            escaped = escaped.replace(form.quote, (form.escape or form.quote) + form.quote)
            cells.append(f"{form.quote}{escaped}{form.quote}")
        else:
            cells.append(name)
    return form.column_separator.join(cells) + form.row_separator


def _base64(value: bytes) -> str:
    # An empty field would be NULL (LZ-203); hexadecimal digits may be empty (LZ-186).
    return base64.b64encode(value).decode() if value else "0x"


def _numbers(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    for found, name in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
        texts = pc.if_else(pc.equal(texts, found), name, texts)
    return texts
