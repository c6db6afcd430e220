"""The envelope of an event: its generic fields and how it was read (ST-012 to ST-044)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

UUID, READ_TIMESTAMP, SOURCE_TIMESTAMP = "uuid", "read_timestamp", "source_timestamp"
OBJECT, READ_METHOD, STREAM_NAME = "object", "read_method", "stream_name"
SCHEMA_KEY, SORT_KEYS = "schema_key", "sort_keys"
SOURCE_METADATA, PAYLOAD = "source_metadata", "payload"

FIELDS = (
    UUID,
    READ_TIMESTAMP,
    SOURCE_TIMESTAMP,
    OBJECT,
    READ_METHOD,
    STREAM_NAME,
    SCHEMA_KEY,
    SORT_KEYS,
    SOURCE_METADATA,
    PAYLOAD,
)
"""The top-level fields in the order in which they are written (ST-013)."""

OPTIONAL_FIELDS = frozenset({SCHEMA_KEY, SORT_KEYS})
"""What a reader may find missing (ST-014)."""


class EventSource(StrEnum):
    """The sources whose events are told apart."""

    MYSQL = "mysql"
    ORACLE = "oracle"
    POSTGRESQL = "postgresql"
    SQLSERVER = "sqlserver"
    SALESFORCE = "salesforce"
    MONGODB = "mongodb"


class ReadKind(StrEnum):
    """What a read method means (ST-031)."""

    CDC = "cdc"
    BACKFILL = "backfill"
    SUPPLEMENTATION = "supplementation"


@dataclass(frozen=True, slots=True)
class ReadMethod:
    """A `read_method` as it is understood: whose event, and how it was read."""

    source: EventSource
    kind: ReadKind

    @classmethod
    def parse(cls, text: str, configured: EventSource | None = None) -> ReadMethod:
        """Classify a value (ST-034). configured: the source, where the user has named it.

        Raises ValueError when the source or the kind cannot be told.
        """
        lower = text.lower()
        source = configured or _source(lower)
        if "supplementation" in lower:
            return cls(source, ReadKind.SUPPLEMENTATION)
        if "backfill" in lower or "dump" in lower:
            return cls(source, ReadKind.BACKFILL)
        # `mongodb-change-stream` was seen (ST-369) and has none of the three words.
        if "cdc" in lower or "change-stream" in lower:
            return cls(source, ReadKind.CDC)
        raise ValueError(f"read_method {text[:100]!r} names neither CDC nor a backfill")

    def __str__(self) -> str:
        """As it is written (ST-035). Raises ValueError for what no stream of the source writes."""
        try:
            return _WRITTEN[self.source, self.kind]
        except KeyError:
            raise ValueError(f"{self.source} has no {self.kind}") from None


LISTED = (
    "oracle-cdc-logminer",
    "oracle-backfill",
    "oracle-supplementation",
    "mysql-cdc-binlog",
    "mysql-backfill-incremental",
    "mysql-backfill-fulldump",
    "postgres-cdc-wal",
    "postgresql-backfill",
    "salesforce-cdc",
    "salesforce-backfill",
)
"""The values that ST-032 lists."""

_WRITTEN = MappingProxyType(
    {
        (EventSource.ORACLE, ReadKind.CDC): "oracle-cdc-logminer",
        (EventSource.ORACLE, ReadKind.BACKFILL): "oracle-backfill",
        (EventSource.ORACLE, ReadKind.SUPPLEMENTATION): "oracle-supplementation",
        (EventSource.MYSQL, ReadKind.CDC): "mysql-cdc-binlog",
        (EventSource.MYSQL, ReadKind.BACKFILL): "mysql-backfill-incremental",
        (EventSource.POSTGRESQL, ReadKind.CDC): "postgres-cdc-wal",
        (EventSource.POSTGRESQL, ReadKind.BACKFILL): "postgresql-backfill",
        (EventSource.SQLSERVER, ReadKind.CDC): "sqlserver-cdc",
        (EventSource.SQLSERVER, ReadKind.BACKFILL): "sqlserver-backfill",
        (EventSource.SALESFORCE, ReadKind.CDC): "salesforce-cdc",
        (EventSource.SALESFORCE, ReadKind.BACKFILL): "salesforce-backfill",
        (EventSource.MONGODB, ReadKind.CDC): "mongodb-cdc",
        (EventSource.MONGODB, ReadKind.BACKFILL): "mongodb-backfill",
    }
)


def _source(text: str) -> EventSource:
    first = text.replace("_", "-").partition("-")[0]
    if first == "postgres":
        return EventSource.POSTGRESQL
    try:
        return EventSource(first)
    except ValueError:
        raise ValueError(f"read_method {text[:100]!r} names no source") from None
