"""Types of PostgreSQL (ST-134, ST-151 to ST-156)."""

from __future__ import annotations

import re

from mirrorlake.events import types
from mirrorlake.events.maps.declared import DateProfile, DeclaredType
from mirrorlake.events.types import UnifiedType

_DOMAIN = re.compile(r".+? \(([A-Za-z_].*)\)")
_TYPES = {
    **dict.fromkeys(
        ("smallint", "int2", "integer", "int", "int4", "smallserial", "serial"), types.INTEGER
    ),
    **dict.fromkeys(("bigint", "int8", "bigserial", "oid"), types.LONG),
    **dict.fromkeys(("real", "float4"), types.FLOAT),
    **dict.fromkeys(("double precision", "float8"), types.DOUBLE),
    **dict.fromkeys(("numeric", "decimal", "money"), types.NUMBER),
    **dict.fromkeys(("boolean", "bool"), types.BOOLEAN),
    **dict.fromkeys(("bytea", "bit", "bit varying", "varbit"), types.BYTES),
    "date": types.DATE,
    **dict.fromkeys(("time", "time without time zone"), types.TIME),
    **dict.fromkeys(("timetz", "time with time zone"), types.TIME_WITH_TIME_ZONE),
    **dict.fromkeys(("timestamp", "timestamp without time zone"), types.TIMESTAMP),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), types.TIMESTAMP_WITH_TIME_ZONE),
    "interval": types.INTERVAL,
    **dict.fromkeys(("json", "jsonb"), types.JSON),
}


def postgresql_type(declared: str, dates: DateProfile) -> UnifiedType:
    """The unified type of a PostgreSQL column; STRING for every type without a mapping (ST-156).

    A domain is printed as `name (base)`, an array as `element[]`.
    """
    if declared.endswith("[]"):
        return types.array(postgresql_type(declared.removesuffix("[]"), dates))
    if domain := _DOMAIN.fullmatch(declared):
        return postgresql_type(domain[1], dates)
    return _TYPES.get(DeclaredType.parse(declared).name, types.STRING)
