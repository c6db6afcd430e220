"""The settings of a table that is built from the change feed of another table."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.history.settings import HistorySettings
from mirrorlake.model.table import TableId


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """A copy of a table, commit by commit. key: columns that identify a row, instead of those of a
    mirrored table."""

    key: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChangeLogSettings:
    """Every row of every landed file that a table has applied (CF-148)."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Build `target` from `table`, and keep it up to date. from_latest: a new target starts with
    the rows of the latest version."""

    table: TableId
    target: TableId
    options: HistorySettings | ArchiveSettings | ReplaySettings | ChangeLogSettings
    from_latest: bool = False
