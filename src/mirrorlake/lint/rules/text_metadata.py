"""Rules on the members of `_metadata.json` for delimited text (section 9 of the specification)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
from mirrorlake.lint.finding import Report, listed, shown
from mirrorlake.lint.json_members import Record, written
from mirrorlake.lint.rules import columns as column_rules

_CHOICES: Mapping[str, tuple[str, Sequence[str]]] = {
    "RowSeparator": ("LZ-162/RowSeparator-unknown", ROW_SEPARATORS),
    "ColumnSeparator": ("LZ-163/ColumnSeparator-unknown", COLUMN_SEPARATORS),
    "QuoteCharacter": ("LZ-164/QuoteCharacter-unknown", QUOTES),
    "EscapeCharacter": ("LZ-165/EscapeCharacter-unknown", ESCAPES),
}


_SUGGESTED = {"tsv": "\t", "tab": "\t", "psv": "|"}


def check(record: Record, report: Report) -> None:
    """Check the members for delimited text."""
    _format(record, report)
    properties = record.inside(PROPERTIES)
    if PROPERTIES in record and not isinstance(record.get(PROPERTIES), dict):
        record.add_finding("LZ-171/properties-no-object", PROPERTIES, report)
    if unknown := properties.others(PROPERTY_MEMBERS):
        report.add("LZ-171/unknown-property", properties.at(unknown[0]), listed(unknown))
    for name in PROPERTY_MEMBERS:
        if name in record:
            report.add("LZ-191/property-at-top", record.at(name), record.spelt(name))
        holder = properties if name in properties else record
        if name in holder and (broken := _broken(name, holder.get(name))):
            holder.add_finding(broken, name, report)
    _schema(record, report)


def is_declared(record: Record) -> bool:
    """Whether a schema is declared, valid or not; without `Columns` it is not (LZ-192)."""
    definition = record.get("SchemaDefinition")
    if isinstance(definition, dict):
        return "Columns" in record.inside("SchemaDefinition")
    return definition is not None


def _format(record: Record, report: Report) -> None:
    kind, extension = record.get("FileFormat"), record.get("FileExtension")
    known = {name.lower() for name in (CSV, DELIMITED, PARQUET)}
    format_ = str(kind).lower()
    if kind is not None and format_ not in known:
        record.add_finding("LZ-169/format-unknown", "FileFormat", report)
    plain = extension.lower().removeprefix(".") if isinstance(extension, str) else None
    if extension is None and format_ == DELIMITED.lower():
        report.add("LZ-170/extension-absent", record.at("FileFormat"), "no FileExtension")
    elif extension is not None and not (plain and plain.replace(".", "").isalnum()):
        record.add_finding("LZ-170/extension-absent", "FileExtension", report)
    elif plain:
        if plain != "csv" and format_ in {CSV.lower(), "none"}:
            report.add("LZ-169/format-of-extension", record.at("FileExtension"), shown(plain))
        separator = record.inside(PROPERTIES).get("ColumnSeparator")
        separator = separator or record.get("ColumnSeparator") or ","
        if _SUGGESTED.get(plain, separator) != separator:
            report.add(
                "LZ-190/separator-of-extension",
                record.at("FileExtension"),
                f"{shown(plain)} with {written(separator)}",
            )


def _broken(name: str, value: Any) -> str | None:
    if name == "FirstRowAsHeader":
        return None if str(value).lower() == "true" else "LZ-161/no-header"
    if name in _CHOICES:
        key, known = _CHOICES[name]
        return None if value in known else key
    if name == "NullValue":
        return None if isinstance(value, str) else "LZ-166/null-value-no-text"
    return None if isinstance(value, str) and is_text_codec(value) else "LZ-167/encoding-unknown"


def _schema(record: Record, report: Report) -> None:
    if not is_declared(record):
        return
    definition = record.inside("SchemaDefinition")
    columns = definition.get("Columns")
    if not isinstance(columns, list):
        record.add_finding("LZ-172/schema-definition", "SchemaDefinition", report)
        return
    keys = record.get("keyColumns")
    key = {str(name).casefold() for name in keys} if isinstance(keys, list) else set()
    names: list[str] = []
    undeclared: list[str] = []
    for value, column in definition.elements("Columns"):
        name, kind = column.get("Name"), column.get("DataType")
        if not (isinstance(name, str) and name) or kind is None:
            report.add("LZ-172/schema-definition", column.here(), written(value))
            continue
        _declared(name, kind, column, report)
        if column.get("IsNullable") is None and name.casefold() not in key:
            undeclared.append(name)
        names.append(name)
    if undeclared:
        report.add(
            "LZ-206/nullability-absent",
            definition.at("Columns", column=shown(undeclared[0])),
            listed(undeclared),
        )
    counts = Counter(name.casefold() for name in names)
    if RESERVED.issuperset(counts) and names:
        report.add(
            "LZ-172/schema-definition", definition.at("Columns"), f"nothing but {listed(names)}"
        )
    if twice := [name for name in names if counts[name.casefold()] > 1]:
        report.add(
            "LZ-172/schema-definition", definition.at("Columns"), f"{listed(twice)} more than once"
        )
    else:
        column_rules.check_names(names, record.location, report)


def _declared(name: str, kind: Any, column: Record, report: Report) -> None:
    at = column.at("DataType", column=shown(name))
    known = TYPE_NAMES.get(str(kind).lower())
    if known is None:
        report.add("LZ-188/type-unknown", at, written(kind))
    elif known == DECIMAL:
        report.add("LZ-187/decimal-declared", at, DECIMAL)
    elif known == "ITime":
        report.add("LZ-183/time-as-text", at, known)
