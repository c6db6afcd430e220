"""Types of Oracle (ST-147 to ST-149)."""

from __future__ import annotations

from mirrorlake.events import types
from mirrorlake.events.maps.declared import DateProfile, DeclaredType
from mirrorlake.events.types import UnifiedType

_LONG_DIGITS = 18
_MOST_DIGITS = 38
_TYPES = {
    **dict.fromkeys(
        ("char", "nchar", "nvarchar2", "rowid", "urowid", "raw", "long", "long raw"), types.STRING
    ),
    "binary_float": types.FLOAT,
    **dict.fromkeys(("binary_double", "float"), types.DOUBLE),
    **dict.fromkeys(("date", "timestamp"), types.TIMESTAMP),
    "timestamp with time zone": types.TIMESTAMP_WITH_TIME_ZONE,
}


def oracle_type(declared: str, _dates: DateProfile) -> UnifiedType:
    parsed = DeclaredType.parse(declared)
    if parsed.name == "number":
        return _number(parsed.numbers)
    if parsed.name in {"varchar2", "varchar"}:
        return types.varchar(parsed.numbers[0]) if parsed.numbers else types.STRING
    return _TYPES.get(parsed.name, types.UNSUPPORTED)


def _number(numbers: tuple[int, ...]) -> UnifiedType:
    if not numbers:
        return types.NUMBER
    precision, scale = (*numbers, 0)[:2]
    if scale == 0 and precision <= _LONG_DIGITS:
        return types.LONG
    # A negative scale rounds left of the point; a scale above the precision adds leading zeros.
    digits = max(precision - min(scale, 0), scale)
    return types.decimal(digits, max(scale, 0)) if digits <= 2 * _MOST_DIGITS else types.NUMBER
