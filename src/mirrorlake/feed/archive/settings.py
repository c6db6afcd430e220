"""The settings of an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

from mirrorlake.delta.feed_columns import COMMIT_TIMESTAMP, COMMIT_VERSION, METADATA
from mirrorlake.delta.write.data_files import CHANGE_TYPE
from mirrorlake.errors import UsageError
from mirrorlake.model import types
from mirrorlake.model.types import DataType

ORIGIN, SOURCE_ID = "origin", "source_id"
CHANGE, SNAPSHOT = "change", "snapshot"
"""Whether a row of an archive is a change or a row of the initial snapshot (CF-192)."""

COLUMNS: Mapping[str, tuple[str, DataType]] = MappingProxyType(
    {
        "change_type": (CHANGE_TYPE, types.STRING),
        "commit_version": (COMMIT_VERSION, types.LONG),
        "commit_timestamp": (COMMIT_TIMESTAMP, types.TIMESTAMP),
        ORIGIN: ("", types.STRING),
        SOURCE_ID: ("", types.STRING),
    }
)
"""The archive's own columns, by default name: the column of the feed with its values, and its
type."""


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """Settings of an archive. names: other names of columns, by default name (CF-190)."""

    names: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, names: Mapping[str, str] | None = None) -> Self:
        """Check the arguments of a caller. Raises UsageError."""
        given = dict(names or {})
        if unknown := sorted(given.keys() - COLUMNS.keys()):
            raise UsageError(
                f"{unknown[0]} is no column of an archive, whose own columns are "
                f"{', '.join(COLUMNS)}"
            )
        chosen = [given.get(name, name).casefold() for name in COLUMNS]
        taken = {name for name in chosen if chosen.count(name) > 1 or not name}
        if taken or (reserved := set(chosen) & set(METADATA)):
            named = min(taken or reserved)
            raise UsageError(
                f"a column of an archive cannot be called {named!r}",
                hint="Choose different names, which are not those of the change feed.",
            )
        return cls(given)

    def name(self, usual: str) -> str:
        return self.names.get(usual, usual)

    @property
    def columns(self) -> dict[str, DataType]:
        return {self.name(usual): kind for usual, (_feed, kind) in COLUMNS.items()}
