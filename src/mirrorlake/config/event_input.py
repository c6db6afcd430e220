"""The section `source:` of a project file, for a folder or bucket of event files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

from pydantic import Field

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.config.elsewhere import EventLocationSection
from mirrorlake.errors import ConfigError
from mirrorlake.events.envelope import EventSource
from mirrorlake.events.types import UNSUPPORTED, UnifiedType
from mirrorlake.root import STATE, TABLES
from mirrorlake.storage.urls import StorageLocation

_EXTENSIONS = {"avro": ("avro",), "json": ("json", "jsonl"), None: ()}
_LONGEST_DAYS, _LONGEST_SECONDS = 36_500, 86_400
_INPUT = EventInput(Path())


class EventInputSection(EventLocationSection):
    type: Literal["events"]
    format: Literal["avro", "json"] | None = None
    system: EventSource | None = None
    mode: Literal["merge", "append"] = "merge"
    keys: dict[str, list[str]] = Field(default_factory=dict)
    types: dict[str, dict[str, str]] = Field(default_factory=dict)
    dataset: str | None = Field(default=None, min_length=1)
    dataset_prefix: str = ""
    oracle_order: Literal["scn", "rs_id"] = "scn"
    guard_seconds: float = Field(default=_INPUT.guard.total_seconds(), ge=0, le=_LONGEST_SECONDS)
    look_back_days: float = Field(default=_INPUT.look_back.days, ge=0, le=_LONGEST_DAYS)
    retention_days: float = Field(default=_INPUT.retention.days, gt=0, le=_LONGEST_DAYS)
    poll_seconds: float = Field(default=_INPUT.poll_seconds, gt=0, le=_LONGEST_SECONDS)

    def settings(self, path: Path, root: Path | StorageLocation) -> EventInput:
        """path: of the project file; root: of the tables. Raises ConfigError."""
        if self.dataset is not None and self.dataset_prefix:
            raise ConfigError(
                "a prefix is for one schema for each of the source, and dataset names one for all",
                where=f"{path}, field source.dataset_prefix",
                hint="Remove dataset_prefix or dataset.",
            )
        if self.retention_days < self.look_back_days:
            raise ConfigError(
                "what is forgotten sooner than files are looked for would be applied again",
                where=f"{path}, field source.retention_days",
                hint="Set it to source.look_back_days or more.",
            )
        location, folder = self.location(path, "source"), self.folder(path, "source")
        _check_apart(location, folder, root, path)
        return EventInput(
            location=location,
            path=folder,
            extensions=_EXTENSIONS[self.format],
            source=self.system,
            is_append=self.mode == "append",
            keys={name: tuple(key) for name, key in self.keys.items()},
            types={
                table: {name: _type(path, f"{table}.{name}", kind) for name, kind in kinds.items()}
                for table, kinds in self.types.items()
            },
            guard=timedelta(seconds=self.guard_seconds),
            look_back=timedelta(days=self.look_back_days),
            retention=timedelta(days=self.retention_days),
            dataset=self.dataset,
            prefix=self.dataset_prefix,
            strict_oracle=self.oracle_order == "rs_id",
            poll_seconds=self.poll_seconds,
        )


def _type(path: Path, column: str, text: str) -> UnifiedType:
    try:
        kind = UnifiedType.parse(text.upper().replace(" ", ""))
    except ValueError:
        kind = UNSUPPORTED
    if kind == UNSUPPORTED:
        raise ConfigError(
            f"{text!r} is no type of a column of events",
            where=f"{path}, field source.types, {column}",
            hint="Types are for example LONG, DOUBLE, DECIMAL(38,9), STRING and TIMESTAMP.",
        )
    return kind


def _check_apart(
    location: Path | StorageLocation, folder: str, root: Path | StorageLocation, path: Path
) -> None:
    """Refuse a folder of event files that contains root or is inside its tables or state: files of
    the mirror would be read as events."""
    if isinstance(location, Path) and isinstance(root, Path):
        files, own = PurePath((location / folder).resolve()), PurePath(root.resolve())
    elif isinstance(location, StorageLocation) and isinstance(root, StorageLocation):
        files, own = PurePosixPath(location.url, folder), PurePosixPath(root.url)
    else:
        return
    if own.is_relative_to(files) or any(files.is_relative_to(own / one) for one in (STATE, TABLES)):
        raise ConfigError(
            "the folder of the event files holds root, or lies among what is made of them",
            where=f"{path}, field source.url",
            hint="Name a folder of event files alone, or another root.",
        )
