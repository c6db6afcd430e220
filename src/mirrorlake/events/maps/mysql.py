"""Types of MySQL (ST-136 to ST-144)."""

from __future__ import annotations

from mirrorlake.events import types
from mirrorlake.events.maps.declared import DateProfile, DeclaredType
from mirrorlake.events.types import UnifiedType

_TYPES = {
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "integer", "year", "bool", "boolean"),
        types.INTEGER,
    ),
    **dict.fromkeys(("bigint", "bit"), types.LONG),
    "float": types.FLOAT,
    **dict.fromkeys(("double", "double precision", "real"), types.DOUBLE),
    **dict.fromkeys(
        ("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set"),
        types.STRING,
    ),
    # Lower-case hex.
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), types.STRING
    ),
    "json": types.JSON,
    "time": types.TIME_INTERVAL,
}
_DATES = {"date": types.DATE, "datetime": types.DATETIME, "timestamp": types.TIMESTAMP}


def mysql_type(declared: str, dates: DateProfile) -> UnifiedType:
    parsed = DeclaredType.parse(declared)
    name = parsed.without("unsigned", "signed", "zerofill")
    is_unsigned = not {"unsigned", "zerofill"}.isdisjoint(parsed.name.split())
    if name in {"decimal", "numeric", "dec", "fixed"}:
        precision, scale = (*parsed.numbers, *(10, 0)[len(parsed.numbers) :])[:2]
        return types.decimal(precision, scale)
    if name in _DATES:
        return types.TIMESTAMP if dates is DateProfile.COMPAT else _DATES[name]
    if is_unsigned and name in {"int", "integer"}:
        return types.LONG
    if is_unsigned and name == "bigint":
        return types.NUMBER
    return _TYPES.get(name, types.UNSUPPORTED)
