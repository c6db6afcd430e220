"""What a project says of a table that is built from the change feed of another."""

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
class TargetSettings:
    """Build `target` from `table`, and keep it up to date. from_latest: a new one begins with the
    rows of the latest version."""

    table: TableId
    target: TableId
    asked: HistorySettings | ArchiveSettings | ReplaySettings
    from_latest: bool = False
