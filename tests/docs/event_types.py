"""The page of the types of events: each type of each source, as the code maps it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from mirrorlake.apply.events.columns import delta_type
from mirrorlake.events import types
from mirrorlake.events.avro_schema import event_schema
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.maps import unified_type
from mirrorlake.events.maps.declared import DateProfile
from mirrorlake.events.types import EventColumn, UnifiedKind, UnifiedType

DECLARED: Mapping[EventSource, Sequence[str]] = {
    EventSource.MYSQL: (
        "tinyint", "smallint", "mediumint", "int", "integer", "year", "bool", "boolean",
        "int unsigned", "bigint", "bit", "bigint unsigned", "float", "double", "double precision",
        "real", "decimal(10,2)", "char", "varchar", "tinytext", "text", "mediumtext", "longtext",
        "enum", "set", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "json",
        "time", "date", "datetime", "timestamp", "point",
    ),
    EventSource.ORACLE: (
        "number(18)", "number(19)", "number(10,2)", "number", "varchar2(20)", "varchar(20)", "char",
        "nchar", "nvarchar2", "rowid", "urowid", "raw", "long", "long raw", "binary_float",
        "binary_double", "float", "date", "timestamp", "timestamp with time zone", "clob", "blob",
    ),
    EventSource.POSTGRESQL: (
        "smallint", "int2", "integer", "int", "int4", "smallserial", "serial", "bigint", "int8",
        "bigserial", "oid", "real", "float4", "double precision", "float8", "numeric", "decimal",
        "money", "boolean", "bool", "bytea", "bit", "bit varying", "varbit", "date", "time",
        "time without time zone", "timetz", "time with time zone", "timestamp",
        "timestamp without time zone", "timestamptz", "timestamp with time zone", "interval",
        "json", "jsonb", "integer[]", "text", "varchar(20)", "char(3)", "citext", "uuid", "inet",
        "cidr", "macaddr", "pg_lsn", "xml", "tsvector", "point",
    ),
    EventSource.SQLSERVER: (
        "tinyint", "smallint", "int", "bigint", "bit", "real", "float(24)", "float",
        "decimal(10,2)", "numeric(10,2)", "money", "smallmoney", "date", "time", "datetime",
        "datetime2", "smalldatetime", "datetimeoffset", "binary", "varbinary", "image",
        "timestamp", "rowversion", "char", "varchar", "text", "nchar", "nvarchar", "ntext",
        "uniqueidentifier", "xml",
    ),
    EventSource.SALESFORCE: (
        "checkbox", "boolean", "integer", "int", "number", "double", "currency", "percent", "date",
        "date-time", "datetime", "text", "picklist", "reference", "id",
    ),
    EventSource.MONGODB: ("_id", "data"),
}  # fmt: skip
"""Types as a source prints them; those with numbers stand for others with other numbers."""

_TITLES = {
    EventSource.MYSQL: "MySQL",
    EventSource.ORACLE: "Oracle",
    EventSource.POSTGRESQL: "PostgreSQL",
    EventSource.SQLSERVER: "SQL Server",
    EventSource.SALESFORCE: "Salesforce",
    EventSource.MONGODB: "MongoDB",
}
_NOTES = {
    EventSource.MYSQL: "Binary values are text in lower-case hex. `date`, `datetime` and "
    "`timestamp` are what genuine files have; files in which they are DATE, DATETIME and TIMESTAMP "
    "are read as well. Every other type is UNSUPPORTED.",
    EventSource.ORACLE: "`number(p)` is LONG up to 18 digits, and DECIMAL above; `number(p,s)` is "
    "DECIMAL, and NUMBER beyond 76 digits. Every other type is UNSUPPORTED.",
    EventSource.POSTGRESQL: "A domain is of the type that it is based on, an array an array of "
    "the type of its elements; arrays of `json` and `jsonb` are JSON. Every other type is STRING, "
    "in the text form of the database. Files with DECIMAL(p,s) for `numeric(p,s)` are read as "
    "well.",
    EventSource.SQLSERVER: "`float(n)` is FLOAT up to 24. Every other type is STRING.",
    EventSource.SALESFORCE: "Every other type is STRING.",
    EventSource.MONGODB: "A document has two columns; both are in extended JSON, `_id` as text.",
}
_JSON = {
    UnifiedKind.BOOLEAN: "`true`, `false`",
    UnifiedKind.BYTES: "base64",
    UnifiedKind.DECIMAL: "number",
    UnifiedKind.DOUBLE: 'number; `"NaN"`, `"Infinity"` as text',
    UnifiedKind.FLOAT: 'number; `"NaN"`, `"Infinity"` as text',
    UnifiedKind.GEOMETRY: "object of `value`, `srid`, `type`",
    UnifiedKind.INTEGER: "number",
    UnifiedKind.JSON: "nested",
    UnifiedKind.LONG: "number",
    UnifiedKind.NUMBER: "text with all digits",
    UnifiedKind.STRING: "text",
    UnifiedKind.TIME_INTERVAL: "number of microseconds",
    UnifiedKind.UNSUPPORTED: "`null`",
    UnifiedKind.VARCHAR: "text",
    UnifiedKind.ARRAY: "`nestedArray`, `elementValue`",
}
_EXAMPLES = {
    UnifiedKind.DECIMAL: types.decimal(10, 2),
    UnifiedKind.VARCHAR: types.varchar(20),
    UnifiedKind.ARRAY: types.array(types.INTEGER),
}


def page() -> str:
    lines = [
        "# Types of events",
        "",
        "What the types of each source are in [event files](../how-to/write-events.md), and which",
        "column a [table of events](../how-to/tables-from-events.md) has for them. Numbers in",
        "parentheses stand for others.",
    ]
    for source, declared in DECLARED.items():
        lines += ["", f"## {_TITLES[source]}", "", *_types(source, declared), "", _NOTES[source]]
    lines += ["", "## Unified types", "", "| Unified type | Avro | JSON | Column |"]
    lines += ["| --- | --- | --- | --- |", *map(_unified, UnifiedKind)]
    lines += [
        "",
        "Every column of an Avro file is a union of `null` and its type. The column of a DECIMAL",
        "of more than 38 digits is a `string`.",
    ]
    return "\n".join(lines) + "\n"


def _types(source: EventSource, declared: Sequence[str]) -> Iterator[str]:
    found: dict[UnifiedType, list[str]] = {}
    for one in declared:
        found.setdefault(unified_type(source, one, DateProfile.COMPAT), []).append(one)
    yield "| Source | Unified type | Column |"
    yield "| --- | --- | --- |"
    for unified, names in found.items():
        yield f"| {', '.join(f'`{one}`' for one in names)} | {unified} | {_column(unified)} |"


def _unified(kind: UnifiedKind) -> str:
    unified = _EXAMPLES.get(kind) or UnifiedType(kind)
    fields = event_schema("o", EventSource.MYSQL, [EventColumn("c", unified)])["fields"]
    (column,) = fields[-1]["type"]["fields"]
    avro = column["type"][-1] if isinstance(column["type"], list) else column["type"]
    return f"| {unified} | {_avro(avro)} | {_JSON.get(kind, 'ISO 8601')} | {_column(unified)} |"


def _avro(kind: object) -> str:
    """A type of Avro; of a record, its fields."""
    if not isinstance(kind, dict):
        return f"`{kind}`"
    if kind.get("type") != "record":
        return f"`{json.dumps(kind)}`"
    names = ", ".join(field["name"] for field in kind["fields"])
    return f"record `{kind['name'].replace('_c', '_<column>')}` of {names}"


def _column(unified: UnifiedType) -> str:
    found = delta_type(unified)
    return f"`{found}`" if found else "none"
