"""The section `destination:` of a project file: the destinations of a source's changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, TypeAdapter

from mirrorlake.capture.events.infinities import Infinite
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.config.elsewhere import EventLocationSection
from mirrorlake.config.typed import of_its_type
from mirrorlake.errors import ConfigError
from mirrorlake.events.paths import EventExtension
from mirrorlake.sources.section import Section

_LONGEST_SECONDS = 86_400
_MOST_MEGABYTES = 1024


class EventsSection(EventLocationSection):
    """Event files as the destination of a stream."""

    type: Literal["events"]
    format: Literal["avro", "json"] = "avro"
    rotation_mb: float = Field(default=50, gt=0, le=_MOST_MEGABYTES)
    rotation_seconds: float = Field(default=60, gt=0, le=_LONGEST_SECONDS)
    compression: Literal["none", "gzip", "deflate"] = "none"
    schema_file: bool = False
    truncations: bool = False
    long_tx_id: bool = False

    def settings(self, path: Path, name: str, infinite: Infinite) -> EventsSettings:
        """path: of the project file; name: of the project; infinite: what becomes of infinite
        intervals. Raises ConfigError."""
        return EventsSettings(
            stream=name,
            location=self.location(path, "destination"),
            path=self.folder(path, "destination"),
            extension=self._extension(path),
            is_deflated=self.compression == "deflate",
            rotation_bytes=max(round(self.rotation_mb * (1 << 20)), 1),
            rotation_seconds=self.rotation_seconds,
            schema_file=self.schema_file,
            truncations=self.truncations,
            long_tx_id=self.long_tx_id,
            infinite=infinite,
        )

    def _extension(self, path: Path) -> EventExtension:
        is_avro = self.format == "avro"
        if self.compression == ("gzip" if is_avro else "deflate"):
            raise ConfigError(
                f"files of {self.format} are not compressed with {self.compression}",
                where=f"{path}, field destination.compression",
                hint=f"Write {'deflate' if is_avro else 'gzip'}, or none.",
            )
        if is_avro and self.schema_file:
            raise ConfigError(
                "Avro files hold their schema themselves",
                where=f"{path}, field destination.schema_file",
                hint="Remove the setting, or write format: json.",
            )
        if is_avro:
            return EventExtension.AVRO
        zipped = self.compression == "gzip"
        return EventExtension.JSON_GZIP if zipped else EventExtension.JSON


class LandingDestinationSection(Section):
    """The landing zone and the tables, in addition to event files."""

    type: Literal["landing"]


_chosen = of_its_type({"events": EventsSection, "landing": LandingDestinationSection})
_Destination = Annotated[EventsSection | LandingDestinationSection, BeforeValidator(_chosen)]
_SEVERAL: TypeAdapter[Any] = TypeAdapter(Annotated[list[_Destination], Field(min_length=1)])


def _one_or_several(given: object) -> object:
    """Raises ValidationError."""
    return _SEVERAL.validate_python(given) if isinstance(given, list) else _chosen(given)


AnyDestination = Annotated[
    EventsSection | LandingDestinationSection | list[EventsSection | LandingDestinationSection],
    BeforeValidator(_one_or_several),
]


def lands(sections: Sequence[Section]) -> bool:
    """Whether the project has a landing zone and tables, which is the default."""
    return not sections or any(isinstance(one, LandingDestinationSection) for one in sections)


def event_destinations(
    sections: Sequence[Section], path: Path, name: str, infinite: Infinite
) -> tuple[EventsSettings, ...]:
    """path: of the project file; name: of the project; infinite: what becomes of infinite
    intervals. Raises ConfigError."""
    events = [one for one in sections if isinstance(one, EventsSection)]
    found = [one.settings(path, name, infinite) for one in events]
    if len({one.described for one in found}) < len(found) or len(sections) > len(found) + 1:
        raise ConfigError(
            "two destinations are the same place",
            where=f"{path}, field destination",
            hint="Remove one of them, or set another url or path.",
        )
    return tuple(found)
