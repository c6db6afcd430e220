"""The source-specific metadata of the six sources (ST-045 to ST-095), as tables of fields.

The differences between the sources are here: the fields of `source_metadata`, their values in a
backfill, and the parts of `sort_keys`. `ALIASES` lists field names that were observed elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from mirrorlake.events.envelope import EventSource


class MetadataType(StrEnum):
    """The type of a field of `source_metadata`; the last two are arrays."""

    STRING = "string"
    LONG = "long"
    BOOLEAN = "boolean"
    STRINGS = "strings"
    INTEGERS = "integers"


@dataclass(frozen=True, slots=True)
class MetadataField:
    """A field of `source_metadata`. is_nullable: whether we may write null.

    Consumers accept null in every field (ST-092).
    """

    name: str
    type: MetadataType = MetadataType.STRING
    is_nullable: bool = False


@dataclass(frozen=True, slots=True)
class MetadataSwitches:
    """Choices between two forms of a field.

    long_tx_id: write PostgreSQL's `tx_id` as a long, as in genuine files (ST-069).
    literal_types: write SQL Server's `database` as its numeric id and `schema` as an array of one,
        as documented (ST-075).
    """

    long_tx_id: bool = False
    literal_types: bool = False


AS_CHOSEN = MetadataSwitches()

_LONG, _BOOLEAN, _STRINGS = MetadataType.LONG, MetadataType.BOOLEAN, MetadataType.STRINGS

PRIMARY_KEYS, IS_DELETED, CHANGE_TYPE = "primary_keys", "is_deleted", "change_type"
REPLICATION_INDEX = "replication_index"

FIELDS_OF: Mapping[EventSource, Sequence[MetadataField]] = MappingProxyType(
    {
        EventSource.MYSQL: (
            MetadataField("table"),
            MetadataField("database"),
            MetadataField(PRIMARY_KEYS, _STRINGS),
            MetadataField("log_file"),
            MetadataField("log_position", _LONG),
            MetadataField(CHANGE_TYPE),
            MetadataField(IS_DELETED, _BOOLEAN),
        ),
        EventSource.ORACLE: (
            MetadataField("log_file"),
            MetadataField("scn", _LONG),
            MetadataField("row_id", is_nullable=True),
            MetadataField(IS_DELETED, _BOOLEAN),
            MetadataField("database"),
            MetadataField("schema"),
            MetadataField("table"),
            MetadataField(CHANGE_TYPE),
            MetadataField("tx_id", is_nullable=True),
            MetadataField("rs_id"),
            MetadataField("ssn", _LONG),
            MetadataField(PRIMARY_KEYS, _STRINGS),
        ),
        EventSource.POSTGRESQL: (
            MetadataField("schema"),
            MetadataField("table"),
            MetadataField(IS_DELETED, _BOOLEAN),
            MetadataField(CHANGE_TYPE),
            MetadataField("tx_id", is_nullable=True),
            MetadataField("lsn", is_nullable=True),
            MetadataField(PRIMARY_KEYS, _STRINGS),
        ),
        EventSource.SQLSERVER: (
            MetadataField("table"),
            MetadataField("database"),
            MetadataField("schema"),
            MetadataField(IS_DELETED, _BOOLEAN),
            MetadataField("lsn", is_nullable=True),
            MetadataField("tx_id", is_nullable=True),
            MetadataField("physical_location", MetadataType.INTEGERS, is_nullable=True),
            MetadataField(REPLICATION_INDEX, _STRINGS, is_nullable=True),
            MetadataField(CHANGE_TYPE),
        ),
        EventSource.SALESFORCE: (
            MetadataField("object_name"),
            MetadataField("domain"),
            MetadataField(IS_DELETED, _BOOLEAN),
            MetadataField(CHANGE_TYPE),
            MetadataField(PRIMARY_KEYS, _STRINGS),
        ),
        EventSource.MONGODB: (
            MetadataField("database"),
            MetadataField("collection"),
            MetadataField(CHANGE_TYPE),
            MetadataField(IS_DELETED, _BOOLEAN),
            MetadataField(PRIMARY_KEYS, _STRINGS),
        ),
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {"binlog_file": "log_file", "binlog_position": "log_position", "primary_key": PRIMARY_KEYS}
)
"""Observed names of fields, and the names that they are read as (ST-094, ST-107)."""

BACKFILL_VALUES: Mapping[EventSource, Mapping[str, str | int | None]] = MappingProxyType(
    {
        EventSource.MYSQL: {"log_file": "", "log_position": 0},
        EventSource.ORACLE: {"rs_id": "", "ssn": 0, "log_file": "", "tx_id": None},
        EventSource.POSTGRESQL: {"lsn": None, "tx_id": None},
        EventSource.SQLSERVER: {"lsn": None, "tx_id": None},
        EventSource.SALESFORCE: {},
        EventSource.MONGODB: {},
    }
)
"""The values of the position fields in an event of a backfill (ST-093)."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """A part of `sort_keys`, which repeats a field of `source_metadata` or the envelope's
    `source_timestamp`. backfill: its value in an event of a backfill, None for the field's
    value."""

    field: str
    is_text: bool = False
    backfill: str | int | None = None


_TIME = SortKey("source_timestamp")

SORT_KEYS_OF: Mapping[EventSource, Sequence[SortKey]] = MappingProxyType(
    {
        EventSource.MYSQL: (
            _TIME,
            SortKey("log_file", is_text=True, backfill=""),
            SortKey("log_position", backfill=0),
        ),
        EventSource.ORACLE: (
            _TIME,
            SortKey("scn"),
            SortKey("rs_id", is_text=True, backfill=""),
            SortKey("ssn", backfill=0),
        ),
        EventSource.POSTGRESQL: (_TIME, SortKey("lsn", is_text=True, backfill="")),
        EventSource.SQLSERVER: (_TIME, SortKey("lsn", is_text=True, backfill="")),
        EventSource.SALESFORCE: (_TIME,),
        # Not in any other field of the metadata (ST-204).
        EventSource.MONGODB: (SortKey("seconds"), SortKey("increment")),
    }
)
"""The parts of `sort_keys` (ST-199 to ST-204)."""

OBJECT_PARTS: Mapping[EventSource, tuple[str, str]] = MappingProxyType(
    {
        EventSource.MYSQL: ("database", "table"),
        EventSource.ORACLE: ("schema", "table"),
        EventSource.POSTGRESQL: ("schema", "table"),
        EventSource.SQLSERVER: ("schema", "table"),
        EventSource.SALESFORCE: ("domain", "object_name"),
        EventSource.MONGODB: ("database", "collection"),
    }
)
"""The fields with the namespace and the table of an event; `object` is never split (ST-037)."""


DATABASE = "database"
"""The field that tells tables of one schema and name apart, where a schema is in a database."""


def is_in_database(source: EventSource) -> bool:
    """Whether the objects of a source are in a database that is no part of their names."""
    has_field = any(field.name == DATABASE for field in FIELDS_OF[source])
    return has_field and DATABASE not in OBJECT_PARTS[source]


def metadata_fields(
    source: EventSource, switches: MetadataSwitches = AS_CHOSEN
) -> list[MetadataField]:
    """The fields of `source_metadata` in the order in which they are written."""
    fields = []
    for field in FIELDS_OF[source]:
        kind = field.type
        if source is EventSource.POSTGRESQL and field.name == "tx_id" and switches.long_tx_id:
            kind = _LONG
        if source is EventSource.SQLSERVER and switches.literal_types:
            kind = {"database": _LONG, "schema": _STRINGS}.get(field.name, kind)
        fields.append(MetadataField(field.name, kind, field.is_nullable))
    return fields
