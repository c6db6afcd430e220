"""Every kind of source: what a project file may say of it, and how it is opened.

A source stands in a package of its own below `sources/`, and in the lines of this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, create_model

from mirrorlake.config.event_input import EventInputSection
from mirrorlake.sources.base import Source
from mirrorlake.sources.memory.settings import MemorySettings
from mirrorlake.sources.postgresql.section import PostgresSection
from mirrorlake.sources.postgresql.settings import PostgresSettings
from mirrorlake.sources.section import Section, SourceSection, SourceSettings

SECTIONS: Mapping[str, type[Section]] = {
    "postgresql": PostgresSection,
    "events": EventInputSection,
}
"""The shape of the section `source:` for each `type`."""


def open_source(settings: SourceSettings) -> Source:
    """The source of these settings; it connects when it is used.

    Raises ImportError for a package that only an extra brings.
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


_types: Any = Literal[tuple(SECTIONS)]
_Typed: type[BaseModel] = create_model("_Typed", type=(_types, ...))


def _of_its_type(section: Any) -> Section:
    """The section in the shape that its `type` asks for. Raises ValidationError."""
    _Typed.model_validate(section)
    return SECTIONS[section["type"]].model_validate(section)


AnySource = Annotated[SourceSection | EventInputSection, BeforeValidator(_of_its_type)]
"""The union of `SECTIONS`, told apart by `type`."""
