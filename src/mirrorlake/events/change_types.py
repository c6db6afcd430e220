"""What kind of change an event is, as each source names it (ST-096 to ST-110)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from mirrorlake.events.envelope import EventSource


class ChangeType(StrEnum):
    """The values of `change_type` that are understood. READ was seen on backfills of MongoDB."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    UPDATE_INSERT = "UPDATE-INSERT"
    UPDATE_DELETE = "UPDATE-DELETE"
    DELETE = "DELETE"
    CREATE = "CREATE"
    READ = "READ"

    @classmethod
    def parse(cls, text: str | None, *, is_backfill: bool = False) -> ChangeType:
        """Read a value; null on a backfill event means INSERT (ST-092).

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
        """Whether the key is deleted (ST-247); everything else is an upsert (ST-246)."""
        return self in {ChangeType.DELETE, ChangeType.UPDATE_DELETE}


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
"""What the events of each source say (ST-051, ST-059, ST-067, ST-081, ST-085, ST-089)."""

KEY_CHANGE_DELAY_MS = 1000
"""How much later than its UPDATE-DELETE an UPDATE-INSERT of MySQL is told to be (ST-103)."""


def inserted(source: EventSource) -> ChangeType:
    """How a source calls a new row, and each row of a backfill (ST-093)."""
    return ChangeType.CREATE if source is EventSource.MONGODB else ChangeType.INSERT


def updated(source: EventSource) -> ChangeType:
    """How a source calls an update that does not touch the key (ST-101)."""
    return ChangeType.UPDATE_INSERT if WRITTEN[source] is _OF_PAIRS else ChangeType.UPDATE


def rekeyed(source: EventSource) -> tuple[ChangeType, ChangeType] | None:
    """How a source calls the two halves of an update that changes the key, the deletion first
    (ST-102, ST-104); None where a key cannot change (ST-106)."""
    if source is EventSource.MONGODB:
        return None
    if WRITTEN[source] is _OF_PAIRS:
        return ChangeType.UPDATE_DELETE, ChangeType.UPDATE_INSERT
    return ChangeType.DELETE, ChangeType.INSERT
