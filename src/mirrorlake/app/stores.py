"""The store of a mirror: its root, and what lies elsewhere: the landing zone, the tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from mirrorlake import root
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.config import Project
from mirrorlake.storage.mounted import MountedStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation, open_store


@dataclass(frozen=True, slots=True)
class StorePlaces:
    """Where the store of a mirror is; can be pickled. elsewhere: other places, each with the
    folders of the root that are there."""

    root: Path | StorageLocation
    elsewhere: tuple[tuple[StorageLocation, tuple[str, ...]], ...]

    @classmethod
    def of(cls, project: Project) -> Self:
        others = [(project.landing, root.LANDED), (project.tables, root.MIRRORED)]
        return cls(project.root, tuple((one, parts) for one, parts in others if one is not None))

    def open(self) -> Store:
        """The store. Raises UsageError."""
        store = store_at(self.root)
        for location, parts in self.elsewhere:
            store = MountedStore(store, parts, open_store(location.url, location.options))
        return store


def store_of(project: Project) -> Store:
    """Where a mirror reads and writes. Raises UsageError."""
    return StorePlaces.of(project).open()


def event_store_of(settings: EventsSettings | EventInput) -> Store:
    """Where event files are. Raises UsageError."""
    return store_at(settings.location)


def store_at(location: Path | StorageLocation) -> Store:
    """The store of a folder or of a place on objects. Raises UsageError."""
    if isinstance(location, StorageLocation):
        return open_store(location.url, location.options)
    return open_store(location)
