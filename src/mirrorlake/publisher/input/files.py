"""Files of rows: CSV, JSON Lines, Parquet and Excel.

They are read in blocks while they are published. Types that the file does not define are taken from
the table, or else inferred from its first rows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj
from pyarrow import compute

from mirrorlake.errors import BadFile, UsageError
from mirrorlake.landing.parquet import bounded
from mirrorlake.model.arrow import arrow_type
from mirrorlake.model.types import TIMESTAMP, DataType

BLOCK = 16 << 20
"""Size of a block of a text file in bytes; types are inferred from the first block."""


class FileFormat(StrEnum):
    """The type of a file."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    EXCEL = "excel"


_FORMS = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".psv": FileFormat.CSV,
    ".txt": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
    ".parquet": FileFormat.PARQUET,
    ".xlsx": FileFormat.EXCEL,
    ".xlsm": FileFormat.EXCEL,
}
_SEPARATORS = {".tsv": "\t", ".psv": "|"}
_LOSSY = {"int64": r"^\s*[+-]?0[0-9]", "double": r"^\s*[+-]?[0-9]{16,}\s*$|^\s*[+-]?0[0-9]"}
"""For each type that Arrow infers for a text column, a pattern of texts that are not numbers."""
_PACKED = {".gz", ".zst", ".bz2"}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How a file is read.

    types: of columns, by name; separator: None for the one of the extension; null: the text that is
    NULL in addition to an empty field; sheet: of an Excel file, None for the first.
    """

    types: Mapping[str, DataType] = field(default_factory=dict)
    separator: str | None = None
    encoding: str = "utf-8"
    null: str | None = None
    sheet: str | None = None


def rows_of(path: Path, reading: InputOptions) -> Any:
    """The rows of a file, in a form for `Publisher`; they are read while they are published.

    Raises UsageError if the file does not exist or is of an unknown type; while it is read,
    BadFile.
    """
    form = form_of(path)
    if not path.is_file():
        raise UsageError("there is no such file", where=str(path), hint="Name files to publish.")
    read: dict[FileFormat, Callable[[Path, InputOptions], Iterator[Any]]] = {
        FileFormat.CSV: _csv,
        FileFormat.JSON: _json,
        FileFormat.PARQUET: _parquet,
        FileFormat.EXCEL: _excel,
    }
    return _translated(path, read[form](path, reading))


def form_of(path: Path) -> FileFormat:
    """The type of a file by its extension. Raises UsageError."""
    suffix = _suffix(path)
    if suffix not in _FORMS:
        raise UsageError(
            "the extension does not identify the type of the file",
            where=str(path),
            hint=f"Known extensions are {', '.join(_FORMS)}; text may be compressed (.gz, .zst).",
        )
    return _FORMS[suffix]


def _suffix(path: Path) -> str:
    name = path.with_suffix("") if path.suffix.lower() in _PACKED else path
    return name.suffix.lower()


def _translated(path: Path, rows: Iterator[Any]) -> Iterator[Any]:
    """Pass rows through, and convert errors to ours."""
    try:
        yield from rows
    except (pa.ArrowException, UnicodeDecodeError, EOFError, KeyError) as error:
        raise BadFile(
            f"the file cannot be read: {error}",
            table=str(path.parent),
            file=path.name,
            hint="Correct the file, or specify how to read it: the type of a column, the "
            "separator, the encoding.",
        ) from error


def _csv(path: Path, reading: InputOptions) -> Iterator[pa.Table]:
    """An empty field is NULL, an empty quoted field is the empty text.

    Digits that would be lost in a number are read as text: zip codes, account numbers.
    """
    hints = _hints(reading.types)
    with _open_csv(path, reading, hints) as batches:
        for seen in batches.schema:
            # Bytes that are not valid in the encoding are read as binary.
            if pa.types.is_binary(seen.type) and seen.name not in reading.types:
                raise pa.ArrowInvalid(f"column {seen.name} is not {reading.encoding}")
        numbers = {
            seen.name: seen.type
            for seen in batches.schema
            if seen.name not in reading.types and str(seen.type) in _LOSSY
        }
    with _open_csv(path, reading, hints | dict.fromkeys(numbers, pa.string())) as batches:
        first = True
        for batch in batches:
            table = pa.Table.from_batches([batch])
            if first:
                numbers = {n: kind for n, kind in numbers.items() if not _loses(table[n], kind)}
            first = False
            yield _numbered(table, numbers)
        if first:
            yield _numbered(batches.schema.empty_table(), numbers)


def _open_csv(
    path: Path, reading: InputOptions, types: Mapping[str, pa.DataType]
) -> pc.CSVStreamingReader:
    separator = reading.separator or _SEPARATORS.get(_suffix(path), ",")
    return pc.open_csv(
        path,
        pc.ReadOptions(encoding=reading.encoding, block_size=BLOCK),
        pc.ParseOptions(delimiter=separator, newlines_in_values=True),
        pc.ConvertOptions(
            column_types=types,
            null_values=["", *([reading.null] if reading.null else [])],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _loses(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether a value has digits that would be lost in a number of this type."""
    found = compute.match_substring_regex(column, _LOSSY[str(kind)])
    return bool(compute.any(found).as_py())


