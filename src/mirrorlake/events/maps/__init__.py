"""Maps the types of the sources to unified types (ST-136 to ST-161)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mirrorlake.events.envelope import EventSource
from mirrorlake.events.maps.declared import DateProfile
from mirrorlake.events.maps.mysql import mysql_type
from mirrorlake.events.maps.oracle import oracle_type
from mirrorlake.events.maps.others import mongodb_type, salesforce_type, sqlserver_type
from mirrorlake.events.maps.postgresql import postgresql_type
from mirrorlake.events.types import UnifiedType

_MAPS: Mapping[EventSource, Callable[[str, DateProfile], UnifiedType]] = MappingProxyType(
    {
        EventSource.MYSQL: mysql_type,
        EventSource.ORACLE: oracle_type,
        EventSource.POSTGRESQL: postgresql_type,
        EventSource.SQLSERVER: sqlserver_type,
        EventSource.SALESFORCE: salesforce_type,
        EventSource.MONGODB: mongodb_type,
    }
)


def unified_type(
    source: EventSource, declared: str, dates: DateProfile = DateProfile.COMPAT
) -> UnifiedType:
    """The unified type of a column, from its type as the source prints it: `decimal(10,2)`, `bigint
    unsigned`, `int4[]`. UNSUPPORTED for an unknown type (ST-161).

    dates: how the dates of MySQL are written (ST-144).
    """
    return _MAPS[source](declared, dates)
