"""The sections of tables that are built from change feeds: `histories` and `archives`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.feed.archive.settings import ArchiveSettings
from mirrorlake.feed.history.settings import HistorySettings
from mirrorlake.feed.targets.settings import ChangeLogSettings, TargetSettings
from mirrorlake.model.table import TableId
from mirrorlake.sources.section import Section


class HistorySection(Section):
    """A history, with the arguments of `mirrorlake.history`."""

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
    """An archive, with the arguments of `mirrorlake.archive`."""

    table: str = Field(min_length=1)
    to: str | None = Field(default=None, min_length=1)
    from_latest: bool = False
    names: dict[str, str] = Field(default_factory=dict)

    def settings(self) -> TargetSettings:
        """Raises UsageError."""
        table, asked = TableId.parse(self.table), ArchiveSettings.of(self.names)
        return TargetSettings(table, target_of(table, self.to, "_archive"), asked, self.from_latest)


def change_log_of(name: str, to: str | bool) -> TargetSettings:
    """The change log of a table. to: its name, or true."""
    table = TableId.parse(name)
    target = target_of(table, to if isinstance(to, str) else None, "_change_log")
    return TargetSettings(table, target, ChangeLogSettings())


def target_of(table: TableId, to: str | None, end: str) -> TableId:
    """The name of a target: `to`, or the name of the table followed by `end`."""
    return TableId.parse(to) if to else TableId(table.schema, table.name + end)


def targets_of(
    histories: Sequence[HistorySection],
    archives: Sequence[ArchiveSection],
    change_logs: Mapping[str, str | bool],
    path: Path,
) -> tuple[TargetSettings, ...]:
    """The targets of a project file. change_logs: by the names of tables. Raises ConfigError, also
    when two have the same name, or names that differ in case only."""
    found: dict[tuple[str, str], TargetSettings] = {}
    entries: list[tuple[str, HistorySection | ArchiveSection]] = [
        *((f"histories.{number}", one) for number, one in enumerate(histories)),
        *((f"archives.{number}", one) for number, one in enumerate(archives)),
    ]
    for field, one in entries:
        try:
            settings = one.settings()
        except UsageError as error:
            where = f"{path}, field {field}"
            raise ConfigError(error.what, where=where, hint=error.hint) from None
        _add(found, settings, f"{path}, field {field}.to")
    for name, to in change_logs.items():
        if to:
            _add(found, change_log_of(name, to), f"{path}, field mirror.tables.{name}.change_log")
    return tuple(found.values())


def _add(
    found: dict[tuple[str, str], TargetSettings], settings: TargetSettings, where: str
) -> None:
    target = settings.target
    known = found.get(_folded(target))
    for other in (settings.table, known.target if known else None):
        if other is None or _folded(other) != _folded(target):
            continue
        what = f"{target} is the name of another table of this project"
        if other != target:
            what = (
                f"{target} and {other} differ in case only, so that a storage that ignores case "
                "has one folder for both"
            )
        raise ConfigError(what, where=where, hint="Give each target a name of its own.")
    found[_folded(target)] = settings


def _folded(table: TableId) -> tuple[str, str]:
    return table.schema.casefold(), table.name.casefold()
