"""The envelope of an event: its generic fields and its read method (ST-012 to ST-044)."""

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

MOST_EVENT = 100 << 20
"""Maximum bytes of an event, as a value of Avro or as a line of JSON (ST-177)."""

OPTIONAL_FIELDS = frozenset({SCHEMA_KEY, SORT_KEYS})
"""Fields that may be missing when read (ST-014)."""


class EventSource(StrEnum):
    """The sources that have their own metadata."""

    MYSQL = "mysql"
    ORACLE = "oracle"
    POSTGRESQL = "postgresql"
    SQLSERVER = "sqlserver"
    SALESFORCE = "salesforce"
    MONGODB = "mongodb"


class ReadKind(StrEnum):
    """The meaning of a read method (ST-031)."""

    CDC = "cdc"
    BACKFILL = "backfill"
    SUPPLEMENTATION = "supplementation"


@dataclass(frozen=True, slots=True)
class ReadMethod:
    """A parsed `read_method`: the source of the event, and how it was read."""

    source: EventSource
    kind: ReadKind

    @classmethod
    def parse(cls, text: str, configured: EventSource | None = None) -> ReadMethod:
        """Classify a value (ST-034). configured: the source, if the user has named it.

        Raises ValueError when the source or the kind is unknown.
        """
        lower = text.lower()
        source = configured or _source(lower)
        if "supplementation" in lower:
            return cls(source, ReadKind.SUPPLEMENTATION)
        if "backfill" in lower or "dump" in lower:
            return cls(source, ReadKind.BACKFILL)
        # `mongodb-change-stream` was observed (ST-369) and has none of the three words.
        if "cdc" in lower or "change-stream" in lower:
            return cls(source, ReadKind.CDC)
        raise ValueError(f"read_method {text[:100]!r} names neither CDC nor a backfill")

    def __str__(self) -> str:
        """The written form (ST-035). Raises ValueError for a combination that no stream writes."""
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
