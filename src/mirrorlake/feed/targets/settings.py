"""What a project says of a table that is built from the change feed of another."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.feed.history.settings import HistorySettings
from mirrorlake.model.table import TableId


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """Build `target` from `table`, and keep it up to date. from_latest: a new one begins with the
    rows of the latest version."""

    table: TableId
    target: TableId
    asked: HistorySettings
    from_latest: bool = False
