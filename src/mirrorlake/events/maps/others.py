"""Types of SQL Server, Salesforce and MongoDB (ST-158 to ST-160). For the first two, no genuine
event was observed that maps differently; MongoDB has no column types."""

from __future__ import annotations

from mirrorlake.events import types
from mirrorlake.events.maps.declared import DateProfile, DeclaredType
from mirrorlake.events.types import UnifiedType

_SQLSERVER = {
    **dict.fromkeys(("tinyint", "smallint", "int"), types.INTEGER),
    "bigint": types.LONG,
    "bit": types.BOOLEAN,
    "real": types.FLOAT,
    "float": types.DOUBLE,
    "money": types.decimal(19, 4),
    "smallmoney": types.decimal(10, 4),
    "date": types.DATE,
    "time": types.TIME,
    **dict.fromkeys(("datetime", "datetime2", "smalldatetime"), types.DATETIME),
    "datetimeoffset": types.TIMESTAMP_WITH_TIME_ZONE,
    **dict.fromkeys(("binary", "varbinary", "image", "timestamp", "rowversion"), types.BYTES),
}
_FLOAT_DIGITS = 24  # FLOAT(n) up to this is REAL
_SALESFORCE = {
    **dict.fromkeys(("boolean", "checkbox"), types.BOOLEAN),
    **dict.fromkeys(("int", "integer"), types.INTEGER),
    **dict.fromkeys(("double", "number", "currency", "percent"), types.DOUBLE),
    "date": types.DATE,
    **dict.fromkeys(("datetime", "date-time"), types.TIMESTAMP),
}
_MONGODB = {"_id": types.STRING, "data": types.JSON}


def sqlserver_type(declared: str, _dates: DateProfile) -> UnifiedType:
    parsed = DeclaredType.parse(declared)
    if parsed.name in {"decimal", "numeric"}:
        precision, scale = (*parsed.numbers, *(18, 0)[len(parsed.numbers) :])[:2]
        return types.decimal(precision, scale)
    if parsed.name == "float" and parsed.numbers and parsed.numbers[0] <= _FLOAT_DIGITS:
        return types.FLOAT
    return _SQLSERVER.get(parsed.name, types.STRING)


def salesforce_type(declared: str, _dates: DateProfile) -> UnifiedType:
    """The unified type of a Salesforce field, from its discovered type."""
    return _SALESFORCE.get(DeclaredType.parse(declared).name, types.STRING)


def mongodb_type(declared: str, _dates: DateProfile) -> UnifiedType:
    """The unified type of one of the two columns of a document, `_id` and `data` (ST-160)."""
    return _MONGODB.get(declared, types.UNSUPPORTED)
