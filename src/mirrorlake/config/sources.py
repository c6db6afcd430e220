"""All kinds of sources: their sections in a project file, and how they are opened.

A new source adds a package below `sources/` and entries in this file, its kind of position to
`model/position.py` and its event metadata to `capture/events/build.py`. For the streams API, its
profile belongs to `app/streams/connections.py`, validation and discovery to the modules beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator

from mirrorlake.config.event_input import EventInputSection
from mirrorlake.config.typed import of_its_type
from mirrorlake.sources.base import Source
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.postgresql.section import PostgresSection
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.section import Section, SourceSection, SourceSettings

SECTIONS: Mapping[str, type[Section]] = {
    "postgresql": PostgresSection,
    "events": EventInputSection,
}
"""The model of the section `source:` for each `type`."""


def open_source(settings: SourceSettings) -> Source:
    """The source for these settings. It connects on first use.

    Raises ImportError when the package of an optional extra is not installed.
    """
    match settings:
        case PostgresSettings():
            from mirrorlake.sources.postgresql.source import PostgresSource

            return PostgresSource(settings)
        case MemorySettings():
            from mirrorlake.sources.memory.source import MemorySource

            return MemorySource(settings)
        case _:
            raise TypeError(f"settings of no source: {type(settings).__name__}")


AnySource = Annotated[SourceSection | EventInputSection, BeforeValidator(of_its_type(SECTIONS))]
"""The union of `SECTIONS`, discriminated by `type`."""
