"""The sections of tables that are built from change feeds: `histories` and `archives`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.history.settings import HistorySettings
from mirrorlake.feed.targets.settings import TargetSettings
from mirrorlake.model.table import TableId
from mirrorlake.sources.section import Section


class HistorySection(Section):
    """One history, with the arguments of `mirrorlake.history`."""

    table: str = Field(min_length=1)
    to: str | None = Field(default=None, min_length=1)
    from_latest: bool = False
    type: Literal[1, 2] = 2
    key: list[str] | None = None
    track: list[str] | None = None
    bounds: Literal["version", "commit_time", "source_time", "source_position"] = "version"
    current: bool = False
    deletes: Literal["remove", "flag"] = "remove"

    def settings(self) -> TargetSettings:
        """Raises UsageError."""
        asked = HistorySettings.of(
            type=self.type,
            key=self.key,
            track=self.track,
            bounds=self.bounds,
            current=self.current,
            deletes=self.deletes,
        )
        table = TableId.parse(self.table)
        return TargetSettings(table, target_of(table, self.to, "_history"), asked, self.from_latest)


class ArchiveSection(Section):
    """One archive, with the arguments of `mirrorlake.archive`."""

    table: str = Field(min_length=1)
    to: str | None = Field(default=None, min_length=1)
    from_latest: bool = False
    names: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> TargetSettings:
        """Raises UsageError."""
        table, asked = TableId.parse(self.table), ArchiveSettings.of(self.names)
        return TargetSettings(table, target_of(table, self.to, "_archive"), asked, self.from_latest)


def target_of(table: TableId, to: str | None, end: str) -> TableId:
    """The name of a target: `to`, or that of the table and this at its end."""
    return TableId.parse(to) if to else TableId(table.schema, table.name + end)


def targets_of(
    histories: Sequence[HistorySection], archives: Sequence[ArchiveSection], path: Path
) -> tuple[TargetSettings, ...]:
    """The targets of a project file. Raises ConfigError, also for two of one name."""
    found: dict[TableId, TargetSettings] = {}
    entries: list[tuple[str, HistorySection | ArchiveSection]] = [
        *((f"histories.{number}", one) for number, one in enumerate(histories)),
        *((f"archives.{number}", one) for number, one in enumerate(archives)),
    ]
    for field, one in entries:
        where = f"{path}, field {field}"
        try:
            settings = one.settings()
        except UsageError as error:
            raise ConfigError(error.what, where=where, hint=error.hint) from None
        if settings.target in found or settings.target == settings.table:
            raise ConfigError(
                f"{settings.target} is the name of another table of this project",
                where=f"{where}.to",
                hint="Give each target a name of its own with `to`.",
            )
        found[settings.target] = settings
    return tuple(found.values())
