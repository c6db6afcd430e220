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
from mirrorlake.model.position import Lsn
from mirrorlake.sources.base import SharedSnapshot, Source
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


def shared_snapshot(settings: SourceSettings, point: str, name: str) -> SharedSnapshot:
    """The snapshot of a load that another process keeps open. name: `Snapshot.shared`.

    Raises ImportError as `open_source` does.
    """
    if not isinstance(settings, PostgresSettings):
        raise TypeError(f"no shared snapshots: {type(settings).__name__}")
    from mirrorlake.sources.postgresql.snapshot import SharedPostgresSnapshot

    return SharedPostgresSnapshot(settings, Lsn.parse(point), name)


AnySource = Annotated[SourceSection | EventInputSection, BeforeValidator(of_its_type(SECTIONS))]
"""The union of `SECTIONS`, discriminated by `type`."""