def _numbered(table: pa.Table, numbers: Mapping[str, pa.DataType]) -> pa.Table:
    """Convert the text of these columns to the number types that were inferred from the first
    block."""
    for name, kind in numbers.items():
        column = table[name]
        if _loses(column, kind):
            raise pa.ArrowInvalid(
                f"column {name} began with plain numbers, but has one with a leading 0 or with "
                "more digits than a number can hold"
            )
        index = table.column_names.index(name)
        trimmed = compute.utf8_trim_whitespace(column)
        table = table.set_column(index, name, trimmed.cast(kind))
    return table


def _json(path: Path, reading: InputOptions) -> Iterator[pa.Table]:
    """One object per line; a missing member is NULL. Lines are read in blocks."""
    known = pa.schema(list(_hints(reading.types).items()))
    with pa.input_stream(path, compression="detect") as stream:
        rest = b""
        while block := stream.read(BLOCK):
            whole, end, rest = (rest + block).rpartition(b"\n")
            if whole:
                yield _lines(whole + end, known)
        if rest.strip():
            yield _lines(rest, known)


def _lines(block: bytes, known: pa.Schema) -> pa.Table:
    try:
        table = _parsed(block, known)
    except pa.ArrowInvalid:
        # An object or a list becomes text only when it is landed (LZ-148).
        table = _parsed(block, pa.schema([f for f in known if not pa.types.is_string(f.type)]))
    # A column that is in no line of the block is absent, not NULL.
    return table.select([n for n in table.column_names if json.dumps(n).encode() in block])


def _parsed(block: bytes, known: pa.Schema) -> pa.Table:
    return pj.read_json(
        io.BytesIO(block),
        pj.ReadOptions(block_size=len(block) + 1),
        pj.ParseOptions(explicit_schema=known if len(known) else None),
    )


def _hints(types: Mapping[str, DataType]) -> dict[str, pa.DataType]:
    """The types for parsing text; types of times are inferred, because they may or may not have
    a zone."""
    return {name: arrow_type(kind) for name, kind in types.items() if kind != TIMESTAMP}


def _parquet(path: Path, _reading: InputOptions) -> Iterator[pa.Table]:
    with path.open("rb") as handle, bounded.opened(handle, path.stat().st_size) as file:
        yield file.schema_arrow.empty_table()
        for batch in bounded.stream(file, handle):
            yield pa.Table.from_batches([batch])


def _excel(path: Path, reading: InputOptions) -> Iterator[dict[str, Any]]:
    """The rows of a sheet below its header, with one row for each row in Excel."""
    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (InvalidFileException, BadZipFile, OSError, ValueError, KeyError) as error:
        raise pa.ArrowInvalid(f"not an Excel file: {error}") from error
    try:
        if reading.sheet is not None and reading.sheet not in book.sheetnames:
            raise pa.ArrowInvalid(
                f"there is no sheet {reading.sheet!r}; the sheets are {book.sheetnames}"
            )
        sheet = book[reading.sheet or book.sheetnames[0]]
        lines = sheet.iter_rows(values_only=True)
        header = [str(name) for name in next(lines, ()) if name is not None]
        if len(set(header)) < len(header) or not header:
            raise pa.ArrowInvalid(f"the first row has an empty or repeated column name: {header}")
        for line in lines:
            values = line[: len(header)]
            if any(value is not None for value in line[len(header) :]):
                raise pa.ArrowInvalid("a row has more cells than the first row")
            if any(value is not None for value in values):
                row = dict.fromkeys(header) | dict(zip(header, values, strict=False))
                yield _typed(row, reading.types)
    finally:
        book.close()


def _typed(row: dict[str, Any], types: Mapping[str, DataType]) -> dict[str, Any]:
    """Numbers in a text column as Excel shows them: 7, not 7.0."""
    for name, value in row.items():
        if name in types and types[name].name == "string" and isinstance(value, int | float):
            row[name] = str(int(value)) if float(value).is_integer() else str(value)
    return row
