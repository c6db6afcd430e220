"""Types of MySQL (ST-136 to ST-144), and its dates (ST-146)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.events import types
from mirrorlake.events.maps.declared import DateProfile, DeclaredType
from mirrorlake.events.rows import payload_type
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
_ZERO_DATE = r"^[0-9]{4}-(00-[0-9]{2}|[0-9]{2}-00)"
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


def mysql_dates(texts: pa.Array, kind: UnifiedType) -> tuple[pa.Array, int]:
    """The values of a DATE, DATETIME or TIMESTAMP, of the `payload_type` of its unified type, and
    how many of them are unsupported: zero dates are null, also `2024-00-00` and `2024-05-00`, which
    no calendar has either (ST-146).

    texts: as MySQL prints them; a TIMESTAMP in UTC. Raises pa.ArrowInvalid.
    """
    is_zero = pc.match_substring_regex(texts, _ZERO_DATE)
    dates = pc.if_else(is_zero, pa.scalar(None, texts.type), texts)
    return dates.cast(pa.timestamp("us")).cast(payload_type(kind)), pc.sum(is_zero).as_py() or 0
