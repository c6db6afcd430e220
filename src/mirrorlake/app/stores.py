"""The store of a mirror: its root, and the landing zone wherever that lies."""

from __future__ import annotations

from mirrorlake.config import Project
from mirrorlake.landing import layout
from mirrorlake.storage.local import LocalStore
from mirrorlake.storage.parts import PartedStore
from mirrorlake.storage.store import Store
from mirrorlake.storage.urls import open_store


def store_of(project: Project) -> Store:
    """Where a mirror reads and writes. Raises UsageError."""
    root = LocalStore(project.root)
    if project.landing is None:
        return root
    elsewhere = open_store(project.landing.url, project.landing.options)
    return PartedStore(root, layout.LANDED, elsewhere)
