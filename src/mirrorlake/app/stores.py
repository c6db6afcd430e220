"""The store of a mirror: its root, and what lies elsewhere: the landing zone, the tables."""

from __future__ import annotations

from pathlib import Path

from mirrorlake import root
from mirrorlake.apply.events.settings import EventInput
from mirrorlake.capture.events.settings import EventsSettings
from mirrorlake.config import Project
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.mounted import MountedStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import StorageLocation, open_store


def store_of(project: Project) -> Store:
    """Where a mirror reads and writes. Raises UsageError."""
    store = store_at(project.root)
    elsewhere: list[tuple[StorageLocation | None, tuple[str, ...]]] = [
        (project.landing, root.LANDED),
        (project.tables, root.MIRRORED),
    ]
    for location, parts in elsewhere:
        if location is not None:
            store = MountedStore(store, parts, open_store(location.url, location.options))
    return store


def event_store_of(settings: EventsSettings | EventInput) -> Store:
    """Where event files are. Raises UsageError."""
    return store_at(settings.location)


def store_at(location: Path | StorageLocation) -> Store:
    """The store of a folder or of a place on objects. Raises UsageError."""
    if isinstance(location, StorageLocation):
        return open_store(location.url, location.options)
    return LocalStore(location)
