"""The store of a mirror: its root, and what lies elsewhere: the landing zone, the tables."""

from __future__ import annotations

from mirrorlake import root
from mirrorlake.config import Project
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.mounted import PartedStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import Place, open_store


def store_of(project: Project) -> Store:
    """Where a mirror reads and writes. Raises UsageError."""
    store: Store = LocalStore(project.root)
    elsewhere: list[tuple[Place | None, tuple[str, ...]]] = [
        (project.landing, root.LANDED),
        (project.tables, root.MIRRORED),
    ]
    for place, parts in elsewhere:
        if place is not None:
            store = PartedStore(store, parts, open_store(place.url, place.options))
    return store
