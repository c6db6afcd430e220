"""The change types of events, as each source names them (ST-096 to ST-110)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from mirrorlake.events.envelope import EventSource


class ChangeType(StrEnum):
    """The known values of `change_type`.

    READ was observed in backfills of MongoDB. TRUNCATE is the extension of ST-256.
    """

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    UPDATE_INSERT = "UPDATE-INSERT"
    UPDATE_DELETE = "UPDATE-DELETE"
    DELETE = "DELETE"
    CREATE = "CREATE"
    READ = "READ"
    TRUNCATE = "TRUNCATE"

    @classmethod
    def parse(cls, text: str | None, *, is_backfill: bool = False) -> ChangeType:
        """Parse a value; null in a backfill event means INSERT (ST-092).

        Raises ValueError for any other (ST-110).
        """
        if text is None and is_backfill:
            return cls.INSERT
        if text is None:
            raise ValueError("change_type is null")
        try:
            return cls(text.upper())
        except ValueError:
            raise ValueError(f"change_type {text[:50]!r} is not known") from None

    @property
    def is_deletion(self) -> bool:
        """Whether the key, or every key, is deleted (ST-247); all other types are upserts
        (ST-246)."""
        return self in {ChangeType.DELETE, ChangeType.UPDATE_DELETE, ChangeType.TRUNCATE}


_OF_PAIRS = frozenset(
    {
        ChangeType.INSERT,
        ChangeType.UPDATE_INSERT,
        ChangeType.UPDATE_DELETE,
        ChangeType.DELETE,
    }
)
_PLAIN = frozenset({ChangeType.INSERT, ChangeType.UPDATE, ChangeType.DELETE})

WRITTEN: Mapping[EventSource, frozenset[ChangeType]] = MappingProxyType(
    {
        EventSource.MYSQL: _OF_PAIRS,
        EventSource.ORACLE: _OF_PAIRS,
        EventSource.POSTGRESQL: _PLAIN,
        EventSource.SQLSERVER: _PLAIN,
        EventSource.SALESFORCE: _PLAIN,
        EventSource.MONGODB: frozenset({ChangeType.CREATE, ChangeType.UPDATE, ChangeType.DELETE}),
    }
)
"""The change types that the events of each source use (ST-051, ST-059, ST-067, ST-081, ST-085,
ST-089)."""


def inserted(source: EventSource) -> ChangeType:
    """The type of a new row, and of each row of a backfill (ST-093)."""
    return ChangeType.CREATE if source is EventSource.MONGODB else ChangeType.INSERT


def updated(source: EventSource) -> ChangeType:
    """The type of an update that does not change the key (ST-101)."""
    return ChangeType.UPDATE_INSERT if WRITTEN[source] is _OF_PAIRS else ChangeType.UPDATE


def rekeyed(source: EventSource) -> tuple[ChangeType, ChangeType] | None:
    """The types of the two halves of an update that changes the key, the deletion first (ST-102,
    ST-104); None for a source whose keys cannot change (ST-106)."""
    if source is EventSource.MONGODB:
        return None
    if WRITTEN[source] is _OF_PAIRS:
        return ChangeType.UPDATE_DELETE, ChangeType.UPDATE_INSERT
    return ChangeType.DELETE, ChangeType.INSERT
