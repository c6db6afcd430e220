"""Rules on what `_metadata.json` says of delimited text (section 9 of the specification)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mirrorlake.landing.text.format import (
    COLUMN_SEPARATORS,
    DECIMAL,
    ESCAPES,
    QUOTES,
    RESERVED,
    ROW_SEPARATORS,
    TYPE_NAMES,
)
from mirrorlake.landing.text.members import (
    CSV,
    DELIMITED,
    PARQUET,
    PROPERTIES,
    PROPERTY_MEMBERS,
    is_text_codec,
)
from mirrorlake.lint.finding import Report, Rule, Severity, listed, shown
from mirrorlake.lint.json_members import Record, written
from mirrorlake.lint.rules import columns as column_rules

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE


def _choice(clause: str, member: str, known: Sequence[str], what: str) -> Rule:
    told = ", ".join(written(text) for text in known)
    return Rule(
        clause,
        f"{member}-unknown",
        f"{member} has a value that is not supported",
        ERROR,
        told,
        f"`{member}` {what}. Its values are {told}; without the member, the first is used.",
        f"Write the files with one of them, and set `{member}` to it.",
        f'{{"FileFormatTypeProperties": {{"{member}": "~"}}}}',
    )


HEADER = Rule(
    "LZ-161",
    "no-header",
    "FirstRowAsHeader is not true",
    ERROR,
    "true",
    "The member must be true for delimited text: columns are matched by the names in the first "
    "row.",
    "Write the header in the first row of every file, and set the member to `true`.",
    '{"FileFormatTypeProperties": {"FirstRowAsHeader": false}}',
    also=("LZ-159", "LZ-198"),
)
CHOICES = {
    "RowSeparator": _choice("LZ-162", "RowSeparator", ROW_SEPARATORS, "separates rows"),
    "ColumnSeparator": _choice("LZ-163", "ColumnSeparator", COLUMN_SEPARATORS, "separates columns"),
    "QuoteCharacter": _choice("LZ-164", "QuoteCharacter", QUOTES, "quotes values with delimiters"),
    "EscapeCharacter": _choice(
        "LZ-165", "EscapeCharacter", ESCAPES, "escapes quotes in quoted values"
    ),
}
_KNOWN_CHOICES = {
    "RowSeparator": ROW_SEPARATORS,
    "ColumnSeparator": COLUMN_SEPARATORS,
    "QuoteCharacter": QUOTES,
    "EscapeCharacter": ESCAPES,
}
NULL_TEXT = Rule(
    "LZ-166",
    "null-value-no-text",
    "NullValue is not a string",
    ERROR,
    'a string, such as "" or "N/A"',
    "`NullValue` is the text that stands for NULL in the files.",
    "Write the value in quotes.",
    '{"FileFormatTypeProperties": {"NullValue": 0}}',
)
ENCODING = Rule(
    "LZ-167",
    "encoding-unknown",
    "Encoding is not the name of an encoding",
    ERROR,
    "UTF-8, utf-16, windows-1252, ascii or another one that is known",
    "Without it the bytes of the files cannot be read as text.",
    "Set the encoding of the files; without the member it is UTF-8.",
    '{"FileFormatTypeProperties": {"Encoding": "unicode"}}',
)
FORMAT = Rule(
    "LZ-169",
    "format-unknown",
    "FileFormat is not a known format",
    ERROR,
    f"{CSV} or {DELIMITED}",
    f"`FileFormat` is `{CSV}` (the default) or `{DELIMITED}`.",
    f"Write `{CSV}` for .csv files and `{DELIMITED}` for others.",
    '{"FileFormat": "text"}',
)
FORMAT_OF_EXTENSION = Rule(
    "LZ-169",
    "format-of-extension",
    "FileFormat is CSV, but the files have another extension",
    WARNING,
    f"{DELIMITED}, if FileExtension is not csv",
    f"It must be `{DELIMITED}` for formats other than CSV. Our engine uses the settings, not "
    "this name.",
    f'Write `"FileFormat": "{DELIMITED}"`.',
    '{"FileFormat": "CSV", "FileExtension": "tsv"}',
    strict=ERROR,
)
NO_EXTENSION = Rule(
    "LZ-170",
    "extension-absent",
    "FileExtension is missing or not an extension",
    ERROR,
    "an extension such as csv, tsv or psv",
    f"`FileExtension` is the extension of the text files; it is required with `{DELIMITED}`.",
    "Add the member.",
    '{"FileFormat": "DelimitedText"}',
    also=("LZ-160",),
)
NO_OBJECT = Rule(
    "LZ-171",
    "properties-no-object",
    f"{PROPERTIES} is not an object",
    ERROR,
    f"an object with {', '.join(PROPERTY_MEMBERS)}",
    f"`{PROPERTIES}` contains the settings of delimited text.",
    "Write an object.",
    '{"FileFormatTypeProperties": ","}',
)
UNKNOWN_PROPERTY = Rule(
    "LZ-171",
    "unknown-property",
    f"{PROPERTIES} has an unknown member",
    NOTE,
    ", ".join(PROPERTY_MEMBERS),
    "Unknown members are ignored. A mistyped one is ignored as well, so its default is used.",
    "Correct the name, or remove the member.",
    '{"FileFormatTypeProperties": {"Separator": ";"}}',
)
SCHEMA_SHAPE = Rule(
    "LZ-172",
    "schema-definition",
    "SchemaDefinition does not list columns",
    ERROR,
    '{"Columns": [{"Name": …, "DataType": …, "IsNullable": …}]}',
    "`SchemaDefinition.Columns` is an array of objects with `Name`, `DataType` and optionally "
    "`IsNullable`, each with a different name.",
    "Write it in this form.",
    '{"SchemaDefinition": {"Columns": [{"Name": "id"}]}}',
    also=("LZ-168",),
)
ITIME = Rule(
    "LZ-183",
    "time-as-text",
    "An ITime column is stored as text",
    NOTE,
    "DateTime or String, if the format matters",
    "Official pages disagree on `ITime`: one describes a full date and time, another a time of "
    "day. Both are read; Delta has no type for it, so it is stored as a `string` in ISO format.",
    "Declare `DateTime` for instants and `String` for times of day.",
    '{"Name": "opens", "DataType": "ITime"}',
    also=("LZ-182",),
)
DECIMAL_TYPE = Rule(
    "LZ-187",
    "decimal-declared",
    "A column is declared as Decimal",
    WARNING,
    "a DataType of the v2 page",
    "`Decimal` is not listed. Our engine reads it, with `Precision` and `Scale`; it is not "
    "documented that the original does.",
    "Declare `Double`, or `String` if digits must be exact.",
    '{"Name": "amount", "DataType": "Decimal", "Precision": 10, "Scale": 2}',
    strict=ERROR,
)
UNKNOWN_TYPE = Rule(
    "LZ-188",
    "type-unknown",
    "A column is declared with an unknown DataType",
    ERROR,
    ", ".join(TYPE_NAMES.values()),
    "The type of the column cannot be guessed; the table stops.",
    "Declare one of the listed types.",
    '{"Name": "id", "DataType": "Integer"}',
    also=("LZ-175", "LZ-184"),
)
SEPARATOR = Rule(
    "LZ-190",
    "separator-of-extension",
    "The separator does not match the extension",
    NOTE,
    "tab for tsv, | for psv",
    "The separator is defined by the settings, not by the extension; without `ColumnSeparator` "
    "it is a comma, even for `.tsv`.",
    "Declare the `ColumnSeparator` that the files use.",
    '{"FileFormat": "DelimitedText", "FileExtension": "tsv"}',
)
TOP_LEVEL = Rule(
    "LZ-191",
    "property-at-top",
    f"A member of {PROPERTIES} is at the top level",
    WARNING,
    f"the member inside {PROPERTIES}",
    "It is read as if it were inside; a value inside takes precedence. The original may ignore "
    "it and use its default.",
    f"Move it into `{PROPERTIES}`.",
    '{"FirstRowAsHeader": true}',
    also=("LZ-171", "LZ-335"),
)
NULLABILITY = Rule(
    "LZ-206",
    "nullability-absent",
    "A declared column has no IsNullable",
    None,
    "IsNullable for every column",
    "The original was observed to treat a missing `IsNullable` as not nullable, also for text: "
    "an empty value then stops the table.",
    'Write `"IsNullable": true` or `false` for every column.',
    '{"Name": "name", "DataType": "String"}',
    strict=WARNING,
)

RULES = (
    HEADER, *CHOICES.values(), NULL_TEXT, ENCODING, FORMAT, FORMAT_OF_EXTENSION, NO_EXTENSION,
    NO_OBJECT, UNKNOWN_PROPERTY, SCHEMA_SHAPE, ITIME, DECIMAL_TYPE, UNKNOWN_TYPE, SEPARATOR,
    TOP_LEVEL, NULLABILITY,
)  # fmt: skip

_SUGGESTED = {"tsv": "\t", "tab": "\t", "psv": "|"}


def check(record: Record, report: Report) -> None:
    """The members for delimited text, if there are any."""
    _format(record, report)
    properties = record.inside(PROPERTIES)
    if PROPERTIES in record and not isinstance(record.value(PROPERTIES), dict):
        report.add(NO_OBJECT, record.at(PROPERTIES), shown(written(record.value(PROPERTIES))))
    known = {name.lower() for name in PROPERTY_MEMBERS}
    if unknown := [m.name for name, m in properties.members.items() if name not in known]:
        report.add(UNKNOWN_PROPERTY, properties.at(unknown[0]), listed(unknown))
    for name in PROPERTY_MEMBERS:
        if name in record:
            report.add(TOP_LEVEL, record.at(name), record.spelt(name))
        holder = properties if name in properties else record
        if name in holder:
            _property(holder, name, report)
    _schema(record, report)


def is_declared(record: Record) -> bool:
    """Whether there is a schema, of any form; one without `Columns` is none (LZ-192)."""
    definition = record.value("SchemaDefinition")
    if isinstance(definition, dict):
        return "Columns" in record.inside("SchemaDefinition")
    return definition is not None


def _format(record: Record, report: Report) -> None:
    kind, extension = record.value("FileFormat"), record.value("FileExtension")
    known = {name.lower() for name in (CSV, DELIMITED, PARQUET)}
    told = str(kind).lower()
    if kind is not None and told not in known:
        report.add(FORMAT, record.at("FileFormat"), shown(written(kind)))
    plain = extension.lower().removeprefix(".") if isinstance(extension, str) else None
    if extension is None and told == DELIMITED.lower():
        report.add(NO_EXTENSION, record.at("FileFormat"), "no FileExtension")
    elif extension is not None and not (plain and plain.replace(".", "").isalnum()):
        report.add(NO_EXTENSION, record.at("FileExtension"), shown(written(extension)))
    elif plain:
        if plain != "csv" and told in {CSV.lower(), "none"}:
            report.add(FORMAT_OF_EXTENSION, record.at("FileExtension"), shown(plain))
        separator = record.inside(PROPERTIES).value("ColumnSeparator")
        separator = separator or record.value("ColumnSeparator") or ","
        if _SUGGESTED.get(plain, separator) != separator:
            report.add(
                SEPARATOR, record.at("FileExtension"), f"{shown(plain)} with {written(separator)}"
            )


def _property(holder: Record, name: str, report: Report) -> None:
    value, rule = holder.value(name), _broken(name, holder.value(name))
    if rule:
        report.add(rule, holder.at(name), shown(written(value)))


def _broken(name: str, value: Any) -> Rule | None:
    if name == "FirstRowAsHeader":
        return None if str(value).lower() == "true" else HEADER
    if name in CHOICES:
        return None if value in _KNOWN_CHOICES[name] else CHOICES[name]
    if name == "NullValue":
        return None if isinstance(value, str) else NULL_TEXT
    return None if isinstance(value, str) and is_text_codec(value) else ENCODING


def _schema(record: Record, report: Report) -> None:
    if not is_declared(record):
        return
    definition = record.inside("SchemaDefinition")
    columns = definition.value("Columns")
    if not isinstance(columns, list):
        found = shown(written(record.value("SchemaDefinition")))
        report.add(SCHEMA_SHAPE, record.at("SchemaDefinition"), found)
        return
    keys = record.value("keyColumns")
    key = {str(name).casefold() for name in keys} if isinstance(keys, list) else set()
    names: list[str] = []
    unsaid: list[str] = []
    for value, column in definition.elements("Columns"):
        name, kind = column.value("Name"), column.value("DataType")
        if not (isinstance(name, str) and name) or kind is None:
            report.add(SCHEMA_SHAPE, column.here(), shown(written(value)))
            continue
        _declared(name, kind, column, report)
        if column.value("IsNullable") is None and name.casefold() not in key:
            unsaid.append(name)
        names.append(name)
    if unsaid:
        report.add(NULLABILITY, definition.at("Columns", column=shown(unsaid[0])), listed(unsaid))
    counts = Counter(name.casefold() for name in names)
    if RESERVED.issuperset(counts) and names:
        report.add(SCHEMA_SHAPE, definition.at("Columns"), f"nothing but {listed(names)}")
    if twice := [name for name in names if counts[name.casefold()] > 1]:
        report.add(SCHEMA_SHAPE, definition.at("Columns"), f"{listed(twice)} more than once")
    else:
        column_rules.check_names(names, record.location, report)


def _declared(name: str, kind: Any, column: Record, report: Report) -> None:
    at = column.at("DataType", column=shown(name))
    known = TYPE_NAMES.get(str(kind).lower())
    if known is None:
        report.add(UNKNOWN_TYPE, at, shown(written(kind)))
    elif known == DECIMAL:
        report.add(DECIMAL_TYPE, at, DECIMAL)
    elif known == "ITime":
        report.add(ITIME, at, known)
