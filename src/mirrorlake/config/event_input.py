"""The section `source:` of a project file, for a folder or bucket of event files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import Field

from mirrorlake.apply.events.settings import EventInput
from mirrorlake.config.elsewhere import EventLocationSection
from mirrorlake.errors import ConfigError
from mirrorlake.events.envelope import EventSource

_EXTENSIONS = {"avro": ("avro",), "json": ("json", "jsonl"), None: ()}
_LONGEST_DAYS, _LONGEST_SECONDS = 36_500, 86_400
_INPUT = EventInput(Path())


class EventInputSection(EventLocationSection):
    type: Literal["events"]
    format: Literal["avro", "json"] | None = None
    system: EventSource | None = None
    mode: Literal["merge", "append"] = "merge"
    keys: dict[str, list[str]] = Field(default_factory=dict)
    dataset: str | None = Field(default=None, min_length=1)
    dataset_prefix: str = ""
    oracle_order: Literal["scn", "rs_id"] = "scn"
    guard_seconds: float = Field(default=_INPUT.guard.total_seconds(), ge=0, le=_LONGEST_SECONDS)
    look_back_days: float = Field(default=_INPUT.look_back.days, ge=0, le=_LONGEST_DAYS)
    poll_seconds: float = Field(default=_INPUT.poll_seconds, gt=0, le=_LONGEST_SECONDS)

    def settings(self, path: Path) -> EventInput:
        """path: of the project file. Raises ConfigError."""
        if self.dataset is not None and self.dataset_prefix:
            raise ConfigError(
                "a prefix is for one schema for each of the source, and dataset names one for all",
                where=f"{path}, field source.dataset_prefix",
                hint="Remove dataset_prefix or dataset.",
            )
        return EventInput(
            location=self.location(path, "source"),
            path=self.folder(path, "source"),
            extensions=_EXTENSIONS[self.format],
            source=self.system,
            is_append=self.mode == "append",
            keys={name: tuple(key) for name, key in self.keys.items()},
            guard=timedelta(seconds=self.guard_seconds),
            look_back=timedelta(days=self.look_back_days),
            dataset=self.dataset,
            prefix=self.dataset_prefix,
            strict_oracle=self.oracle_order == "rs_id",
            poll_seconds=self.poll_seconds,
        )
